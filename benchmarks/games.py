"""Measures the games on one core: turns per second, fairness under random play, length of the prompts.

    python benchmarks/games.py speed            our games and TextArena's; exit status 1 if a game is too slow
    python benchmarks/games.py fairness         how often each role wins 10,000 random games
    python benchmarks/games.py tokens           tokens per observation, of our games and TextArena's

Each takes ids of games, also of TextArena's and of your own (my_package.my_game:Pennies); without ids it is our games.
A turn is an observation, a random action, the parsing of the answer and the step; there is no model. This program
prints the tables of docs/games.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from recipe.spiral.games import Game, GameFailure, UnknownGame, known_games, make
from recipe.spiral.games.check import player_rng
from recipe.spiral.players.prompts import extract_answer
from recipe.spiral.processes.arguments import Arguments, own_game, within

#: Turns per second that a game must reach.
TARGETS = {"TicTacToe": 20_000, "KuhnPoker": 20_000, "KuhnPoker-3": 20_000, "KuhnPoker-5": 20_000}
OTHERS = 5_000


# ----- TextArena's own games, played with legal actions at random -----------------------------------------------------


def breakthrough_moves(state: dict[str, Any], env: Any) -> list[str]:
    player, size = env.state.current_player_id, env.board_size
    step = 1 if player == 0 else -1
    return [
        f"[{'abcdefgh'[column]}{row + 1}{'abcdefgh'[target]}{row + step + 1}]"
        for row in range(size)
        for column in range(size)
        for target in (column - 1, column, column + 1)
        if 0 <= target < size and 0 <= row + step < size and env._is_valid_move(player, row, column, row + step, target)
    ]


def liars_dice_moves(state: dict[str, Any], env: Any) -> list[str]:
    quantity, face = state["current_bid"].values()
    return [f"[Bid: {quantity + 1}, {max(face, 1)}]", *(["[Call]"] if quantity else [])]


def auction_moves(state: dict[str, Any], env: Any) -> list[str]:
    return ["I want item 0."] if state["phase"] == "conversation" else ["[Bid on Item 0: 150] [Bid on Item 3: 200]"]


def negotiation_moves(state: dict[str, Any], env: Any) -> list[str]:
    return ["What do you need?", "[Deny]", "[Offer: 1 Wheat -> 1 Wood]", "[Offer: 2 Sheep -> 1 Ore]"]


def guess_or_talk(state: dict[str, Any], env: Any) -> list[str]:
    return ["[Fact 1]", "[Fact 2]"] if env.state.turn >= env.state.max_turns - 1 else ["Fact 1 is true."]


Moves = Callable[[dict[str, Any], Any], list[str]]
#: Our id -> TextArena's id and what can be played there. Its games with words need a download.
TEXTARENA: dict[str, tuple[str, Moves]] = {
    "TicTacToe": ("TicTacToe-v0", lambda s, e: [f"[{i}]" for i in range(9) if not s["board"][i // 3][i % 3].strip()]),
    "KuhnPoker-3": ("KuhnPoker-v0", lambda s, e: [f"[{action}]" for action in s["current_legal_action_tree"]]),
    "KuhnPoker-5": ("KuhnPoker-v0-short", lambda s, e: [f"[{action}]" for action in s["current_legal_action_tree"]]),
    "ConnectFour": ("ConnectFour-v0", lambda s, e: [f"[col {i}]" for i in range(7) if s["board"][0][i] == "."]),
    "Nim": ("Nim-v0", lambda s, e: [f"[{i} {n + 1}]" for i, size in enumerate(s["piles"]) for n in range(size)]),
    "Breakthrough": ("Breakthrough-v0", breakthrough_moves),
    "PigDice": ("PigDice-v0-50", lambda s, e: ["[roll]", "[hold]"]),
    "PigDice-100": ("PigDice-v0-100", lambda s, e: ["[roll]", "[hold]"]),
    "LiarsDice": ("LiarsDice-v0", liars_dice_moves),
    "LiarsDice-3": ("LiarsDice-v0-small", liars_dice_moves),
    "Snake": ("Snake-v0", lambda s, e: ["[up]", "[down]", "[left]", "[right]"]),
    "Snake-10": ("Snake-v0-standard", lambda s, e: ["[up]", "[down]", "[left]", "[right]"]),
    "SimpleNegotiation-5": ("SimpleNegotiation-v0", negotiation_moves),
    "SimpleBlindAuction": ("SimpleBlindAuction-v0", auction_moves),
    "TruthAndDeception": ("TruthAndDeception-v0", guess_or_talk),
}


def their_turns(name: str, moves: Moves, rng: random.Random) -> Iterator[str]:
    """Play one game of TextArena as its users do, and yield the observation of every turn."""
    import textarena

    env = textarena.make(name)
    env.reset(num_players=2, seed=rng.getrandbits(30))
    done = False
    while not done:
        _, observation = env.get_observation()
        yield observation
        if not (choices := moves(env.state.game_state, env)):
            return  # TextArena's Breakthrough can leave a player without a move
        done, _ = env.step(rng.choice(choices))


def our_turns(game: Game, rng: random.Random) -> Iterator[str]:
    """Play one of our games, and yield the observation of every turn."""
    while not game.is_terminal:
        yield game.observation(game.current_player)
        answer = extract_answer(f"I think about it. \\boxed{{{game.random_action(rng)}}}")
        action = game.parse(answer or "")
        assert action is not None
        game.step(action)


# ----- the three tables -----------------------------------------------------------------------------------------------


def per_second(game: Callable[[int], Iterator[str]], seconds: float = 1.0) -> float:
    turns, games = sum(1 for _ in game(0)) * 0, 0  # the first game imports modules, and does not count
    begin = time.process_time()  # processor time of this process: other processes do not count
    while (spent := time.process_time() - begin) < seconds:
        turns += sum(1 for _ in game(games))
        games += 1
    return turns / spent


def theirs(game_id: str) -> Callable[[int], Iterator[str]] | None:
    if game_id not in TEXTARENA:
        return None
    name, moves = TEXTARENA[game_id]
    return lambda seed: their_turns(name, moves, player_rng(seed))


def ours(game_id: str) -> Callable[[int], Iterator[str]]:
    return lambda seed: our_turns(make(game_id, seed), player_rng(seed))


def speed(ids: Sequence[str]) -> int:
    print("| game | turns/s | TextArena's |\n| --- | --- | --- |")
    slow = []
    for game_id in ids:
        rate, other = per_second(ours(game_id)), theirs(game_id)
        print(f"| {game_id} | {rate:,.0f} | {f'{per_second(other):,.0f}' if other else '-'} |", flush=True)
        if rate < TARGETS.get(game_id, OTHERS):
            slow.append(game_id)
    if slow:
        print(f"below their targets: {', '.join(slow)}")
    return bool(slow)


def fairness(ids: Sequence[str], games: int) -> int:
    print(f"| game ({games:,} random games) | player 0 wins | player 1 wins | draws | turns |")
    print("| --- | --- | --- | --- | --- |")
    for game_id in ids:
        results, turns = [0, 0, 0], 0
        for seed in range(games):
            game, rng = make(game_id, seed), player_rng(seed)
            while not game.is_terminal:
                game.step(game.random_action(rng))
                turns += 1
            mine, other = game.rewards()
            results[2 if mine == other else int(mine < other)] += 1
        shares = " | ".join(f"{result / games:.1%}" for result in results)
        print(f"| {game_id} | {shares} | {turns / games:.1f} |", flush=True)
    return 0


def tokens(ids: Sequence[str], games: int = 30) -> int:
    from importlib.resources import files

    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tokenizer = Tekkenizer.from_file(str(files("mistral_common") / "data" / "tekken_240911.json"))

    def lengths(texts: Iterable[str]) -> list[int]:
        return [len(tokenizer.encode(text, bos=False, eos=False)) for text in texts]

    def count(game: Callable[[int], Iterator[str]]) -> str:
        of_random = [length for seed in range(games) for length in lengths(game(seed))]
        return f"{fmean(of_random):.0f} | {max(of_random)}"

    print("| game | mean | longest | TextArena's mean | longest |\n| --- | --- | --- | --- | --- |")
    for game_id in ids:
        other = theirs(game_id)
        print(f"| {game_id} | {count(ours(game_id))} | {count(other) if other else '- | -'} |", flush=True)
    return 0


def main() -> int:
    parser = Arguments(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["speed", "fairness", "tokens"])
    parser.add_argument("ids", type=own_game, nargs="*", help="games; none: ours")
    parser.add_argument("--games", type=within(int, 1), default=10_000, help="number of games for the fairness table")
    arguments = parser.parse_args()
    ids = arguments.ids or known_games()
    tables = {"speed": speed, "fairness": lambda ids: fairness(ids, arguments.games), "tokens": tokens}
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return tables[arguments.table](ids)
    except (GameFailure, UnknownGame, ImportError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
