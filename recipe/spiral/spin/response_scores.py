"""The score of a response to a question: by the benchmarks' grader, or by a function of the user's.

Both judge in a process of its own: a response, or a function, that hangs, crashes or returns nonsense costs its
answer, and its name is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from ..lab.graders.grading import Grader
from ..lab.graders.judge import CRASH, TIME_OUT, Judge, NotStarted
from ..players.prompts import last_box
from ..players.records import Verdict
from .training_questions import TrainingQuestion

#: The benchmarks' grader, as ``questions.grader`` names it: the content of the last box.
BOXED = "boxed"
_VERDICTS: dict[str, Verdict] = {"no answer": "no_answer", "unreadable": "unreadable", TIME_OUT: "unreadable"}


@dataclass(frozen=True)
class Score:
    """What a response is worth.

    Attributes:
        value: 1 is right and 0 is wrong, where a function says nothing else; None: it could not be graded.
        verdict: on the answer's form.
        answer: what was graded, if it was found.
        problem: why it could not be graded: "time-out", "crash", "raised: ...", "not a number: ...".
    """

    value: float | None
    verdict: Verdict = "legal"
    answer: str | None = None
    problem: str | None = None


@cache
def scorer(grader: str, seconds: float) -> BoxScorer | FunctionScorer:
    """This process's scorer, by the config's ``questions``. Any number of threads may ask it."""
    return BoxScorer(seconds) if grader == BOXED else FunctionScorer(grader, seconds)


class BoxScorer:
    """Compares the content of the last box with the right answer, as for benchmarks.

    An answer that uses up its time is wrong: were it left out, it would pay to give such ones.
    """

    def __init__(self, seconds: float) -> None:
        self._grader = Grader(seconds)

    def score(self, question: TrainingQuestion, response: str) -> Score:
        verdict = self._grader.grade(question.question, response)
        if verdict.reason == CRASH:
            return Score(None, answer=verdict.answer, problem=verdict.reason)
        return Score(float(verdict.correct), _VERDICTS.get(verdict.reason, "legal"), verdict.answer)


class FunctionScorer:
    """Asks a function with the signature of verl's ``compute_score``.

    Args:
        function: "module:function". It gets ``data_source``, ``solution_str``, ``ground_truth`` and ``extra_info`` by
            name, and returns a number, or a dict with one under "score".
        seconds: that one response may take.
    """

    def __init__(self, function: str, seconds: float) -> None:
        self._started = False
        self._judge = Judge(function, seconds)

    def check(self) -> None:
        """See that there is such a function.

        Raises:
            RuntimeError: there is none, or its module cannot be imported.
        """
        self._judge.start()

    def close(self) -> None:
        self._judge.close()

    def score(self, question: TrainingQuestion, response: str) -> Score:
        answer = last_box(response)
        try:
            value, problem = self._judge.ask(
                data_source=question.data_source,
                solution_str=response,
                ground_truth=question.ground_truth,
                extra_info=question.extra_info,
            )
        except NotStarted as error:
            if not self._started:
                raise
            return Score(None, answer=answer, problem=f"{CRASH}: {error}")
        self._started = True
        if problem is None and (not isinstance(value, int | float) or not math.isfinite(value)):
            problem = f"not a number: {value!r}"[:100]
        return Score(None if problem else float(value), answer=answer, problem=problem)
