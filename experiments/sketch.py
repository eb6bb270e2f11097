"""A count sketch: a linear map of long vectors to short ones that keeps inner products in expectation.

Each coordinate is added, with a random sign, to a random one of m buckets. With P for the map, E[P^T P] is the
identity, hence E<Px, Py> = <x, y> for all x and y; and the trace of a covariance, E|x - x'|^2 / 2 for independent draws
x and x', is kept too. The map's own variance is below (|x|^2 |y|^2 + <x, y>^2) / m. (Charikar, Chen and
Farach-Colton, Finding frequent items in data streams, 2002.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Sketch:
    """The map from ``length`` to ``buckets`` numbers that a seed decides."""

    def __init__(self, length: int, buckets: int, seed: int) -> None:
        import torch

        chance = torch.Generator().manual_seed(seed)
        self._places = torch.randint(buckets, (length,), generator=chance)
        self._signs = torch.randint(2, (length,), generator=chance).mul_(2).sub_(1).to(torch.float32)
        self._buckets = buckets

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """[count, length] -> [count, buckets]."""
        return vectors.new_zeros(len(vectors), self._buckets).index_add_(1, self._places, vectors * self._signs)
