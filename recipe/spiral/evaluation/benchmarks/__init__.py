"""Reasoning benchmarks, as SPIRAL reports them: questions in, graded samples and a table out. No verl, Ray or vLLM.

``catalog`` says what there is, ``data`` loads it, ``run`` asks, ``grading`` judges, ``metrics`` counts; ``asked`` and
``rows`` put the same questions into a run's validation set, beside its games.
"""

from .catalog import CATALOG, Benchmark
from .data import NoData, load
from .grading import Grader, Verdict
from .questions import Question

__all__ = ["CATALOG", "Benchmark", "Grader", "NoData", "Question", "Verdict", "load"]
