"""What verl imports in each process that sends or receives the policy's weights through a checkpoint engine
(``separate_async``): our engine's classes, a rendezvous on one address, and a checkpoint engine through a file."""

from __future__ import annotations

import os

from .. import engine  # noqa: F401  (registers its classes)
from ..rendezvous import SCHEME
from . import weight_file  # noqa: F401  (registers its class)

os.environ.setdefault("DIST_INIT_METHOD", f"{SCHEME}://")  # verl's variable
