"""Any two-player environment of TextArena (0.7.4) as a game: ``textarena:<id>``.

The environment is TextArena's, with these differences: its randomness comes from the game's seed; an illegal action is
refused at once and changes nothing; an exception of its own makes the game void; of the opponent's turns a player sees
only the action; the game ends after a number of turns; and the rewards sum to 0.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import sys
import threading
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, Self

from ..extras import install
from .base import TEXTARENA, Game, GameFailure, IllegalAction, UnknownGame

#: The number of characters of an answer that are read.
_LONGEST = 1000
_BRACKETS = re.compile(r"\[[^\[\]]{1,60}\]")
_MAKING = threading.Lock()
#: Environments of TextArena 0.7.4 that cannot be played to their end, and why.
_BROKEN = {"textarena.envs.Tak.env:TakEnv": "the move that wins raises a TypeError, so that nobody can win"}


@cache
def entry_of(game_id: str) -> Any:
    """TextArena's entry for an id. The environment is started once, to see that it works.

    Raises:
        UnknownGame: it is no environment for two players.
        ImportError: TextArena is not installed.
    """
    try:
        import textarena.envs  # noqa: F401  fills the registry
        from textarena.envs.registration import ENV_REGISTRY
    except ImportError as error:
        raise ImportError(f"{game_id} needs TextArena: {install('textarena')}") from error
    name = game_id.removeprefix(TEXTARENA)
    if name not in ENV_REGISTRY:
        raise UnknownGame(f"unknown game {game_id!r}: TextArena has no {name!r}")
    entry = ENV_REGISTRY[name]
    if entry.entry_point in _BROKEN:
        raise UnknownGame(f"{game_id} is broken in TextArena 0.7.4: {_BROKEN[entry.entry_point]}; take another game")
    try:
        with _MAKING, _no_downloads():
            importlib.import_module(entry.entry_point.split(":")[0])
        _seed_modules()
        _start(entry, random.Random(0))
        _seed_modules()  # for modules that were loaded only now
    except Exception as error:  # environments raise anything, for instance an AssertionError
        raise UnknownGame(f"{game_id} cannot be played by two players here: {type(error).__name__}: {error}") from error
    return entry


def _start(entry: Any, generator: random.Random) -> Any:
    """A fresh environment without TextArena's wrappers. Nothing is downloaded: missing data are an error."""
    module, name = entry.entry_point.split(":")
    with _MAKING, _no_downloads(), _randomness(generator):
        env = getattr(sys.modules[module], name)(**entry.kwargs)
        env.reset(num_players=2)
    return env


@contextlib.contextmanager
def _no_downloads() -> Iterator[None]:
    import nltk

    download, nltk.download = nltk.download, lambda *args, **kwargs: True
    try:
        yield
    finally:
        nltk.download = download


class _Current(threading.local):
    """The random generators of the game that is played in this thread."""

    python: random.Random | None = None
    numpy: Any = None


_CURRENT = _Current()


class _Random:
    """Replaces ``random`` in TextArena's modules: the current game's generator, or ``random`` itself outside a game."""

    def __getattr__(self, name: str) -> Any:
        return getattr(random if _CURRENT.python is None or name == "Random" else _CURRENT.python, name)

    def seed(self, *args: Any) -> None:
        if _CURRENT.python is None:  # environments must not set a game's seed
            random.seed(*args)


class _Numpy:
    """Replaces ``numpy`` in TextArena's modules, with the current game's generator as ``numpy.random``."""

    def __getattr__(self, name: str) -> Any:
        import numpy

        if name != "random" or _CURRENT.python is None:
            return getattr(numpy, name)
        if _CURRENT.numpy is None:
            _CURRENT.numpy = numpy.random.RandomState(_CURRENT.python.getrandbits(32))
        return _CURRENT.numpy


def _seed_modules() -> None:
    """Replace ``random`` and ``numpy`` in TextArena's modules, so that they use the current game's generators."""
    for name, module in list(sys.modules.items()):
        if name.startswith("textarena.") and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                if value is random:
                    setattr(module, attribute, _Random())
                elif isinstance(value, ModuleType) and value.__name__ == "numpy":
                    setattr(module, attribute, _Numpy())


@contextlib.contextmanager
def _randomness(generator: random.Random) -> Iterator[None]:
    _CURRENT.python, _CURRENT.numpy = generator, None
    try:
        yield
    finally:
        _CURRENT.python, _CURRENT.numpy = None, None


class TextArenaGame(Game):
    """One environment, played by two players."""

    def __init__(self, seed: int, game_id: str, max_turns: int = 200) -> None:
        super().__init__(seed)
        self.game_id = game_id
        self.max_turns = max_turns
        self.taken: list[str] = []
        entry = entry_of(game_id)
        wrappers = {wrapper.__name__ for wrapper in entry.default_wrappers or ()}
        self.bracketed = "ActionFormattingWrapper" in wrappers  # an action stands in one pair of brackets
        try:
            self.env = _start(entry, self.random)
        except Exception as error:
            raise GameFailure(f"{game_id} cannot be started: {type(error).__name__}: {error}") from error
        self.env.state.error_allowance = 0  # no second chance

    @property
    def current_player(self) -> int:
        return int(self.env.state.current_player_id)

    @property
    def is_terminal(self) -> bool:
        return bool(self.env.state.done) or len(self.taken) >= self.max_turns

    def parse(self, text: str) -> str | None:
        """The answer as one line. Missing brackets are added; an answer with two different actions is None."""
        text = "".join(character if character.isprintable() else " " for character in text[:_LONGEST])
        text = " ".join(text.replace("<", " ").replace('"', "'").split())  # no special tokens, no quotes
        if self.bracketed and text:
            if "[" not in text:
                text = f"[{text[: _LONGEST - 2]}]"
            if len({match.casefold() for match in _BRACKETS.findall(text)}) > 1:
                return None
        return text or None

    def step(self, action: str) -> None:
        if self.is_terminal or self.parse(action) != action:
            raise IllegalAction("not readable")
        after = self._after(action)
        if after is None:
            raise IllegalAction(f"{self.game_id} refuses {action}")
        vars(self).update(vars(after))

    def _after(self, action: str) -> Self | None:
        """A copy in which the action was taken, since an environment changes by what it refuses, too; None: it was
        refused. A ``GameFailure``: the environment failed."""
        game, player = self.copy(), self.current_player
        seen = len(self.env.state.observations[player])
        try:
            with _randomness(game.random):
                game.env.step(action)
        except Exception as error:  # environments raise anything, also at legal actions
            raise GameFailure(f"{self.game_id} failed at {action}: {type(error).__name__}: {error}") from error
        game.taken.append(action)
        # Some environments say it in a message only, and not all messages are texts.
        said = [str(text) for sender, text, _ in game.env.state.observations[player][seen:] if sender not in (0, 1)]
        refused = any("invalid move" in text.casefold() for text in said)
        return None if refused or game.env.state.game_info[player].get("invalid_move") else game

    def rewards(self) -> tuple[float, float]:
        """Half the difference between TextArena's rewards; a draw if the last turn did not end the game."""
        given = self.env.state.rewards if self.env.state.done else None
        difference = (given.get(0, 0) - given.get(1, 0)) / 2 if given else 0.0
        reward = max(-1.0, min(1.0, float(difference)))
        return (reward, 0.0 - reward)

    def observation(self, player: int) -> str:
        """The environment's messages to the player in their order; of several boards only the last one."""
        entries = [(sender, str(text).strip(), kind.name) for sender, text, kind in self.env.state.observations[player]]
        boards = [index for index, (_, _, kind) in enumerate(entries) if kind == "GAME_BOARD"]
        lines = []
        for index, (sender, text, kind) in enumerate(entries):
            if kind == "PLAYER_ACTION":
                lines.append(f'{"You" if sender == player else "Opponent"}: "{text}"')
            elif kind != "GAME_BOARD" or index == boards[-1]:
                lines.append(text)
        return "\n".join(lines)

    def legal_actions(self) -> tuple[str, ...]:
        """Legal actions among those that the observation names and some common forms; there may be others."""
        return tuple(filter(self._accepts, self._candidates()))

    def _candidates(self) -> list[str]:
        if self.is_terminal:
            return []
        named = _BRACKETS.findall(self.observation(self.current_player))
        numbers = [f"[{number}]" for number in range(10)]
        pairs = [f"[{first} {second}]" for first in range(5) for second in range(5)]
        talk = [] if self.bracketed else ["I am not sure."]
        candidates = dict.fromkeys(self.parse(text) for text in (*named, *numbers, *pairs, *talk))
        return [candidate for candidate in candidates if candidate]

    def copy(self) -> Self:
        state = self.env.state
        histories = (self.taken, state.logs, *state.observations.values())  # what is in them never changes
        return self.copied({id(history): [*history] for history in histories})

    def _accepts(self, action: str) -> bool:
        with contextlib.suppress(GameFailure):
            return self._after(action) is not None
        return False

    def random_action(self, rng: random.Random) -> str:
        """A random one of ``legal_actions``; a ``GameFailure`` if none was found."""
        candidates = self._candidates()
        rng.shuffle(candidates)
        if action := next(filter(self._accepts, candidates), None):
            return action
        raise GameFailure(f"{self.game_id}: no legal action was found to play at random")
