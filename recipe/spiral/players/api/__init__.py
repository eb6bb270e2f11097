"""Opponents behind an OpenAI-compatible endpoint. Needs the extra ``api``, which is imported with the first player."""

from .client import Unpaid
from .player import ApiPlayer, BudgetSpent
from .settings import ApiSettings, Limit, check_installed

__all__ = ["ApiPlayer", "ApiSettings", "BudgetSpent", "Limit", "Unpaid", "check_installed"]
