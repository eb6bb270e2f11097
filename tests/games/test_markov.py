"""The model remembers nothing, so what both players see must decide how a game can go on.

Two states that look alike are played on with the same actions and the same chance: they must offer the same actions, to
the same player, and end with the same rewards. A player is shown itself as "you", so a state may look alike for either
player. Small variants of the games are played, in which random games come to the same state again and again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from recipe.spiral.games import Game, make
from recipe.spiral.games.breakthrough import Breakthrough
from recipe.spiral.games.dont_say_it import DontSayIt
from recipe.spiral.games.kuhn_poker import KuhnPoker
from recipe.spiral.games.liars_dice import LiarsDice
from recipe.spiral.games.pig_dice import PigDice
from recipe.spiral.games.simple_blind_auction import SimpleBlindAuction
from recipe.spiral.games.simple_negotiation import SimpleNegotiation
from recipe.spiral.games.snake import Snake
from recipe.spiral.games.truth_and_deception import TruthAndDeception
from tests.games.playouts import needs_words, playout

Continuation = tuple[tuple[tuple[bool, tuple[str, ...]], ...], float]

#: Random games, and how often one state is compared with the first one that looked like it.
GAMES, COMPARED = 200, 4
SMALL: dict[str, Callable[[int], Game]] = {
    "TicTacToe": lambda seed: make("TicTacToe", seed),
    "KuhnPoker": KuhnPoker,
    "KuhnPoker-3": lambda seed: KuhnPoker(seed, rounds=3),
    "ConnectFour": lambda seed: make("ConnectFour", seed),
    "Nim": lambda seed: make("Nim", seed),
    "Breakthrough": lambda seed: Breakthrough(seed, size=4),
    "PigDice": lambda seed: PigDice(seed, target=12, rounds=2),
    "LiarsDice": lambda seed: LiarsDice(seed, dice=1),
    "LiarsDice with two dice": lambda seed: LiarsDice(seed % 5, dice=2),
    "Snake": lambda seed: Snake(seed % 5, size=4, apples=3, steps=6),
    "SimpleNegotiation": lambda seed: SimpleNegotiation(seed % 3, turns=4),
    "SimpleBlindAuction": lambda seed: SimpleBlindAuction(seed % 3, items=2, coins=2, talks=1),
    "TruthAndDeception": lambda seed: TruthAndDeception(seed % 3, turns=2),
    "DontSayIt": lambda seed: DontSayIt(seed % 3, turns=2),
    "WordChains": lambda seed: make("WordChains", seed % 3),
    "SpellingBee": lambda seed: make("SpellingBee", seed % 3),
}
PARAMS = [pytest.param(name, marks=needs_words if name in ("WordChains", "SpellingBee") else ()) for name in SMALL]


def open_state(game: Game) -> bool:
    """Not while a player has chosen and nobody is shown its choice."""
    return not (isinstance(game, Snake) and game.choices) and not (
        isinstance(game, SimpleBlindAuction) and len(game.bids) == 1
    )


def looks(game: Game) -> tuple[str, str]:
    """What the player to move sees, and what the other one sees."""
    mover = game.current_player
    return game.observation(mover), game.observation(1 - mover)


def continuation(game: Game, seed: int) -> Continuation:
    """Who could do what until the end, and the reward, as seen by the player to move. Chance is the seed's."""
    game, rng, mover, turns = game.copy(), random.Random(seed), game.current_player, []
    game.random.seed(seed)
    while not game.is_terminal:
        turns.append((game.current_player == mover, game.legal_actions()))
        game.step(game.random_action(rng))
    return tuple(turns), game.rewards()[mover]


def first_difference(new: Callable[[int], Game], games: int = GAMES) -> str | None:
    """The first two states that look alike and go on differently; None: there are none."""
    first: dict[tuple[str, str], Game] = {}
    compared: Counter[tuple[str, str]] = Counter()
    for seed in range(games):
        for game, _ in playout(new(seed), random.Random(f"player {seed}")):
            if not open_state(game) or compared[look := looks(game)] == COMPARED:
                continue
            if look not in first:
                first[look] = game.copy()
                continue
            compared[look] += 1
            if any(continuation(game, way) != continuation(first[look], way) for way in range(3)):
                return f"{game.render()}\nlooks like\n{first[look].render()}\n{look[0]}"
    assert compared.total() >= 10, "hardly a state came twice: nothing was compared"
    return None


@pytest.mark.parametrize("name", PARAMS)
def test_states_that_look_alike_go_on_alike(name: str) -> None:
    assert first_difference(SMALL[name]) is None


def test_a_state_that_is_not_shown_is_found() -> None:
    class Forgetful(PigDice):
        def observation(self, player: int) -> str:
            return super().observation(player).split("Rounds left")[0]

    assert first_difference(lambda seed: Forgetful(seed, target=12, rounds=2)) is not None
