"""Where the ranks meet: torch's store on one address. By itself torch's store listens on all of a machine's.

Importing this registers the scheme ``spiral://`` for ``torch.distributed.init_process_group``. ``spiral://HOST:PORT``
stands for ``tcp://HOST:PORT``, and ``spiral://`` for ``env://``, which takes MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torch.distributed import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import register_rendezvous_handler

SCHEME = "spiral"


def on_one_address(init_method: str) -> str:
    """The same place, for a store that listens there only; a method without an address stays as it is."""
    return init_method.replace("tcp://", f"{SCHEME}://", 1) if init_method.startswith("tcp://") else init_method


def _rendezvous(
    url: str, timeout: timedelta = default_pg_timeout, **kwargs: Any
) -> Iterator[tuple[TCPStore, int, int]]:
    place, query = urlsplit(url), parse_qs(urlsplit(url).query)
    rank, world_size = int(query["rank"][0]), int(query["world_size"][0])
    host = place.hostname or os.environ["MASTER_ADDR"]
    port = place.port or int(os.environ["MASTER_PORT"])
    listening = None
    if rank == 0:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if world_size == 1:
            port = 0  # nobody else has to find it, and what was free when it was chosen may be taken by now
        listening = socket.create_server((host, port), family=family).detach()
    yield TCPStore(host, port, world_size, rank == 0, timeout, master_listen_fd=listening), rank, world_size


register_rendezvous_handler(SCHEME, _rendezvous)
