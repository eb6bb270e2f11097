"""Where the ranks meet: torch's store on one address. By itself it listens on all of a machine's.

Importing this makes torch's rendezvous (``tcp://`` and ``env://``) use ours, in this process.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from importlib import import_module
from typing import Any

from torch.distributed import TCPStore


class OneAddress:
    """vLLM's processes import this module by it (``worker_extension_cls``)."""


def store_on_one_address(
    hostname: str, port: int, rank: int, world_size: int, timeout: timedelta, *args: Any, **kwargs: Any
) -> TCPStore:
    """In the place of torch's own, which has the same parameters."""
    listening = None
    if rank == 0:
        family = socket.AF_INET6 if ":" in hostname else socket.AF_INET
        if world_size == 1:
            port = 0  # nobody else has to find it, and what was free when it was chosen may be taken by now
        listening = socket.create_server((hostname, port), family=family).detach()
    return TCPStore(hostname, port, world_size, rank == 0, timeout, master_listen_fd=listening)


#: ``torch.distributed`` has a function of the module's name.
_torchs: Any = import_module("torch.distributed.rendezvous")
_torchs._create_c10d_store = store_on_one_address
