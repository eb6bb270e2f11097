"""The command ``python -m recipe.spiral.play GAME [MODEL]``: its options and exit statuses, and the table in a
terminal."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ...games import GameFailure, known_games, resolve
from ...players.player import PlayerFailure, Position
from ...processes.terminal import fail, visible
from ..drawing import Drawn
from ..models import EMBEDDED
from ..own_command import Arguments, run_program, within
from .playing import Finished, Move, Sitting
from .table_opponent import FIXED, find

#: Where games are saved, unless the command says otherwise.
FOLDER = Path("outputs/spiral/played")
#: Characters and lines of a response that are printed.
_RESPONSE = (4000, 60)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play; returns the exit status: 0, 1 (the game or the model failed) or 2 (refused)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    parser.refuse_idle(options, port="web")
    try:
        sitting = _sitting(options)
        if options.web:
            from .web import serve

            serve(sitting, options.port)
        else:
            _in_terminal(sitting)
    except EOFError:
        return fail("the input has ended before the game; it is not saved", status=1)
    except (GameFailure, PlayerFailure) as error:
        return fail(f"the game is void: {error}", status=1)
    except (ValueError, ImportError, OSError) as error:
        return fail(error, status=2)
    return 0


def _sitting(options: argparse.Namespace) -> Sitting:
    game = resolve(options.game)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    options.save.mkdir(parents=True, exist_ok=True)
    opponent, rules = find(game, options.model, options.save / "weights", options.template, options.temperature)
    return Sitting(game, opponent, rules, seed, options.save, options.role, not options.hide_responses)


def _in_terminal(sitting: Sitting) -> None:
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]  # no letter ends the game
    if sys.stdin.isatty():
        import readline  # noqa: F401  (the arrow keys)
    name, role = sitting.opponent.name, sitting.role
    print(f"{sitting.game}: you are player {role}, {name} is player {1 - role}.")
    print("Brackets may be left out. An empty line shows the game again, /quit leaves it unsaved.")
    terminal = Terminal(name)
    terminal.over(asyncio.run(sitting.play(terminal)))


class Terminal:
    """Asks on stdin and prints on stdout; a ``Face``."""

    def __init__(self, opponent: str) -> None:
        self.opponent = opponent

    async def ask(self, position: Position, complaint: str) -> str:
        """Raises EOFError: there is no more input; SystemExit: the person leaves."""
        print_broken(complaint or position.observation)
        while not (entry := input("your action> ").strip()):
            print_broken(position.observation)
        if entry == "/quit":
            sys.exit()
        return entry

    def moved(self, move: Move, table: Drawn | None) -> None:
        if move.name != "you":
            self._print(move)

    def _print(self, move: Move) -> None:
        print(f"{move.name}: {move.said}")
        if move.response:
            print(textwrap.indent(visible(move.response, *_RESPONSE), "  | ", lambda _: True))

    def over(self, finished: Finished) -> None:
        """Show the end of a game, and everything that was hidden."""
        print_broken(finished.board)
        for move in finished.revealed:
            self._print(move)
        mine, others = finished.rewards
        print(f"{finished.headline} {finished.why}".rstrip(), f"Rewards: you {mine:+g}, {self.opponent} {others:+g}.")
        print(finished.saved, flush=True)


def print_broken(text: str) -> None:
    """Print a game's text; long lines are broken between words."""
    width = shutil.get_terminal_size().columns
    lines = (textwrap.fill(line, width) if len(line) > width else line for line in visible(text).split("\n"))
    print("", *lines, "", sep="\n")


def _parser() -> Arguments:
    parser = Arguments(
        prog="python -m recipe.spiral.play",
        description="Play a game against a model, in the terminal or in a browser. What you type wrongly is explained "
        "and asked again. The finished game is saved as a record, and python -m recipe.spiral.report replays it.",
        epilog=f"games: {', '.join(known_games())}; textarena:<id>; module:Class of your own",
    )
    parser.add_argument("game", metavar="GAME", help="a game's id")
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help=f"{', '.join((*EMBEDDED, *FIXED))}; the folder of a model, a LoRA adapter or a checkpoint; RUN_DIR for a "
        "run's latest checkpoint, RUN_DIR@STEP for another; a hub's id. Without it: tiny in its games, else random",
    )
    parser.add_argument("--role", type=int, choices=(0, 1), default=0, help="which player you are; otherwise 0")
    parser.add_argument("--seed", type=int, help="decides cards, dice and what the opponent draws; otherwise a new one")
    parser.add_argument(
        "--hide-responses",
        action="store_true",
        help="do not show what the model writes beside its action. In games that hide something it is shown at the end",
    )
    parser.add_argument("--web", action="store_true", help="play in a browser, at the address that is printed")
    parser.add_argument("--port", type=within(int, 0, 65_535), default=0, help="--web: the port; otherwise a free one")
    parser.add_argument(
        "--save", type=Path, default=FOLDER, metavar="FOLDER", help=f"for the games; otherwise {FOLDER}"
    )
    parser.add_argument("--template", help="of the model's prompts; otherwise its run's or config group's, or chat")
    parser.add_argument(
        "--temperature",
        type=within(float, 0, 10),
        help="of the model's sampling; otherwise its run's, or 1; 0: no randomness",
    )
    return parser


if __name__ == "__main__":
    run_program(main, "; a game that is not over is not saved")
