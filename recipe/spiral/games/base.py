"""What a game is: randomness from its own seed, text for its players, actions, rewards.

A game knows nothing of models, prompts or reasoning. It says who is to move and what that player sees, and takes an
action. In simultaneous games the players choose one after the other, and neither sees the other's choice. If a player
moves twice in a row, it is ``current_player`` twice.
"""

from __future__ import annotations

import copy
import random
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

#: Characters that are read as white space in an action: brackets, quotes, emphasis, commas, colons.
_IGNORED = str.maketrans({character: " " for character in "[](){}<>\"'`*,:;\u201c\u201d\u2018\u2019"})
#: The prefix of the ids of TextArena's environments.
TEXTARENA = "textarena:"
#: The largest number of characters of an action, without the white space around it.
LONGEST_ACTION = 200


class UnknownGame(ValueError):
    """There is no game with this id; the message names all games."""


class IllegalAction(ValueError):
    """The action is readable, but the rules do not allow it at present."""


class GameFailure(Exception):
    """The game itself failed, at an action that it did not refuse: it is void, and a loss for nobody."""


class Game(ABC):
    """A two-player zero-sum game, played by players 0 and 1.

    Contract (``python -m recipe.spiral.games.check <id>`` puts a game through it):

    - the same seed gives the same game, whatever else runs in the process: all randomness comes from ``self.random``;
    - ``observation(player)`` shows everything that the player may know, and nothing that only the other may know;
    - ``step`` accepts the actions of ``legal_actions()``; all else raises ``IllegalAction`` and changes nothing;
    - the game is over after at most ``max_turns`` actions, and then ``rewards()`` sum to 0 and lie in [-1, 1].
    """

    #: The largest number of turns of both players together.
    max_turns: int
    #: Every action of the game in canonical form; () if actions are free text.
    actions: tuple[str, ...] = ()
    #: Whether nothing is hidden from either player; a game that hides something overrides ``change_private``.
    perfect_information: bool = False

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)

    @property
    @abstractmethod
    def current_player(self) -> int:
        """The player who is to move: 0 or 1. Undefined once the game is over."""

    @property
    @abstractmethod
    def is_terminal(self) -> bool:
        """Whether the game is over."""

    @abstractmethod
    def observation(self, player: int) -> str:
        """What ``player`` sees: the rules, its private information, the history, legal actions, the answer's form."""

    @abstractmethod
    def legal_actions(self) -> tuple[str, ...]:
        """The current player's legal actions in canonical form; if actions are free text, some examples."""

    @abstractmethod
    def step(self, action: str) -> None:
        """Play ``action`` (canonical, see ``parse``) for the current player.

        Raises:
            IllegalAction: the rules do not allow it; the game is unchanged.
        """

    @abstractmethod
    def rewards(self) -> tuple[float, float]:
        """The outcomes of players 0 and 1 after the game is over. They sum to 0 and lie in [-1, 1]."""

    def change_private(self, player: int) -> None:
        """Change what only ``player`` knows at present, such as its cards or a choice that is still secret, if there is
        anything. The check of the contract does so on copies, and the other player's observation must stay as it is."""
        raise NotImplementedError

    def render(self) -> str:
        """The whole game for people, with what is hidden from the players."""
        return "\n\n".join(f"Player {player} sees:\n{self.observation(player)}" for player in (0, 1))

    def parse(self, text: str) -> str | None:
        """The canonical action that ``text`` names; None if it names none or several.

        Texts are compared after ``normalise``. Games with free text override this method.
        """
        return _table(type(self), self.actions).get(normalise(text))

    @staticmethod
    def spellings(action: str) -> Sequence[str]:
        """Other ways to write an action that ``parse`` accepts, too ("column 3" for "[3]")."""
        return ()

    def random_action(self, rng: random.Random) -> str:
        """A legal action, drawn uniformly with the caller's random generator (never the game's own).

        It is a ``GameFailure`` if the game knows of none (``textarena_game``).
        """
        return rng.choice(self.legal_actions())

    def copy(self) -> Self:
        """An independent game in the same state, with the same future randomness."""
        return self.copied({})

    def copied(self, parts: dict[int, Any]) -> Self:
        """A deep copy, which takes ``parts`` as copies of what has these ``id``s."""
        generator = random.Random(0)  # a deep copy of a generator would take twenty times as long
        generator.setstate(self.random.getstate())
        return copy.deepcopy(self, {id(self.random): generator} | parts)


@cache
def _table(game: type[Game], actions: tuple[str, ...]) -> dict[str, str]:
    """Normalised text -> action, without texts that fit several actions."""
    table: dict[str, str] = {}
    shared = set()
    for action in actions:
        for text in {normalise(spelling) for spelling in (action, *game.spellings(action))}:
            if text in table:
                shared.add(text)
            table[text] = action
    return {text: action for text, action in table.items() if text not in shared}


def normalise(text: str) -> str:
    """An action's text without differences of form; "" if it is too long to be an action.

    Case, white space, brackets, quotes, commas, colons and final punctuation do not matter. Characters are replaced by
    their plain forms (NFKC), so full-width digits are read, but not other alphabets' digits or letters that look alike.
    Signs and decimal points stay: "-1" is not "1".
    """
    text = text.strip()
    if len(text) > LONGEST_ACTION:  # before NFKC, which is not linear in the number of combining marks
        return ""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.translate(_IGNORED).casefold().split()).rstrip(".! ")


def win(player: int | None) -> tuple[float, float]:
    """The rewards if ``player`` has won; None: a draw."""
    return (0.0, 0.0) if player is None else (1.0, -1.0) if player == 0 else (-1.0, 1.0)


def compare(mine: int, other: int) -> tuple[float, float]:
    """The rewards if player 0 has ``mine`` points and player 1 has ``other`` points; more points win."""
    return win(None if mine == other else int(mine < other))
