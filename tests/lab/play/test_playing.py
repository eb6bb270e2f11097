"""A person at the table: slips cost nothing, the opponent follows the match's rules, and nothing hidden is shown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.play.playing import Finished, Move, Sitting, response_of
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Player, Position, RandomPlayer
from recipe.spiral.players.prompts import boxed, extract_answer
from recipe.spiral.players.records import GameRecord
from tests.games.playouts import OWN_GAMES
from tests.made import Scripted


class Face:
    """Enters what a function of the position says, and keeps everything that it was shown."""

    def __init__(self, enter: Callable[[Position], str]) -> None:
        self.enter = enter
        self.observations: list[str] = []
        self.complaints: list[str] = []
        self.moves: list[Move] = []

    async def ask(self, position: Position, complaint: str) -> str:
        self.observations.append(position.observation)
        self.complaints += [complaint] if complaint else []
        return self.enter(position)

    def moved(self, move: Move, table: object) -> None:
        self.moves.append(move)


def entering(*entries: str) -> Face:
    given = iter(entries)
    return Face(lambda position: next(given))


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., tuple[Finished, GameRecord]]:
    """Plays a game; what the face is told of its end, and its record."""

    def run(
        face: Face, opponent: Player, game: str = "TicTacToe", role: int = 0, rules: Rules | None = None
    ) -> tuple[Finished, GameRecord]:
        sitting = Sitting(game, opponent, rules or Rules(), 5, tmp_path, role)
        finished = asyncio.run(sitting.play(face))
        [record] = RecordFolder(tmp_path / "games").read("human")
        return finished, record

    return run


Played = Callable[..., tuple[Finished, GameRecord]]


@pytest.mark.parametrize("entry", ["4", "[4]", " [ 4 ] ", "4.", "\\boxed{[4]}", "{4}", "I take \\boxed{4}"])
def test_an_action_is_read_with_and_without_its_brackets(entry: str) -> None:
    game = make("TicTacToe", 0)
    assert game.parse(extract_answer(response_of(game, entry)) or "") == "[4]"


def test_typing_slips_cost_nothing(played: Played) -> None:
    face = entering("ten", "", "0", "0", "[3]", "\ud800", "1", "2")
    finished, record = played(face, Scripted(boxed("[3]"), boxed("[4]")))
    assert finished.headline == "You won." and record.termination == "rules"
    assert len(face.complaints) == 5 and "Possible: [" in face.complaints[0]
    assert [turn.action for turn in record.turns] == ["[0]", "[3]", "[1]", "[4]", "[2]"]


@pytest.mark.parametrize("game_id", OWN_GAMES)
@pytest.mark.parametrize("role", [0, 1])
def test_every_game_can_be_played_to_its_end_in_both_roles(game_id: str, role: int, played: Played) -> None:
    draw = random.Random(3)
    slips = ["?!"] * 3

    def enter(position: Position) -> str:
        if slips and draw.random() < 0.3 and position.game.actions:
            return slips.pop()
        return position.game.random_action(draw)

    face = Face(enter)
    finished, record = played(face, RandomPlayer(), game_id, role)
    assert record.termination == "rules"
    assert record.trainable == (1 - role,)
    assert record.players[role] == record.opponent == "human"
    hides = not make(game_id, 0).perfect_information
    assert len(finished.revealed) == hides * len(record.turns) and len(face.moves) == len(record.turns)
    assert differences(record, replay(record, Rules())) == []


@pytest.mark.parametrize(
    ("response", "rules", "rewards", "why"),
    [
        (boxed("[0]"), Rules((-1.0, 1.0)), (1.0, -1.0), "[0] (its action is against the rules)"),
        ("I give up", Rules(), (0.5, -1.5), "no legal move (its response has no \\boxed{} with an answer)"),
    ],
)
def test_an_illegal_answer_of_the_opponent_follows_the_rules_and_is_said(
    response: str, rules: Rules, rewards: tuple[float, float], why: str, played: Played
) -> None:
    face = entering("0")
    finished, record = played(face, Scripted(response), rules=rules)
    assert record.rewards == finished.rewards == rewards
    assert finished.headline == "You won." and "scripted made no legal move" in finished.why
    assert (face.moves[-1].said, face.moves[-1].response) == (why, response)


def test_nothing_that_is_hidden_is_shown_before_the_end(played: Played) -> None:
    """The opponent's words would give its card away."""
    opponent = Scripted("I have the card SECRET: " + boxed("[bet]"), "still the SECRET card " + boxed("[call]"))
    face = entering("call")
    finished, record = played(face, opponent, "KuhnPoker", role=1)
    assert "SECRET" not in repr((face.observations, face.moves))
    assert face.moves[0].said == "has moved"
    game = make("KuhnPoker", record.key.game_seed())
    assert f"Your card: {game.cards[1]}" in face.observations[0]  # type: ignore[attr-defined]
    assert "SECRET" in finished.revealed[0].response
    assert f"player 0 has {game.cards[0]}" in finished.board  # type: ignore[attr-defined]
