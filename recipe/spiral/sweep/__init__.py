"""Runs a sweep: each of its jobs is a run of its own, in a process of its own with a Ray of its own.

Hydra composes the jobs (``-m``), so that a typo ends the sweep before anything starts; ``plan`` gives each a folder
named by what is swept; ``Sweep`` runs them. A job that fails does not end the others. A table is written whenever a job
starts or ends, and a second start of the same sweep resumes what is unfinished and leaves out what is done.
"""

from __future__ import annotations

from .jobs import OUTPUT, STATE, Job, State
from .planning import plan
from .results import REPORT, TABLE
from .running import Sweep

__all__ = ["OUTPUT", "REPORT", "STATE", "TABLE", "Job", "State", "Sweep", "plan"]
