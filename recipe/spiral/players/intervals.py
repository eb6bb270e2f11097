"""The confidence interval of a share. SciPy has it for whole counts only; here a draw may count as half a win."""

from __future__ import annotations

import math
from statistics import NormalDist

#: The normal distribution's quantile for 95% intervals.
Z = NormalDist().inv_cdf(0.975)


def wilson(count: float, total: float) -> tuple[float, float]:
    """The 95% interval of a share (E. B. Wilson, JASA 22, 1927; Brown, Cai and DasGupta, Stat. Sci. 16, 2001, eq. 4).

    Args:
        count: from 0 to ``total``. It may be a sum of values from 0 to 1; then the interval is rather too wide.
        total: at least 1.

    Raises:
        ValueError: the numbers are not within these limits.
    """
    if total < 1 or not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no share")
    share = count / total
    scale = 1 + Z * Z / total
    centre = (share + Z * Z / (2 * total)) / scale
    half = Z * math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total)) / scale
    # Exact at the ends, where rounding would leave 1e-17.
    return (0.0 if count == 0 else max(0.0, centre - half), 1.0 if count == total else min(1.0, centre + half))
