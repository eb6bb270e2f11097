"""Which extension is asked: a user's before ours, wherever the config names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recipe.spiral import extensions
from recipe.spiral.lab.extension import Extension as Lab
from recipe.spiral.opponents.league import League
from recipe.spiral.spin.extension import Extension as Spin
from tests.made_configs import config

BUDGETS = extensions.Budgets()


class Mine(extensions.Extension):
    def budgets(self, config: Any) -> extensions.Budgets | None:
        return BUDGETS


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Mine:
    """Named last, as in docs/extensions.md."""
    mine = Mine()
    monkeypatch.setattr(extensions, "loaded", lambda: (Lab(), Spin(), mine))
    return mine


def test_a_users_extension_is_asked_before_ours(mine: Mine, tmp_path: Path) -> None:
    assert League(config(tmp_path)).budgets is BUDGETS
