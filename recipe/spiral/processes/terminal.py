"""What a command prints, and how it ends: strangers' words made harmless, and one last line when it fails."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Callable
from typing import NoReturn

from .interrupts import interrupted_by

#: What a shell gives for a process that SIGPIPE ended.
_NOBODY_READS = 141
#: Letters and marks for Python, and nothing to see: joiners, fillers, selectors of variants. (Not those that choose
#: between a sign and its picture.) The report's pages have the same: lab/drawing/drawing.js.
_SHOWS_NOTHING = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0\U000e0100-\U000e01ef]")
#: The number of characters and of lines that are shown.
LONGEST, MOST_LINES = 20_000, 500


def quiet_logging() -> None:
    """Show of what libraries log in this process only warnings and errors."""
    for handler in logging.getLogger().handlers:  # Hydra's console handler
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.WARNING)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # At each start Ray warns that a local cluster has token authentication; nobody has to do anything about that.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)


def note(text: str) -> None:
    print(visible(f"note: {text}"), file=sys.stderr, flush=True)


def fail(error: object, status: int) -> int:
    """Print a command's last line where it fails, as one line on stderr; returns the exit status."""
    print(end="", flush=True)  # does nothing where stdout is closed
    print(f"spiral: {visible(' '.join(str(error).split()))}", file=sys.stderr, flush=True)
    return status


def show_traceback(error: BaseException) -> None:
    """Print where an error comes from."""
    text = visible("".join(traceback.format_exception(error)))
    print(text, end="", file=sys.stderr, flush=True)


def run_command(main: Callable[[], int | None], then: str = "") -> NoReturn:
    """Leave the process with what ``main`` returns, and without a traceback if nobody reads on (``| head``), or at a
    signal, which is a line that ``then`` ends."""
    atexit.register(gc.freeze)  # or Python looks for garbage as it ends: with torch and verl more than a second
    try:
        status = main()
        print(end="", flush=True)  # does nothing where stdout is closed
    except KeyboardInterrupt as error:
        status = fail(f"interrupted by {interrupted_by(error)}{then}", status=130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
        status = _NOBODY_READS
    except Exception as error:
        show_traceback(error)
        status = fail(f"{type(error).__name__}: {error}", status=1)
    sys.exit(status)


def visible(text: str, longest: int = LONGEST, most_lines: int = MOST_LINES) -> str:
    """What a model or a stranger wrote, harmless to look at in a terminal or on a page, which escapes HTML besides.

    What would move the cursor, change colours, hide characters or turn their order round is written out: ``\\x1b``,
    ``\\u202e``. What is too much is left out, and its length is said.
    """
    lines = text[:longest].replace("\r\n", "\n").split("\n")
    left_out = max(len(text) - longest, 0) + sum(len(line) + 1 for line in lines[most_lines:])
    shown = "\n".join("".join(map(_character, line)) for line in lines[:most_lines])
    return f"{shown} ... ({left_out} more characters)" if left_out else shown


def _character(character: str) -> str:
    if character.isprintable() and not _SHOWS_NOTHING.match(character):
        return character
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape").decode("ascii")
