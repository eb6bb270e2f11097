"""The table in a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

from ...players.player import Position
from ...processes.terminal import visible
from ..drawing.drawn import Drawn
from .playing import Finished, Left, Move, Table, choices

#: Characters and lines of a response that are printed.
_RESPONSE = (4000, 60)
_HELP = """\
Type an action, as the text above says: its brackets may be left out. What is no legal action is explained, and costs
nothing. /actions lists what is possible, /board shows the text again, /quit leaves the game unsaved."""


def prepare() -> None:
    """Let no letter that the terminal's encoding lacks end the game, and let the arrow keys work."""
    if sys.stdin is not None:  # it is where the command was started with it closed
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
        if sys.stdin.isatty():
            import readline  # noqa: F401


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Terminal:
    """Asks on stdin and prints on stdout."""

    def __init__(self, table: Table, responses: bool) -> None:
        self.table, self.responses = table, responses
        self._status = ""
        self._asked: tuple[int, str] | None = None
        role, name = table.role, table.opponent
        print(f"{table.game}: you are player {role}, {name} is player {1 - role}. /help explains, /quit leaves.")

    async def ask(self, position: Position, complaint: str) -> str:
        """Raises Left: the person has left, or there is no more input."""
        shown = position.turn, position.observation
        if complaint:
            print(complaint)
        elif self._asked != shown:
            self._print(position.observation)
        self._asked = shown
        while True:
            try:
                entry = input("your action> ").strip()
            except (EOFError, RuntimeError):  # RuntimeError: there is no stdin, or no stdout
                print()
                raise Left("the input has ended before the game") from None
            match entry.split():
                case ["/help"] | ["?"]:
                    print(_HELP)
                case ["/board"]:
                    self._print(position.observation)
                case ["/actions"]:
                    print(" ".join(choices(position.game)) or "Any text that the rules above allow.")
                case ["/quit"] | ["/exit"]:
                    raise Left("")
                case [word] if word.startswith("/"):
                    print(f"{visible(word, 40)}: unknown. {_HELP}")
                case _:
                    return entry

    def _print(self, text: str) -> None:
        """A game's text; long lines are broken between words."""
        width = shutil.get_terminal_size().columns
        lines = (textwrap.fill(line, width) if len(line) > width else line for line in visible(text).split("\n"))
        print("", *lines, "", sep="\n")

    def waits(self) -> None:
        self._show_status(f"{self.table.opponent} ...")

    def _show_status(self, text: str) -> None:
        """A line that the next one replaces, where there is a terminal."""
        if _on_terminal():
            erase = f"\r{' ' * len(self._status)}\r"
            sys.stdout.write(erase + text[: shutil.get_terminal_size().columns - 1])
            sys.stdout.flush()
            self._status = text

    def clear(self) -> None:
        """Take the line away that says who is to move."""
        if self._status:
            self._show_status("")

    def moved(self, move: Move, table: Drawn | None) -> None:
        self.clear()
        if move.name != "you":
            print(self._line(move))

    def _line(self, move: Move) -> str:
        said = move.action if move.action is not None else "no legal move" if move.wrong else "has moved"
        wrong = f" ({move.wrong})" if move.wrong else ""
        line = f"{move.name}: {said}{wrong}"
        if self.responses and move.response:
            line += "\n" + textwrap.indent(visible(move.response, *_RESPONSE), "  | ", lambda _: True)
        return line

    def over(self, finished: Finished) -> None:
        """Show the end of a game, and everything that was hidden."""
        rewards = finished.record.rewards
        mine, others = rewards[self.table.role], rewards[1 - self.table.role]
        self._print(finished.board)
        if finished.seen:
            print("\n".join(map(self._line, finished.moves)))
            print(f"\n{self.table.opponent} saw at its last turn:\n{textwrap.indent(finished.seen, '  | ')}\n")
        print(
            f"{finished.headline} {finished.why}".rstrip(),
            f"Rewards: you {mine:+g}, {self.table.opponent} {others:+g}.",
        )
