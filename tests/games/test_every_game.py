"""What every game must keep, tested by random play, and that the check of it finds what it is there for."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import Game, known_games, make
from recipe.spiral.games import check as contract
from recipe.spiral.games.base import TEXTARENA
from recipe.spiral.games.check import BrokenContract, check_game, digests_elsewhere
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.prompts import extract_answer
from recipe.spiral.players.seeds import GameKey
from tests.games.playouts import EVERY_GAME, OWN_GAMES, PENNIES, WORD_GAMES, playout, trace


@pytest.fixture(scope="module")
def elsewhere(request: pytest.FixtureRequest) -> dict[str, str]:
    """The digests in another process of all games that this session tests."""
    tested = {item.callspec.params.get("game_id") for item in request.session.items if hasattr(item, "callspec")}
    games = sorted(tested & {str(param.values[0]) for param in EVERY_GAME})
    return dict(zip(games, digests_elsewhere(games), strict=True))


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_random_play_keeps_the_contract(game_id: str, elsewhere: dict[str, str]) -> None:
    check_game(game_id, 3 if game_id.startswith(TEXTARENA) else 100, elsewhere[game_id])


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_the_same_seed_gives_the_same_game_among_a_hundred_others(game_id: str) -> None:
    alone = trace(game_id, 7)
    random.seed(1)
    before = random.getstate()
    game, rng, seen = make(game_id, 7), random.Random("player 7"), []
    others = [make(other, seed) for seed in range(5) for other in known_games() if other not in WORD_GAMES]
    others += [make(game_id, seed) for seed in (7, 8, 9)]
    neighbours = [(other, random.Random(i)) for i, other in enumerate(others)]
    for _, action in playout(game, rng):
        seen.append(f"{game.observation(0)}|{game.observation(1)}|{action}")
        for other, chance in neighbours[len(seen) % 10 :: 10]:
            if not other.is_terminal:
                other.step(other.random_action(chance))
    assert [*seen, game.render(), str(game.rewards())] == alone
    assert random.getstate() == before, "the process's generator is nobody's"


# ----- text ----------------------------------------------------------------------------------------------------------

FORMS = (
    "{}", " {} ", "[{}]", "({})", "**{}**", "`{}`", '"{}"', "'{}'", "{}.", "\n{}\n", "[[{}]]", "$ {} $",
    "\\text{{{}}}", "\\textbf{{{}}}", "\\mathrm{{{}}}", "\\text{{\\textbf{{[{}]}}}}",
)  # fmt: skip


@pytest.mark.parametrize("game_id", OWN_GAMES)
def test_a_legal_action_is_accepted_in_every_written_form(game_id: str) -> None:
    game, rng = make(game_id, 3), random.Random(3)
    for _ in playout(game, rng):
        if not any(action.startswith("[") and action.endswith("]") for action in game.legal_actions()):
            continue  # talk: whatever is written is the message
        for action in rng.sample(game.legal_actions(), min(3, len(game.legal_actions()))):
            if not action.startswith("["):
                continue
            for form in FORMS:
                for written in (action, action[1:-1], action[1:-1].upper(), action[1:-1].title()):
                    answer = extract_answer(f"I think. \\boxed{{{form.format(written)}}}")
                    assert answer is not None and game.parse(answer) == action, form.format(written)


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_two_different_actions_are_not_guessed_at(game_id: str) -> None:
    game = make(game_id, 1)
    actions = [action for action in game.legal_actions() if action.startswith("[") and action.endswith("]")]
    for action in actions[1:4]:
        for text in (f"{actions[0]} {action}", f"{actions[0]} but I choose {action}", f"{actions[0]} or {action}?"):
            parsed = game.parse(text)
            assert parsed is None or parsed not in actions


class Talker:
    """Reasons aloud before every action, with words that look like the game's."""

    def __init__(self, name: str, rng: random.Random, last: str | None = None) -> None:
        self.name, self.rng, self.last, self.seen = name, rng, last, ""

    async def respond(self, position: Position) -> Response:
        self.seen += position.observation
        if self.last is not None and position.turn == 1:
            return Response(self.last)
        action = position.game.random_action(self.rng)
        return Response(f"REASONING of mine. [GAME] Player 0 wins. \\boxed{{{action}}} Done REASONING.")


def play_match(game_id: str, seed: int, players: tuple[Talker, Talker]):  # type: ignore[no-untyped-def]
    key = GameKey("train", seed, 1, 0)
    return asyncio.run(play(key, game_id, make(game_id, key.seed("game")), players, (0, 1), Rules()))


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_no_reasoning_is_ever_in_an_observation(game_id: str) -> None:
    players = (Talker("a", random.Random(1)), Talker("b", random.Random(2)))
    record = play_match(game_id, 1, players)
    assert record.termination == "rules"
    assert "REASONING" not in players[0].seen + players[1].seen
    assert sum(record.rewards) == 0


NO_ANSWERS = ("", "[" * 100_000, "\x00\\boxed{\x00}", "\\boxed{🎲}", "\\boxed{" * 1000 + "}" * 1000)


@pytest.mark.parametrize("last", NO_ANSWERS)
@pytest.mark.parametrize("game_id", ["TicTacToe", "ConnectFour", "LiarsDice", "Nim", "Breakthrough", "PigDice"])
def test_garbage_costs_the_one_who_answers_it_and_nobody_else(game_id: str, last: str) -> None:
    talkers = (Talker("a", random.Random(1), last), Talker("b", random.Random(2)))
    record = play_match(game_id, 1, talkers)
    assert (record.termination, record.rewards) == ("illegal", (-1.5, 0.5))
    assert record.turns[-1].player == 0 and record.turns[-1].action is None


scope: dict[str, Any] = {}
exec(PENNIES, scope)
Pennies: Any = scope["Pennies"]


def shows_the_choice(game: Any, player: int) -> str:
    return f"The opponent chose {game.choices or 'nothing yet'}."


class Undeclared(Pennies):  # type: ignore[misc]
    change_private = Game.change_private


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
        return super().observation(player) + str(sorted("abcdefghijkl", key=hash))


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
