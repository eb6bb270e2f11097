"""Says whose games were void, and when an opponent has been silent for too long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ...players.records import SELF_PLAY, GameRecord
from ...players.seats import Opponent
from ...players.seeds import GameKey


class VoidGames:
    """Counts the steps in which an opponent answered in no game.

    Attributes:
        silent: why the run is to stop: an opponent has answered in no game for ``most`` steps in a row in which some of
            its games were void; "": it is not.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._steps: Counter[str] = Counter()
        self.silent = ""

    def count(self, played: Sequence[GameRecord]) -> list[str]:
        """Take in a step's games; returns a line for each opponent with void ones.

        A game that the policy lost before it was the opponent's turn says nothing of the opponent.
        """
        answered = {
            Opponent.of(game).name for game in played if any(turn.player not in game.trainable for turn in game.turns)
        }
        for name in answered:
            self._steps.pop(name, None)
        lines = void_games(played)
        for name in lines.keys() - {*answered, SELF_PLAY}:
            self._steps[name] += 1
            if self._most is not None and self._steps[name] >= self._most:
                self.silent = f"max_void_steps={self._most}: {lines[name]}"
                del self._steps[name]  # a run that goes on after the stop has as many steps again
        return list(lines.values())

    def state_dict(self) -> dict[str, int]:
        return dict(self._steps)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._steps = Counter(state)


def void_games(records: Iterable[GameRecord]) -> dict[str, str]:
    """For people: how many of an opponent's games were void, and why the first was, by its name.

    Args:
        records: all tries of the games.
    """
    games: dict[str, set[GameKey]] = defaultdict(set)
    void: dict[str, dict[GameKey, str | None]] = defaultdict(dict)
    for record in records:
        name, key = Opponent.of(record).name, record.key.first_try()
        games[name].add(key)
        if record.discarded == "void":
            void[name].setdefault(key, record.reason)
    said = "{}: {} of its {} games were void, the first: {}"
    return {name: said.format(name, len(of), len(games[name]), next(iter(of.values()))) for name, of in void.items()}
