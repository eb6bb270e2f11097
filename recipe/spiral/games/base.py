"""What a game is: chance from its own seed, text for its players, actions, rewards.

A game knows nothing of models, prompts or reasoning: it is asked who is to move, shown what that player may see, and
given an action. Simultaneous games ask one player after the other and show neither what the other chose; a player who
moves twice is simply ``current_player`` twice.
"""

from __future__ import annotations

import copy
import random
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Self

#: Read as white space wherever it stands in an action: brackets, quotes, emphasis, commas, colons.
_IGNORED = str.maketrans({character: " " for character in "[](){}<>\"'`*,:;\u201c\u201d\u2018\u2019"})
#: Before the id of an environment of TextArena's.
TEXTARENA = "textarena:"
#: No action is longer than this many characters once the white space round it is gone.
LONGEST_ACTION = 200


class UnknownGame(ValueError):
    """There is no game of that id; the message names those that there are."""


class IllegalAction(ValueError):
    """The action is readable, but the rules do not allow it now."""


class Game(ABC):
    """A two-player zero-sum game, played by players 0 and 1.

    Contract (``tests/games`` puts every registered game through it):

    - the same seed gives the same game, whatever else runs in the process: all chance comes from ``self.random``;
    - ``observation(player)`` is complete for that player and shows nothing that only the other may know;
    - an action of ``legal_actions()`` is accepted by ``step``; all else raises ``IllegalAction`` and changes nothing;
    - the game is over after at most ``max_turns`` actions, and then ``rewards()`` sum to 0 within [-1, 1].
    """

    #: No game lasts longer than this many turns of both players together.
    max_turns: int
    #: Every action that the game knows, in canonical form; () where actions are free text.
    actions: tuple[str, ...] = ()

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
        """What ``player`` sees now: rules, own private information, history, what is legal, the answer's form."""

    @abstractmethod
    def legal_actions(self) -> tuple[str, ...]:
        """The current player's legal actions in canonical form; where actions are free text, some examples."""

    @abstractmethod
    def step(self, action: str) -> None:
        """Play ``action`` (canonical, see ``parse``) for the current player.

        Raises:
            IllegalAction: the rules do not allow it; the game is as it was before.
        """

    @abstractmethod
    def rewards(self) -> tuple[float, float]:
        """The outcome for players 0 and 1 once the game is over: they sum to 0 and lie in [-1, 1]."""

    def render(self) -> str:
        """The whole game, for people; shows what is hidden from the players."""
        return "\n\n".join(f"Player {player} sees:\n{self.observation(player)}" for player in (0, 1))

    def parse(self, text: str) -> str | None:
        """The canonical action that ``text`` names, or None if it names none, or more than one.

        What ``normalise`` takes away is forgiven. Games with free text override this.
        """
        return _table(type(self), self.actions).get(normalise(text))

    @staticmethod
    def spellings(action: str) -> Sequence[str]:
        """Other ways to write a canonical action that ``parse`` accepts as well ("column 3" for "[3]")."""
        return ()

    def random_action(self, rng: random.Random) -> str:
        """A legal action, drawn uniformly with the caller's generator (never the game's own)."""
        return rng.choice(self.legal_actions())

    def copy(self) -> Self:
        """An independent game in the same state, chance included."""
        chance = random.Random(0)  # copied through its state: a deep copy of a generator takes twenty times as long
        chance.setstate(self.random.getstate())
        return copy.deepcopy(self, {id(self.random): chance})


@cache
def _table(game: type[Game], actions: tuple[str, ...]) -> dict[str, str]:
    """Normalised text -> action, without the texts that two actions share."""
    table: dict[str, str] = {}
    shared = set()
    for action in actions:
        for text in {normalise(spelling) for spelling in (action, *game.spellings(action))}:
            if text in table:
                shared.add(text)
            table[text] = action
    return {text: action for text, action in table.items() if text not in shared}


def normalise(text: str) -> str:
    """What is left of an action's text when its form is forgiven; "" for what is too long to be an action.

    Case, white space, brackets, quotes, commas, colons and the punctuation after it are forgiven, and characters are
    replaced by the plain ones that they are a form of (NFKC): full-width digits are read. Another alphabet's digits or
    look-alike letters are not. A sign or a decimal point stays: "-1" is not "1".
    """
    text = text.strip()
    if len(text) > LONGEST_ACTION:  # before NFKC, which is not linear in the number of combining marks
        return ""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.translate(_IGNORED).casefold().split()).rstrip(".! ")


def win(player: int | None) -> tuple[float, float]:
    """The rewards when ``player`` has won; None is a draw."""
    return (0.0, 0.0) if player is None else (1.0, -1.0) if player == 0 else (-1.0, 1.0)


def compare(mine: int, other: int) -> tuple[float, float]:
    """The rewards when player 0 has ``mine`` points and player 1 has ``other``: more wins."""
    return win(None if mine == other else int(mine < other))
