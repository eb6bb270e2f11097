"""A run's lines for people."""

from __future__ import annotations

#: Their file in the run's folder; the trainer writes it.
LOG = "train.log"


def duration(seconds: float) -> str:
    """Seconds for people: 45s, 3m20s, 2h05m."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
