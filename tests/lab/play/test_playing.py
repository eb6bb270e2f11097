"""A person at the table: slips cost nothing, the opponent follows the match's rules, and nothing hidden is shown."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.play.playing import Left, Refused, choices, response_of
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.prompts import boxed, extract_answer
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.seeds import GameKey
from tests.games.playouts import OWN_GAMES
from tests.lab.play.faces import Shown, played
from tests.made import Scripted


@pytest.mark.parametrize("entry", ["4", "[4]", " [ 4 ] ", "4.", "\\boxed{[4]}", "{4}", "I take \\boxed{4}"])
def test_an_action_is_read_with_and_without_its_brackets(entry: str) -> None:
    game = make("TicTacToe", 0)
    assert game.parse(extract_answer(response_of(game, entry)) or "") == "[4]"


def test_half_a_letter_is_replaced_and_the_game_can_be_written() -> None:
    finished = played(Shown(["\ud800 \\boxed{0}", "1", "2"]), Scripted(boxed("[3]"), boxed("[4]")))
    assert b'"? \\\\boxed{0}"' in finished.record.to_json().encode()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "Nothing was entered"),
        ("   ", "Nothing was entered"),
        ("nine", "'nine' is no action of this game. Possible: [1] [2]"),
        ("[0]", "[0] is not possible now (square [0] is not free). Possible: [1]"),
        ("\\boxed{}", "is no action of this game"),
        ("\x1b[2J", "'\\x1b[2J' is no action"),
        ("x" * 5000, "5000 characters; up to 4000"),
    ],
)
def test_what_is_no_legal_action_is_explained(entry: str, why: str) -> None:
    game = make("TicTacToe", 0)
    game.step("[0]")
    with pytest.raises(Refused) as refused:
        response_of(game, entry)
    assert why in str(refused.value)
    assert game.legal_actions() == tuple(f"[{square}]" for square in range(1, 9))


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


def test_in_an_open_game_the_opponents_words_are_shown_at_once() -> None:
    face = Shown(["0", "1", "2"])
    played(face, Scripted("The \x1b[31mmiddle\u202e. " + boxed("[4]"), boxed("[8]")))
    assert face.moves[1].action == "[4]"
    assert face.moves[1].response == "The \\x1b[31mmiddle\\u202e."
    assert face.moves[3].response == ""


def test_what_the_person_saw_of_a_hidden_game_does_not_depend_on_what_is_hidden() -> None:
    """With another card in the opponent's hand, and the same actions, the person is shown the same."""
    shown = set()
    for seed in range(40):
        face = Shown(["check"])
        key = GameKey("human", seed, 0, 0)
        if make("KuhnPoker", key.game_seed()).cards[0] == "Q":  # type: ignore[attr-defined]
            with pytest.raises(Left):
                played(face, Scripted(f"seed {seed}" + boxed("[bet]")), "KuhnPoker", key=key)
            shown.add(repr((face.observations, face.moves)))
    assert len(shown) == 1


def test_actions_are_offered_where_they_can_be_listed() -> None:
    assert choices(make("KuhnPoker", 0)) == ("[check]", "[bet]")
    assert choices(make("DontSayIt", 0)) == ()


def test_the_same_seed_is_the_same_game() -> None:
    def record() -> str:
        face = Shown(lambda position: position.game.legal_actions()[0])
        return played(face, RandomPlayer(), "LiarsDice").record.to_json()

    assert record() == record()


def test_a_truncated_answer_is_called_so() -> None:
    class Endless:
        name = "endless"

        async def respond(self, position: Position) -> Response:
            return Response("and then " * 5000, truncated=True)

    finished = played(Shown(["0"]), Endless())
    assert "longer than allowed" in finished.why
    assert len(finished.moves[-1].response) < 21_000
