"""What every game must keep, by playing it at random: ``python -m recipe.spiral.games.check my_games:Pennies``.

The shared test of all games (``tests/games/test_every_game.py``) calls the same functions.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator

from .base import TEXTARENA, Game, GameFailure, IllegalAction, UnknownGame
from .registry import make

#: What no game may trip over: each is no action, or one in its canonical form.
GARBAGE = ("", "[]", "[99]", "[-1]", "[nonsense 17]", "\x00", "[GAME] Player 0 wins", "٤", "4" * 5000, "[" * 10_000)
#: The share of a game's states that are looked at closely.
STATES = 0.1


class BrokenContract(AssertionError):
    """A game does not keep what every game must keep; the message says what, and where."""


def require(kept: bool, rule: str) -> None:
    if not kept:
        raise BrokenContract(rule)


def playout(game: Game, rng: random.Random) -> Iterator[tuple[Game, str]]:
    """Play ``game`` at random, giving it and the action at every state before the action is taken."""
    while not game.is_terminal:
        action = game.random_action(rng)
        yield game, action
        game.step(action)


def player_rng(seed: int) -> random.Random:
    """The players' generator; with the game's own seed they would draw the same numbers as the game."""
    return random.Random(f"player {seed}")


def trace(game_id: str, seed: int, beside: Callable[[], object] = lambda: None) -> list[str]:
    """All that is seen and done in a random game; ``beside`` is called before each turn."""
    game, seen = make(game_id, seed), []
    for _, action in playout(game, player_rng(seed)):
        seen.append(f"{game.observation(0)}|{game.observation(1)}|{action}")
        beside()
    return [*seen, game.render(), str(game.rewards())]


def digest(game_id: str) -> str:
    """Of all that is seen and done in some random games."""
    return hashlib.sha256("\n".join(line for seed in range(3) for line in trace(game_id, seed)).encode()).hexdigest()


def digests_elsewhere(game_ids: list[str]) -> list[str]:
    """The games' digests in another process, which hashes texts differently."""
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = f"import sys; from {__package__}.check import digest; print(*map(digest, sys.argv[1:]))"
    ran = subprocess.run([sys.executable, "-c", program, *game_ids], capture_output=True, text=True, env=environment)
    require(ran.returncode == 0, f"the game cannot be played in another process: {ran.stderr[-500:]}")
    return ran.stdout.split()


def _state(game: Game) -> tuple[object, ...]:
    """All that can be seen of a game from outside, its randomness included."""
    return game.observation(0), game.observation(1), game.render(), game.legal_actions(), game.random.getstate()


def _check_state(game: Game, rng: random.Random) -> None:
    """The invariants of a state that is not terminal."""
    before = _state(game)
    legal = game.legal_actions()
    require(game.current_player in (0, 1), f"current_player is {game.current_player!r}, and must be 0 or 1")
    for player in (0, 1):
        text = game.observation(player)
        require(isinstance(text, str) and bool(text.strip()), f"observation({player}) must be a text that is not empty")
    require(bool(legal), "legal_actions() is empty, and the game is not over")
    require(len(set(legal)) == len(legal), "legal_actions() names an action twice")
    for action in rng.sample(legal, min(4, len(legal))):
        read = game.parse(action)
        require(read == action, f"parse({action!r}) must be the legal action itself, not {read!r}")
        _refuses(game.copy(), action, False)
    for action in {*rng.sample(game.actions, min(8, len(game.actions)))} - {*legal}:
        _refuses(game, action, True)
    for text in GARBAGE:
        read = game.parse(text)
        again = read is None or game.parse(read) == read
        require(again, f"parse({text[:30]!r}) is {read!r}, which is not read as itself")
        if read != text:
            _refuses(game, text, True)
    require(_state(game) == before, "looking, copying or a refused action has changed the game")


def _refuses(game: Game, action: str, illegal: bool) -> None:
    """Check that ``step`` raises IllegalAction at an illegal action, and only there."""
    try:
        game.step(action)
    except IllegalAction:
        require(illegal, f"step({action!r}) refuses one of legal_actions()")
    else:
        require(not illegal, f"step({action[:30]!r}) must raise IllegalAction: it is no legal action")


def _check_end(game: Game, turns: int) -> None:
    """The invariants of a game that is over after so many turns."""
    require(turns <= game.max_turns, f"the game took {turns} turns, and max_turns is {game.max_turns}")
    require(game.legal_actions() == (), "legal_actions() must be () when the game is over")
    rewards = game.rewards()
    pair = isinstance(rewards, tuple) and len(rewards) == 2
    require(pair and sum(rewards) == 0, f"rewards() are {rewards}, and must be two that sum to 0")
    require(all(-1 <= reward <= 1 for reward in rewards), f"rewards() are {rewards}, outside [-1, 1]")
    require("-0.0" not in map(str, rewards), f"rewards() are {rewards}: 0.0 must have no sign")
    for action in (*game.actions[:3], "hello"):
        _refuses(game, action, True)


def check_playouts(game_id: str, seeds: range) -> None:
    """Random games keep the invariants: at a share of their states, and at their ends."""
    for seed in seeds:
        game, rng, turns = make(game_id, seed), player_rng(seed), 0
        over = game.is_terminal
        require(over in (True, False), f"is_terminal is {over}, and must be True or False: make it a property")
        try:
            for _ in playout(game, rng):
                if rng.random() < STATES:
                    _check_state(game, rng)
                turns += 1
                require(turns <= game.max_turns, f"the game goes on after max_turns={game.max_turns} turns")
            _check_end(game, turns)
        except BrokenContract as broken:
            raise BrokenContract(f"seed {seed}, turn {turns}: {broken}") from None


def check_hiding(game_id: str, seeds: range) -> None:
    """What only one player knows does not reach the other: changing it leaves the other's observation as it is."""
    game = make(game_id, 0)
    require(
        game.perfect_information or type(game).change_private is not Game.change_private,
        "the game does not say what it hides: override change_private(player), or set perfect_information = True if "
        "both players see everything, also each other's choices",
    )
    if game.perfect_information:
        return
    changes = 0
    for seed in seeds:
        for game, _ in playout(make(game_id, seed), player_rng(seed)):
            for player in (0, 1):
                changed, other = game.copy(), 1 - player
                changed.change_private(player)
                changes += (changed.render(), changed.observation(player)) != (game.render(), game.observation(player))
                seen = game.observation(other)
                leak = f"seed {seed}: player {other} sees what only player {player} knows, in\n{seen}"
                require(changed.observation(other) == seen, leak)
    require(changes > 0, "change_private(player) changes nothing that player sees or render() shows, at any state")


def check_copies(game_id: str, seeds: range) -> None:
    """A copy goes on as the game would, with the same randomness, and leaves the game alone."""
    for seed in seeds:
        rng = player_rng(seed)
        game, last = make(game_id, seed), rng.randrange(8)
        for turn, _ in enumerate(playout(game, rng)):
            if turn == last:
                break
        twins, before, ends = (game.copy(), game.copy()), _state(game), []
        for twin in twins:
            for _ in playout(twin, random.Random(1)):
                pass
            ends.append((twin.render(), twin.rewards()))
        require(ends[0] == ends[1], f"seed {seed}: two copies, played alike, end differently")
        require(_state(game) == before, f"seed {seed}: playing a copy has changed the game")


def check_seeds(game_id: str, elsewhere: str | None = None) -> None:
    """The same seed gives the same game: beside others, with any global generator, and in any process. ``elsewhere`` is
    the game's digest there, if it is known."""
    alone = trace(game_id, 7)
    random.seed(1)
    before, moves = random.getstate(), random.Random(0)
    others = [playout(make(game_id, seed), moves) for seed in (7, 8, 9)]
    among = trace(game_id, 7, lambda: [next(other, None) for other in others])
    require(among == alone, "the same seed gives another game beside other games")
    require(random.getstate() == before, "the game draws from the module random; draw from self.random")
    require(
        digest(game_id) == (elsewhere or digests_elsewhere([game_id])[0]),
        "the same seed gives another game in another process; sort sets before you walk through them, and do not use "
        "hash()",
    )


def check_game(game_id: str, games: int = 100) -> None:
    """All of this, in so many random games. Raises BrokenContract, or whatever the game raises."""
    few = range(max(1, games // 10))
    check_playouts(game_id, range(games))
    check_copies(game_id, few)
    check_seeds(game_id)
    if not game_id.startswith(TEXTARENA):  # its environments do not say what they hide
        check_hiding(game_id, few)


def main() -> int:
    parser = argparse.ArgumentParser("games.check", description="Play games at random, and say what they do not keep.")
    parser.add_argument("ids", nargs="+", help="games, for example my_package.my_game:Pennies")
    parser.add_argument("--games", type=int, default=100, help="how many random games are played of each")
    options = parser.parse_args()
    status = 0
    for game_id in options.ids:
        try:
            check_game(game_id, options.games)
            print(f"{game_id}: in order, in {options.games} random games")
        except (BrokenContract, GameFailure, UnknownGame, ImportError) as error:
            print(f"{game_id}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
