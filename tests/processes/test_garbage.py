"""When Python looks for garbage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Leaves a ring of objects, which only Python's collector finds, and tells when it is found.
RING = """
from recipe.spiral.processes import garbage

class Ring:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("found")

Ring()
{before_the_end}
"""


@pytest.mark.parametrize(("before_the_end", "printed"), [("", "found\n"), ("garbage.end_at_once()", "")])
def test_a_process_that_ends_at_once_looks_for_no_garbage(before_the_end: str, printed: str) -> None:
    code = RING.format(before_the_end=before_the_end)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == printed
