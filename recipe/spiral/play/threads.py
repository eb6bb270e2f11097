"""Slow work in a thread that does not keep the program from ending: Ctrl-C ends it at once, whatever is under way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_thread(work: Callable[[], Result]) -> Awaitable[Result]:
    """Begin ``work``, and return what waits for its result. (``asyncio.to_thread`` waits for threads at the end.)"""
    return asyncio.wrap_future(begin(work))


def begin(work: Callable[[], Result]) -> Future[Result]:
    """Begin ``work``; the result, or what it raised, is the future's."""
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
