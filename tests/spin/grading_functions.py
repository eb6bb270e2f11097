"""A function that grades, as users write them; a worker of its own imports this module."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from typing import Any


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
    if solution_str == "exit":
        sys.exit("no more")
    if solution_str == "program":
        subprocess.run(["sleep", "1234"])
    returned = {"nan": math.nan, "infinite": {"score": -math.inf}, "text": "good", "number as text": "0.7"}
    return {**returned, "none": None, "dict": {"acc": 1.0}, "true": True}.get(solution_str, 0.5)
