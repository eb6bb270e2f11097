"""In the place of verl's load balancer, where requests go to the servers themselves (``workers.engine.direct``).

verl starts a load balancer in any case, as an actor. Its own imports verl and torch; this one imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The file that names it, for verl: ``actor_rollout_ref.rollout.router_config_path``.
FILE = Path(__file__).with_suffix(".yaml")


class IdleRouter:
    """An actor that nobody asks.

    Args:
        servers: by address; they are not kept.
        settings: of ``FILE``.
    """

    def __init__(self, servers: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        pass
