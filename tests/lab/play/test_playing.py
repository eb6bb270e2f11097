"""A person at the table: slips cost nothing, the opponent follows the match's rules, and nothing hidden is shown."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.play.playing import response_of
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Position, RandomPlayer
from recipe.spiral.players.prompts import boxed, extract_answer
from tests.games.playouts import OWN_GAMES
from tests.lab.play.faces import Shown, played
from tests.made import Scripted


@pytest.mark.parametrize("entry", ["4", "[4]", " [ 4 ] ", "4.", "\\boxed{[4]}", "{4}", "I take \\boxed{4}"])
def test_an_action_is_read_with_and_without_its_brackets(entry: str) -> None:
    game = make("TicTacToe", 0)
    assert game.parse(extract_answer(response_of(game, entry)) or "") == "[4]"


def test_typing_slips_cost_nothing() -> None:
    opponent = Scripted(*map(boxed, ("[3]", "[4]")))
    face = Shown(["ten", "", "0", "0", "[3]", "1", "2"])
    finished = played(face, opponent)
    assert finished.headline == "You won."
    assert finished.record.termination == "rules"
    assert len(face.complaints) == 4
    assert [turn.action for turn in finished.record.turns] == ["[0]", "[3]", "[1]", "[4]", "[2]"]


@pytest.mark.parametrize("game_id", OWN_GAMES)
@pytest.mark.parametrize("role", [0, 1])
def test_every_game_can_be_played_to_its_end_in_both_roles(game_id: str, role: int) -> None:
    draw = random.Random(3)
    slips = ["?!"] * 3

    def enter(position: Position) -> str:
        if slips and draw.random() < 0.3 and position.game.actions:
            return slips.pop()
        return position.game.random_action(draw)

    face = Shown(enter)
    finished = played(face, RandomPlayer(), game_id, role)
    assert finished.record.termination == "rules"
    assert finished.record.trainable == (1 - role,)
    assert finished.record.players[role] == finished.record.opponent == "human"
    assert len(finished.moves) == len(face.moves) == len(finished.record.turns)
    assert differences(finished.record, replay(finished.record, Rules())) == []


def test_an_illegal_answer_of_the_opponent_follows_the_rules_and_is_said() -> None:
    finished = played(Shown(["0"]), Scripted(boxed("[0]")), rules=Rules((-1.0, 1.0)))
    assert finished.record.rewards == (1.0, -1.0)
    assert finished.headline == "You won."
    assert "scripted made no legal move: its action is against the rules" in finished.why
    usual = played(Shown(["0"]), Scripted("I give up"))
    assert usual.record.rewards == (0.5, -1.5)
    assert "has no \\boxed{}" in usual.why
    assert usual.moves[-1].response == "I give up"


def test_nothing_that_is_hidden_is_shown_before_the_end() -> None:
    """The opponent's words would give its card away."""
    opponent = Scripted("I have the card SECRET: " + boxed("[bet]"), "still the SECRET card " + boxed("[call]"))
    face = Shown(["call"])
    finished = played(face, opponent, "KuhnPoker", role=1)
    shown = repr((face.observations, face.moves))
    assert "SECRET" not in shown
    assert face.moves[0].action is None
    game = make("KuhnPoker", finished.record.key.game_seed())
    assert f"Your card: {game.cards[1]}" in face.observations[0]  # type: ignore[attr-defined]
    assert "SECRET" in finished.moves[0].response
    assert f"player 0 has {game.cards[0]}" in finished.board  # type: ignore[attr-defined]
    assert f"Your card: {game.cards[0]}" in finished.seen  # type: ignore[attr-defined]
