"""Opponents behind an OpenAI-compatible endpoint. Needs the extra ``api``, which is imported with the first player."""

from .player import ApiPlayer, BudgetSpent
from .settings import ApiSettings, Limit, check_installed

__all__ = ["ApiPlayer", "ApiSettings", "BudgetSpent", "Limit", "check_installed"]
