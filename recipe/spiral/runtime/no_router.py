"""No process in the place of verl's load balancer, where requests go to the servers themselves (``direct_client``).

verl starts a load balancer in any case, as an actor. Ray would give its process the servers' classes, and with them
import verl and vLLM, for nobody.
"""

from __future__ import annotations

from typing import Any

import ray


class _Router:
    """Never made."""


#: verl makes an actor of every class, but takes one that Ray has made an actor class of as it is.
NoRouter: Any = ray.remote(_Router)
NoRouter.remote = lambda servers, settings: None  # verl's call, by which an actor would start
