"""The seconds in which a server has requests, however many at a time."""

from __future__ import annotations

from recipe.spiral.workers.engine.busy import Busy


def test_requests_at_the_same_time_count_once_and_one_under_way_counts_so_far() -> None:
    now = [0.0]
    busy = Busy(lambda: now[0])
    now[0] = 5.0
    with busy.answering():
        now[0] = 6.0
        with busy.answering():
            now[0] = 8.0
        assert busy.seconds == 3.0
        now[0] = 9.0
    now[0] = 20.0
    assert busy.seconds == 4.0
    with busy.answering():
        now[0] = 21.0
        assert busy.seconds == 5.0
