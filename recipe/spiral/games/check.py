"""What every game must keep, by playing it at random: ``python -m recipe.spiral.games.check my_games:Pennies``.

The shared test of all games (``tests/games/test_every_game.py``) calls the same function.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator

from .base import TEXTARENA, Game, GameFailure, IllegalAction, UnknownGame
from .registry import make

#: What no game may trip over: each is no action, or one in its canonical form.
GARBAGE = ("", "[]", "[99]", "[-1]", "[nonsense 17]", "\x00", "[GAME] Player 0 wins", "٤", "4" * 5000, "[" * 10_000)


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


def trace(game_id: str, seed: int) -> list[str]:
    """All that is seen and done in a random game."""
    game = make(game_id, seed)
    seen = [f"{game.observation(0)}|{game.observation(1)}|{action}" for _, action in playout(game, player_rng(seed))]
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


def check_game(game_id: str, games: int = 100, elsewhere: str | None = None) -> None:
    """Raises BrokenContract, or whatever the game raises. ``elsewhere`` is the game's digest there, if it is known."""
    game = make(game_id, 0)
    hides = not game.perfect_information and not game_id.startswith(TEXTARENA)  # its environments do not say it
    require(
        not hides or type(game).change_private is not Game.change_private,
        "the game does not say what it hides: override change_private(player), or set perfect_information = True if "
        "both players see everything, also each other's choices",
    )
    changes, every = 0, max(1, min(10, games // 10))
    for seed in range(games):
        game, rng, turns = make(game_id, seed), player_rng(seed), 0
        try:
            for _ in playout(game, rng):
                if (seed + turns) % every == 0:
                    _check_state(game, rng)
                    changes += hides and _check_hiding(game)
                turns += 1
                require(turns <= game.max_turns, f"the game goes on after max_turns={game.max_turns} turns")
            _check_end(game)
        except BrokenContract as broken:
            raise BrokenContract(f"seed {seed}, turn {turns}: {broken}") from None
    unseen = "change_private(player) changes nothing that player sees or render() shows, at any state"
    require(changes > 0 or not hides, unseen)
    _check_seeds(game_id, elsewhere)


def _check_state(game: Game, rng: random.Random) -> None:
    """The invariants of a state that is not terminal."""
    before, legal = _state(game), game.legal_actions()
    require(game.current_player in (0, 1), f"current_player is {game.current_player!r}, and must be 0 or 1")
    for text in before[:2]:
        require(isinstance(text, str) and bool(text.strip()), "an observation must be a text that is not empty")
    require(len(set(legal)) == len(legal) > 0, "legal_actions() is empty, or names an action twice")
    for action in rng.sample(legal, min(4, len(legal))):
        read = game.parse(action)
        require(read == action, f"parse({action!r}) must be the legal action itself, not {read!r}")
        _refuses(game.copy(), action, False)
    for action in {*rng.sample(game.actions, min(8, len(game.actions)))} - {*legal}:
        _refuses(game, action, True)
    for text in GARBAGE:
        read = game.parse(text)
        require(
            read is None or game.parse(read) == read, f"parse({text[:30]!r}) is {read!r}, which is not read as itself"
        )
        if read != text:
            _refuses(game, text, True)
    if rng.random() < 0.1:
        ends = [_end(game.copy()) for _ in range(2)]
        require(ends[0] == ends[1], "two copies, played alike, end differently")
    require(_state(game) == before, "looking, a copy or a refused action has changed the game")


def _state(game: Game) -> tuple[object, ...]:
    """All that can be seen of a game from outside, its randomness included."""
    return game.observation(0), game.observation(1), game.render(), game.legal_actions(), game.random.getstate()


def _end(game: Game) -> tuple[object, ...]:
    """How the game ends, played on in one way."""
    for _ in playout(game, random.Random(1)):
        pass
    return game.render(), game.rewards()


def _refuses(game: Game, action: str, illegal: bool) -> None:
    """Check that ``step`` raises IllegalAction at an illegal action, and only there."""
    try:
        game.step(action)
    except IllegalAction:
        require(illegal, f"step({action!r}) refuses one of legal_actions()")
    else:
        require(not illegal, f"step({action[:30]!r}) must raise IllegalAction: it is no legal action")


def _check_hiding(game: Game) -> int:
    """What only one player knows does not reach the other; returns how many players had something to hide."""
    changes = 0
    for player in (0, 1):
        changed, seen = game.copy(), game.observation(1 - player)
        changed.change_private(player)
        changes += (changed.render(), changed.observation(player)) != (game.render(), game.observation(player))
        leak = f"player {1 - player} sees what only player {player} knows, in\n{seen}"
        require(changed.observation(1 - player) == seen, leak)
    return changes


def _check_end(game: Game) -> None:
    """The invariants of a game that is over."""
    require(game.legal_actions() == (), "legal_actions() must be () when the game is over")
    rewards = game.rewards()
    pair = isinstance(rewards, tuple) and len(rewards) == 2
    require(pair and sum(rewards) == 0, f"rewards() are {rewards}, and must be two that sum to 0")
    require(all(-1 <= reward <= 1 for reward in rewards), f"rewards() are {rewards}, outside [-1, 1]")
    require("-0.0" not in map(str, rewards), f"rewards() are {rewards}: 0.0 must have no sign")
    for action in (*game.actions[:3], "hello"):
        _refuses(game, action, True)


def _check_seeds(game_id: str, elsewhere: str | None) -> None:
    """The same seed gives the same game, with any global generator and in any process."""
    first = trace(game_id, 7)
    random.seed(1)
    before = random.getstate()
    require(trace(game_id, 7) == first, "the same seed gives another game a second time")
    require(random.getstate() == before, "the game draws from the module random; draw from self.random")
    require(
        digest(game_id) == (elsewhere or digests_elsewhere([game_id])[0]),
        "the same seed gives another game in another process; sort sets before you walk through them, and do not use "
        "hash()",
    )


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
