"""verl's names of a batch's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

#: The place of a row of padding.
PADDING = -1


class RowNames:
    """The place of each row by its name, ``{session}_{number}``, where ``number`` counts the session's rows from 0.

    There is no dictionary of rows: of a million, each look into one takes half a second, and a session has several.

    Args:
        sessions: verl's names of the sessions, and their numbers: 0, 1, 2, ...
        of_rows: the number of its session, of each row. [num_rows]
    """

    def __init__(self, sessions: Mapping[str, int], of_rows: np.ndarray) -> None:
        self._sessions = sessions
        # the places of the first session's rows, then of the second's, ...; and where each session begins
        self._by_session = of_rows.argsort(kind="stable")
        self._begins = np.append(0, np.bincount(of_rows, minlength=len(sessions)).cumsum())
        self._last: tuple[list[str], np.ndarray] = [], np.empty(0, np.int64)

    @cached_property
    def keys(self) -> list[str]:
        """The names of all rows. [num_rows]"""
        counts = zip(self._sessions, np.diff(self._begins).tolist(), strict=True)
        by_session = [f"{session}_{number}" for session, count in counts for number in range(count)]
        return [by_session[i] for i in self._by_session.argsort().tolist()]

    def places(self, keys: Sequence[str]) -> np.ndarray:
        """The places of rows; ``PADDING`` for a name that none has. [len(keys)]"""
        last, found = self._last
        if last == keys:  # a batch is asked for several times; of the same strings this takes no time to see
            return found
        sessions, numbers = [], []
        for key in keys:
            session, _, number = key.rpartition("_")
            sessions.append(self._sessions.get(session, PADDING))
            numbers.append(int(number) if number.isdecimal() else PADDING)
        of_keys, in_session = np.array(sessions, np.int64), np.array(numbers, np.int64)
        at = self._begins[of_keys] + in_session
        known = (of_keys != PADDING) & (in_session != PADDING) & (at < self._begins[of_keys + 1])
        places = np.full(len(keys), PADDING)
        places[known] = self._by_session[at[known]]
        self.remember(keys, places)
        return places

    def remember(self, keys: Sequence[str], places: np.ndarray) -> None:
        """These are the places of these rows, for when they are asked for next."""
        self._last = [*keys], places
