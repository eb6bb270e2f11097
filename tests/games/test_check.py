"""The check of the contract finds what it is there for: each game here breaks it in one way."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import Game
from recipe.spiral.games import check as contract
from recipe.spiral.games.check import BrokenContract, check_game
from tests.games.own import PENNIES

scope: dict[str, Any] = {}
exec(PENNIES, scope)
Pennies: Any = scope["Pennies"]


def shows_the_choice(game: Any, player: int) -> str:
    return f"The opponent chose {game.choices or 'nothing yet'}."


class Undeclared(Pennies):  # type: ignore[misc]
    change_private = Game.change_private


class ShownAndUndeclared(Undeclared):
    observation = shows_the_choice


class Shown(Pennies):  # type: ignore[misc]
    observation = shows_the_choice


class NothingChanged(Pennies):  # type: ignore[misc]
    def change_private(self, player: int) -> None:
        pass


class BothWin(Pennies):  # type: ignore[misc]
    def rewards(self) -> tuple[float, float]:
        return (1.0, 1.0)


class TooMuch(Pennies):  # type: ignore[misc]
    def rewards(self) -> tuple[float, float]:
        return (2.0, -2.0)


class TooLong(Pennies):  # type: ignore[misc]
    max_turns = 1


class Deaf(Pennies):  # type: ignore[misc]
    def parse(self, text: str) -> None:
        return None


class Lax(Pennies):  # type: ignore[misc]
    def step(self, action: str) -> None:
        self.choices.append(action)


class ChangedByLooking(Pennies):  # type: ignore[misc]
    looks = 0

    def observation(self, player: int) -> str:
        self.looks += 1
        return f"{super().observation(player)} {self.looks}"


class NoCopy(Pennies):  # type: ignore[misc]
    def copy(self) -> Any:
        return self


class DrawsElsewhere(Pennies):  # type: ignore[misc]
    def step(self, action: str) -> None:
        super().step(action)
        random.random()


BROKEN = {
    Undeclared: "the game does not say what it hides",
    ShownAndUndeclared: "the game does not say what it hides",
    Shown: "player 1 sees what only player 0 knows",
    NothingChanged: "changes nothing",
    BothWin: "two that sum to 0",
    TooMuch: r"outside \[-1, 1\]",
    TooLong: "goes on after max_turns=1",
    Deaf: "must be the legal action itself",
    Lax: "must raise IllegalAction",
    ChangedByLooking: "has changed the game",
    NoCopy: "refuses one of legal_actions|has changed the game",
    DrawsElsewhere: "draws from the module random",
}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process is asked, where the classes of this file are not known."""
    monkeypatch.setattr(contract, "digests_elsewhere", lambda game_ids: [contract.digest(game_ids[0])])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_named(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "make", lambda game_id, seed: kind(seed))
    with pytest.raises(BrokenContract, match=BROKEN[kind]):
        check_game("Pennies", games=50)


OTHERS = """

class Hashed(Pennies):
    def observation(self, player: int) -> str:
        return super().observation(player) + str(sorted(("a", "b", "c", "d"), key=hash))


class Undeclared(Pennies):
    change_private = Game.change_private
"""


def test_the_command_says_what_is_in_order_and_what_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(PENNIES + OTHERS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    ids = ["mine:Pennies", "mine:Hashed", "mine:Undeclared", "Nope"]
    command = [sys.executable, "-m", "recipe.spiral.games.check", *ids, "--games", "5"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stdout == "mine:Pennies: in order, in 5 random games\n"
    hashed, undeclared, unknown = ran.stderr.splitlines()
    assert hashed.startswith("mine:Hashed: the same seed gives another game in another process")
    assert undeclared.startswith("mine:Undeclared: the game does not say what it hides")
    assert unknown.startswith("Nope: unknown game")
