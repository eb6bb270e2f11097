"""The confidence interval of a share of games."""

from __future__ import annotations

import math
from statistics import NormalDist

#: Of all intervals.
CONFIDENCE = 0.95
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def wilson(count: float, of: int, z: float = Z) -> tuple[float, float]:
    """The score interval of a share (E. B. Wilson, JASA 22, 1927; Brown, Cai and DasGupta, Stat. Sci. 16, 2001, eq. 4).

    Args:
        count: out of ``of``; may be a sum of values from 0 to 1, for which it is too wide rather than too narrow.
        of: at least 1.
        z: the normal distribution's quantile.
    """
    if of < 1 or not 0 <= count <= of:
        raise ValueError(f"{count} of {of} is no share")
    share = count / of
    scale = 1 + z * z / of
    centre = (share + z * z / (2 * of)) / scale
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / scale
    # exact at the ends, where rounding would leave 1e-17
    return (0.0 if count == 0 else max(0.0, centre - half), 1.0 if count == of else min(1.0, centre + half))
