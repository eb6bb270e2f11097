"""Asks endpoints once before a run: a wrong key, an unknown model or an address where nobody is costs seconds then, and
the games of some steps later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from ....players.player import PlayerFailure
from .endpoint_client import Busy, Client
from .endpoint_settings import ApiSettings

#: Seconds for an answer. A model may think for longer: then it is there.
_WITHIN = 6.0
_QUESTION = "This is a test of the connection, no game. Your only legal action: '[ok]'."


def ask_once(endpoints: Mapping[str, ApiSettings], say: Callable[[str], None] = print) -> None:
    """Ask all of them, at the same time, for what a game would ask.

    Args:
        endpoints: by what messages call each: the setting, and the player's name.
        say: shows people a line, about an endpoint that is there and has no answer now.

    Raises:
        ImportError: the openai package is not installed.
        ValueError: one of them would not answer games; the message names it, and holds no key.
    """

    async def ask(name: str, settings: ApiSettings) -> None:
        within = min(settings.timeout, _WITHIN)
        client = Client(replace(settings, timeout=within, total_timeout=within, retries=0), lambda usage: None)
        try:
            await client.ask(settings.chat_template().messages(_QUESTION), 0)
        except Busy as late:
            say(f"{name}: {late}; the run goes on, and asks it again in its games")
        except PlayerFailure as error:
            raise ValueError(f"{name}: {error}") from None

    async def ask_all() -> None:
        await asyncio.gather(*(ask(name, settings) for name, settings in endpoints.items()))

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(ask_all())
    finally:
        loop.close()  # unlike asyncio.run's, this end waits for no look-up of a host's name
