"""Opponents behind an OpenAI-compatible endpoint. Needs the extra ``api``, which is imported with the first player."""
