"""Slow work in a thread that does not keep the program from ending: Ctrl-C ends it at once, whatever is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def begin(work: Callable[[], Result]) -> Future[Result]:
    """Begin ``work``; the result, or what it raised, is the future's. (``asyncio.to_thread`` waits for threads at the
    end.)"""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, daemon=True).start()
    return future
