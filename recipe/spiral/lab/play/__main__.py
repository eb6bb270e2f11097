"""The command ``python -m recipe.spiral.play GAME [MODEL]``: its options, errors and exit statuses."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from ...games import GameFailure, known_games, resolve
from ...players.player import PlayerFailure, PlayerMisconfigured, PromptTooLong
from ...processes.terminal import fail
from ..evaluation.engines import EngineFailure
from ..models import EMBEDDED
from ..own_command import Arguments, run_program, within
from .playing import Left
from .seats_taken import FIXED, find
from .session import Session
from .table_terminal import Terminal, prepare

#: Where games are saved, unless the command says otherwise.
FOLDER = Path("outputs/spiral/played")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play; returns the exit status: 0, 1 (the game or the model failed) or 2 (refused)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    parser.refuse_idle(options, port="web")
    from ...storage.checkpoints import BrokenCheckpoint

    try:
        session = _session(options)
    except (ValueError, ImportError, OSError, BrokenCheckpoint) as error:
        return fail(error, status=2)
    if session.opponent.note:
        print(session.opponent.note)
    try:
        if options.web:
            from .web import serve

            serve(session, options.role, options.port)
        else:
            asyncio.run(_in_terminal(session, options.role))
    except Left as error:
        return fail(f"{error}; it is not saved", status=1) if str(error) else 0
    except (GameFailure, PlayerFailure) as error:
        return fail(f"the game is void: {error}", status=1)
    except (ValueError, ImportError, EngineFailure, PromptTooLong, PlayerMisconfigured) as error:
        return fail(error, status=2)
    except KeyboardInterrupt:
        print(file=sys.stderr)  # behind what was being typed
        raise
    return 0


def _session(options: argparse.Namespace) -> Session:
    game = resolve(options.game)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    options.save.mkdir(parents=True, exist_ok=True)
    opponent = find(game, options.model, options.save / "weights", options.template, options.temperature)
    return Session(game, opponent, seed, options.save, not options.hide_responses)


async def _in_terminal(session: Session, role: int) -> None:
    prepare()
    session.load()
    terminal = Terminal(session.table(role), session.responses)
    try:
        finished = await session.play(terminal, role)
    except Left as error:
        if str(error):
            await session.loaded()  # that the model cannot be used is the better reason
        raise
    finally:
        terminal.clear()
    terminal.over(finished)
    print(session.save(finished), flush=True)


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
