"""What every registered game must keep, tested by random playouts: the contract of ``Game``."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from recipe.spiral.games import known_games, make
from recipe.spiral.games.check import check_copies, check_hiding, check_playouts, check_seeds, digests_elsewhere
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.prompts import extract_answer
from recipe.spiral.players.seeds import GameKey
from tests.games.playouts import EVERY_GAME, OWN_GAMES, WORD_GAMES, playout, trace


@pytest.mark.parametrize("game_id", OWN_GAMES)
def test_random_playouts_keep_the_contract(game_id: str) -> None:
    check_playouts(game_id, range(100))


@pytest.mark.parametrize("game_id", [param for param in EVERY_GAME if param not in OWN_GAMES])
def test_random_playouts_of_textarena_keep_the_contract(game_id: str) -> None:
    check_playouts(game_id, range(3))


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_a_copy_replays_identically(game_id: str) -> None:
    check_copies(game_id, range(3))


@pytest.fixture(scope="module")
def elsewhere(request: pytest.FixtureRequest) -> dict[str, str]:
    """The digests in another process of all games that this session tests."""
    tested = {item.callspec.params.get("game_id") for item in request.session.items if hasattr(item, "callspec")}
    games = sorted(tested & {str(param.values[0]) for param in EVERY_GAME})
    return dict(zip(games, digests_elsewhere(games), strict=True))


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_the_same_seed_gives_the_same_game_in_any_process(game_id: str, elsewhere: dict[str, str]) -> None:
    check_seeds(game_id, elsewhere[game_id])


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


@pytest.mark.parametrize("game_id", OWN_GAMES)
def test_what_people_see_of_a_game_is_in_words(game_id: str) -> None:
    """And no list, tuple or None of Python's."""
    game = make(game_id, 3)
    shown = [game.render()]
    for _ in playout(game, random.Random(3)):
        shown.append(game.render())
    assert not re.search(r"\b(None|True|False)\b|[\[({][\[({'\"]|\[\d+, |\[\]|\(\d+, ", "\n".join(shown))


@pytest.mark.parametrize("game_id", OWN_GAMES)
def test_what_one_player_knows_does_not_reach_the_other(game_id: str) -> None:
    check_hiding(game_id, range(10))


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
