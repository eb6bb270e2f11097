"""Perfect play: against theory, against brute force over every position, and against every possible opponent."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, reduce
from operator import xor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.games import Game, UnknownGame, make
from recipe.spiral.games.kuhn_poker import CARDS, KuhnPoker
from recipe.spiral.games.nim import Nim
from recipe.spiral.games.tictactoe import TicTacToe
from recipe.spiral.lab.opponents.perfect import GAMES, PerfectPlayer, check_game, optimal_actions
from recipe.spiral.lab.opponents.perfect import kuhn as kuhn_poker
from recipe.spiral.lab.opponents.perfect.kuhn import strategy
from recipe.spiral.players.player import Player
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from tests.made import run_match


def games_between(first: Player, second: Player, game_id: str, games: int) -> list[GameRecord]:
    keys = [GameKey("val", 5, 0, index) for index in range(games)]
    return [run_match(make(game_id, key.game_seed()), [first, second], key=key) for key in keys]


def branches(game: Game) -> Iterator[tuple[str, Game]]:
    for action in game.legal_actions():
        branch = game.copy()
        branch.step(action)
        yield action, branch


@pytest.mark.parametrize("game", [TicTacToe(0), Nim(0), Nim(0, (1, 2, 3)), Nim(0, (2, 2)), Nim(0, (4,))])
def test_every_reachable_position_against_brute_force(game: Game) -> None:
    """Which actions keep the value, by a plain minimax on the game's own rules."""
    seen: dict[str, float] = {}

    def outcome(game: Game) -> float:
        """Player 0's, by minimax."""
        state = f"{game.current_player} {game.render()}"
        if state not in seen:
            if game.is_terminal:
                best, wanted = game.rewards()[0], set[str]()
            else:
                outcomes = {action: outcome(branch) for action, branch in branches(game)}
                best = (max if game.current_player == 0 else min)(outcomes.values())
                wanted = {action for action, worth in outcomes.items() if worth == best}
            assert {*optimal_actions(game)} == wanted
            seen[state] = best
        return seen[state]

    outcome(game)
    if isinstance(game, TicTacToe):
        assert len(seen) == 5478, "all of them"


def test_nothing_is_optimal_where_nothing_is_known() -> None:
    for game in (make("ConnectFour", 0), make("KuhnPoker", 0)):
        with pytest.raises(ValueError, match="known of TicTacToe and Nim only"):
            optimal_actions(game)


def test_perfect_tictactoe_is_a_draw_and_not_always_the_same() -> None:
    games = games_between(PerfectPlayer(), PerfectPlayer(), "TicTacToe", 60)
    assert {game.rewards for game in games} == {(0.0, 0.0)}
    assert len({tuple(turn.action for turn in game.turns) for game in games}) > 50
    assert {game.turns[0].action for game in games} == {f"[{square}]" for square in range(9)}, "every opening is a draw"


@pytest.mark.parametrize("role", [0, 1])
def test_it_never_loses_to_chance(role: int) -> None:
    players: tuple[Player, Player] = (PerfectPlayer(), RandomPlayer())
    first, second = players if role == 0 else players[::-1]
    results = Counter(game.result(role) for game in games_between(first, second, "TicTacToe", 200))
    assert results["loss"] == 0
    assert results["win"] > 140


def test_perfect_nim_wins_from_the_first_move() -> None:
    """3, 4, 5 has the nim-sum 2: player 0 wins, whoever sits opposite."""
    for other in (PerfectPlayer(), RandomPlayer()):
        assert {game.rewards for game in games_between(PerfectPlayer(), other, "Nim", 50)} == {(1.0, -1.0)}
    assert optimal_actions(Nim(0)) == ("[0 2]",), "the only move to a nim-sum of 0"


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_a_nim_move_leaves_a_lost_position(piles: list[int]) -> None:
    """One whose nim-sum is 0 (Bouton, 1901); from such a one all moves are as good."""
    game = Nim(0, piles)
    actions, lost = optimal_actions(game), reduce(xor, piles) == 0
    game.step(actions[0])
    assert lost or reduce(xor, game.piles) == 0
    if lost:
        assert actions == Nim(0, piles).legal_actions()


def test_the_key_decides_the_game() -> None:
    for game_id in GAMES:
        lines = [[game.to_json() for game in games_between(PerfectPlayer(), PerfectPlayer(), game_id, 5)] for _ in "12"]
        assert lines[0] == lines[1]


def outcomes_of_chance(before: KuhnPoker, after: KuhnPoker) -> Iterator[tuple[KuhnPoker, float]]:
    """After a move: the game itself, or where a new round begins, it with every deal."""
    if after.is_terminal or after.round == before.round:
        yield after, 1.0
        return
    yield from every_deal(after)


def every_deal(game: KuhnPoker) -> Iterator[tuple[KuhnPoker, float]]:
    for cards in itertools.permutations(CARDS, 2):
        branch = game.copy()
        branch.cards = cards
        yield branch, 1 / 6


def after(game: KuhnPoker, action: str) -> list[tuple[KuhnPoker, float]]:
    branch = game.copy()
    branch.step(action)
    return [*outcomes_of_chance(game, branch)]


def best_response(nodes: list[tuple[KuhnPoker, float]], responder: int, alpha: float) -> float:
    """What the best of all opponents gets against the strategy: it knows it, and decides by its own observations."""
    total = 0.0
    decisions: dict[str, list[tuple[KuhnPoker, float]]] = defaultdict(list)
    while nodes:
        game, weight = nodes.pop()
        if game.is_terminal:
            total += weight * game.rewards()[responder]
        elif game.current_player == responder:
            decisions[game.observation(responder)].append((game, weight))
        else:
            for action, probability in strategy(game, 1 - responder, alpha).items():
                nodes += [(next_, weight * probability * chance) for next_, chance in after(game, action)]
    for group in decisions.values():
        total += max(
            best_response(
                [(next_, weight * chance) for game, weight in group for next_, chance in after(game, action)],
                responder,
                alpha,
            )
            for action in group[0][0].legal_actions()
        )
    return total


ALPHAS = [0.0, 1 / 6, 1 / 3]


@pytest.mark.parametrize(
    ("rounds", "alpha"),
    [*((1, alpha) for alpha in ALPHAS), (2, ALPHAS[0]), pytest.param(3, ALPHAS[0], marks=pytest.mark.full)],
)
def test_no_opponent_gets_more_than_the_value_of_kuhn_poker(rounds: int, alpha: float) -> None:
    """Best responses by enumeration, over the game itself and what it shows: the exploitability is 0.

    Two rounds are fair: each starts once.
    """
    first, second = (best_response([*every_deal(KuhnPoker(0, rounds))], responder, alpha) for responder in (0, 1))
    assert first == pytest.approx({1: -1 / 36, 2: 0.0, 3: -1 / 228}[rounds], abs=1e-8)
    assert first + second == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_kuhn_poker_against_itself(alpha: float) -> None:
    """-1/18 of a chip for player 0; a reward is half of the chips."""

    def worth(game: KuhnPoker) -> float:
        if game.is_terminal:
            return game.rewards()[0]
        policy = strategy(game, game.current_player, alpha)
        return sum(probability * worth(after(game, action)[0][0]) for action, probability in policy.items())

    total = sum(chance * worth(game) for game, chance in every_deal(KuhnPoker(0)))
    assert 2 * total == pytest.approx(-1 / 18, abs=1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_openspiel_finds_no_exploit(alpha: float) -> None:
    pyspiel: Any = pytest.importorskip("pyspiel", reason="needs the extra 'dev' (open-spiel)")
    from open_spiel.python import policy as policies
    from open_spiel.python.algorithms import exploitability

    theirs = pyspiel.load_game("kuhn_poker")
    tabular = policies.TabularPolicy(theirs)
    for state in tabular.states:
        ours = KuhnPoker(0)
        deal = [int(card) for card in str(state).split()[:2]]
        ours.cards = (CARDS[deal[0]], CARDS[deal[1]])
        for move in "".join(str(state).split()[2:]):
            ours.step({"p": "[check]", "b": "[bet]"}[move])
        probabilities = strategy(ours, ours.current_player, alpha)
        passive = probabilities.get("[check]", probabilities.get("[fold]"))
        assert passive is not None
        tabular.policy_for_key(state.information_state_string())[:] = [passive, 1 - passive]
    assert exploitability.exploitability(theirs, tabular) == pytest.approx(0, abs=1e-8)


def test_the_rounds_solver_finds_an_equilibrium_of_the_literature() -> None:
    worth, stage = kuhn_poker._solve({chips: float(chips) for chips in (-2, -1, 1, 2)})
    assert worth == pytest.approx(-1 / 18)
    assert vars(stage) == pytest.approx(vars(kuhn_poker.one_round(min(stage.bet_jack, 1 / 3))))


def test_a_decision_uses_only_what_the_player_may_know() -> None:
    """The other's card changes nothing."""
    seen: dict[tuple[int, str], dict[str, float]] = {}
    for rounds in (1, 3):
        for seed in range(300):
            game = KuhnPoker(seed, rounds)
            while not game.is_terminal:
                player = game.current_player
                policy = strategy(game, player)
                assert seen.setdefault((player, game.observation(player)), policy) == policy
                assert sum(policy.values()) == pytest.approx(1)
                assert {*policy} == {*game.legal_actions()}
                game.step(game.random_action(game.random))
    assert len({seed for seed, _ in seen}) == 2


def test_draws_have_the_strategys_probabilities() -> None:
    """Over many keys: a jack in the first seat is bet a third of the time with alpha 1/3, never with alpha 0."""

    @cache
    def bets(alpha: float, card: str) -> float:
        games = games_between(PerfectPlayer(alpha), RandomPlayer(), "KuhnPoker", 700)
        first = [game.turns[0].action for game in games if f"card: {card}" in game.turns[0].observation]
        return first.count("[bet]") / len(first)

    assert bets(1 / 3, "J") == pytest.approx(1 / 3, abs=0.1)
    assert bets(1 / 3, "Q") == 0
    assert bets(1 / 3, "K") == 1
    assert bets(0, "J") == bets(0, "K") == 0


def test_it_says_what_it_does_not_play() -> None:
    for game_id in (*GAMES, "TicTacToe-v0"):  # aliases count
        check_game(game_id)
    with pytest.raises(ValueError, match="ConnectFour has no perfect player; the games that have one are KuhnPoker, "):
        check_game("ConnectFour")
    with pytest.raises(UnknownGame):
        check_game("Chess")
    with pytest.raises(ValueError, match="ConnectFour: optimal actions are known of TicTacToe and Nim only"):
        games_between(PerfectPlayer(), PerfectPlayer(), "ConnectFour", 1)
    with pytest.raises(ValueError, match=r"alpha=0.4: must be from 0 to 1/3"):
        PerfectPlayer(0.4)
    with pytest.raises(ValueError, match="player 1 is not to move"):
        strategy(KuhnPoker(0), 1)
