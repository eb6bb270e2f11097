"""Opponents behind an OpenAI-compatible endpoint. Needs the extra ``api``, which is imported with the first player."""

from .endpoint_settings import ApiSettings, Limit, check_installed
from .player import ApiPlayer, BudgetSpent

__all__ = ["ApiPlayer", "ApiSettings", "BudgetSpent", "Limit", "check_installed"]
