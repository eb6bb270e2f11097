"""How much memory this machine has: on its GPUs, as their driver says, without starting CUDA; and on the host."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

#: Where nothing is known: a card of 80 GB as its driver counts it.
USUAL = 79.6 * 2**30
#: The variable that names the GPUs which CUDA may use; nvidia-smi does not look at it.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_FIELDS = "index,uuid,memory.total,memory.used,mig.mode.current"
#: In what ``nvidia-smi -L`` prints: a card, and below it the slices that MIG has made of it, with their GB.
_LISTED = re.compile(r"(?:MIG \S*?g\.(?P<gb>\d+)gb|GPU \d+:).*\(UUID: (?P<uuid>[^)]+)\)")
#: A slice has about so much of the GB in its name, as GiB.
_OF_A_SLICE = 0.95


@dataclass(frozen=True)
class Card:
    """A card as its driver knows it: nvidia-smi's names, and bytes of its memory; ``parts`` are those of what CUDA may
    use of it, the whole or slices that MIG has made."""

    index: str
    uuid: str
    total: int
    used: int
    parts: tuple[int, ...]


def cards() -> list[Card]:
    """The cards that CUDA may use here, in its order; a slice that CUDA_VISIBLE_DEVICES names stands for its card.

    Raises:
        OSError, subprocess.SubprocessError: there is no driver, or it does not answer.
    """
    lines = _nvidia_smi(f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
    rows = [row for row in (list(map(str.strip, line.split(","))) for line in lines) if len(row) == 5]
    slices = _slices() if any(mig == "Enabled" for *_, mig in rows) else {}
    # nothing: all that there are (a dry run sets it to nothing)
    chosen = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    usable = {name: slices[name] for name in chosen if name in slices} or slices
    all_cards = []
    for index, uuid, *memory, mig in rows:
        if all(mib.isdecimal() for mib in memory):
            total, used = (int(mib) * 2**20 for mib in memory)
            parts = [size for card, size in usable.values() if card == uuid] if mig == "Enabled" else [total]
            all_cards.append(Card(index, uuid, total, used, tuple(parts)))
    if not chosen:
        return all_cards
    chosen = [slices[name][0] if name in slices else name for name in chosen]
    named = (card for name in chosen for card in all_cards if name == card.index or card.uuid.startswith(name))
    return list(dict.fromkeys(named))


def gpu_memory() -> int | None:
    """Bytes of the smallest GPU, or slice of one, that CUDA may use here; None: there is none, or no driver."""
    try:
        return min((size for card in cards() for size in card.parts), default=None)
    except (OSError, subprocess.SubprocessError):
        return None


def gpu_in_use() -> int:
    """Bytes that processes have of the fullest GPU that CUDA may use here; 0 where nothing is known."""
    try:
        return max((card.used for card in cards()), default=0)
    except (OSError, subprocess.SubprocessError):
        return 0


def _slices() -> dict[str, tuple[str, int]]:
    """Of each slice that MIG has made, by its id: its card's, and its bytes."""
    slices, card = {}, ""
    for match in filter(None, map(_LISTED.search, _nvidia_smi("-L"))):
        if match["gb"] is None:
            card = match["uuid"]
        else:
            slices[match["uuid"]] = card, int(int(match["gb"]) * _OF_A_SLICE * 2**30)
    return slices


def _nvidia_smi(*arguments: str) -> list[str]:
    """Its lines. With a warning beside them its status is not 0."""
    done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30)
    if not (lines := done.stdout.splitlines()):
        done.check_returncode()
    return lines


def host_memory() -> int:
    """Bytes that the processes of this machine, or of this container, may have together."""
    limits = [Path(name).read_text().strip() for name in _LIMITS if Path(name).is_file()]
    return min([psutil.virtual_memory().total, *(int(limit) for limit in limits if limit.isdecimal())])
