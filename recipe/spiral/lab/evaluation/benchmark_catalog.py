"""The eight benchmarks that SPIRAL reports, where their data is, and the paper's numbers (averages over all eight)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..graders.question import Question, question_of

PAPER = "arXiv 2506.24119"
#: Model -> training -> percent of right answers, the mean over the eight benchmarks.
PAPER_AVERAGES: Mapping[str, Mapping[str, float]] = {
    "Qwen3-4B-Base": {
        "base": 33.1,
        "SFT on 25k expert games": 38.4,
        "RL against fixed Gemini": 37.6,
        "SPIRAL, TicTacToe": 41.3,
        "SPIRAL, Kuhn Poker": 41.4,
        "SPIRAL, Simple Negotiation": 40.0,
        "SPIRAL, TicTacToe + Kuhn Poker": 42.7,
        "SPIRAL, all three": 42.3,
    },
    "DeepSeek-R1-Distill-Qwen-7B": {"base": 59.7, "SPIRAL": 61.7},
}

_MATH_FIELDS = "question (or problem) and answer (or final_answer, or a solution with \\boxed{}); id if there is one"
_GPQA_FIELDS = "Question, Correct Answer, Incorrect Answer 1, Incorrect Answer 2, Incorrect Answer 3; Record ID"
_MMLU_FIELDS = "question, options (a list), answer (the letter) or answer_index (from 0); question_id"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
        id: its name in the config, files and tables.
        title: its name in the literature.
        hub, split, config: its path, split and configuration on the Hugging Face hub; None: the default one.
        questions: the number of questions, to notice incomplete data.
        fields: the fields that a row must have, in words.
        gated: whether users must accept terms on the hub and log in.
    """

    id: str
    title: str
    kind: Literal["math", "choice"]
    hub: str
    split: str
    questions: int
    fields: str = _MATH_FIELDS
    config: str | None = None
    gated: bool = False

    def read(self, row: Mapping[str, Any], number: int) -> Question:
        """The question of a row, whose ``number`` in the file, from 0, is the question's id if it has none.

        Raises:
            ValueError: the row has no valid question; the message says why.
        """
        return question_of(self.id, row, number, choice=self.kind == "choice")


_BENCHMARKS = (
    Benchmark("math500", "MATH500", "math", "HuggingFaceH4/MATH-500", "test", 500),
    Benchmark("aime24", "AIME24", "math", "math-ai/aime24", "test", 30),
    Benchmark("aime25", "AIME25", "math", "math-ai/aime25", "test", 30),
    Benchmark(
        *("olympiadbench", "OlympiadBench", "math", "Hothan/OlympiadBench", "train", 674), config="OE_TO_maths_en_COMP"
    ),
    Benchmark("amc23", "AMC23", "math", "math-ai/amc23", "test", 40),
    Benchmark("minerva", "Minerva", "math", "math-ai/minervamath", "test", 272),
    Benchmark(
        "gpqa", "GPQA", "choice", "Idavidrein/gpqa", "train", 198, _GPQA_FIELDS, config="gpqa_diamond", gated=True
    ),
    Benchmark("mmlu_pro", "MMLU-Pro", "choice", "TIGER-Lab/MMLU-Pro", "test", 12032, _MMLU_FIELDS),
)
CATALOG: Mapping[str, Benchmark] = {benchmark.id: benchmark for benchmark in _BENCHMARKS}


def get_benchmark(name: str) -> Benchmark:
    """The benchmark with this id or title, whatever the case.

    Raises:
        ValueError: there is none; the message lists all benchmarks.
    """
    wanted = _plain(name)
    for benchmark in CATALOG.values():
        if wanted in (_plain(benchmark.id), _plain(benchmark.title)):
            return benchmark
    raise ValueError(f"benchmarks: {name!r} is unknown; known are {', '.join(CATALOG)}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
