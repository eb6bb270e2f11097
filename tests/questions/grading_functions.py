"""Functions that grade, as users write them; a worker of its own imports this module."""

from __future__ import annotations

import math
import os
import time
from typing import Any


def length(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> dict[str, float]:
    print("what a function prints is in nobody's way")
    return {"score": 1.0 if len(solution_str) == int(ground_truth) else 0.25}


def awkward(solution_str: str, **kwargs: Any) -> Any:
    """Does what the response says."""
    if solution_str == "raise":
        raise ZeroDivisionError("nothing there")
    if solution_str == "hang":
        time.sleep(1000)
    if solution_str == "spin":
        while True:
            pass
    if solution_str == "die":
        os._exit(3)
    return {"nan": math.nan, "text": "good", "none": None, "true": True}.get(solution_str, 0.5)
