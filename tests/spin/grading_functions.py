"""Functions that grade, as users write them; a worker of its own imports this module."""

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
    if solution_str == "program elsewhere":
        subprocess.run(["sleep", "1234"], start_new_session=True)
    if solution_str == "die with a program":
        subprocess.Popen(["sleep", "1234"])
        os._exit(3)
    if solution_str == "fork":
        return 0.1 if os.fork() else 0.9
    if solution_str == "read":
        sys.stdin.close()
        return len(subprocess.run(["cat"], capture_output=True).stdout)
    returned = {"nan": math.nan, "infinite": {"score": -math.inf}, "text": "good", "number as text": "0.7"}
    return {**returned, "none": None, "dict": {"acc": 1.0}, "list": [1.0], "true": True}.get(solution_str, 0.5)
