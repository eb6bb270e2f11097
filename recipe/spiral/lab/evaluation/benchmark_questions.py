"""The eight benchmarks that SPIRAL reports, and their questions from files, or, where no folder is given, from the
Hugging Face hub. docs/evaluation.md says what a row has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...config import written
from ...players.seeds import derive_seed
from ..graders.question import SUFFIXES, Question, question_of, read_rows

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
Rows = Iterable[Mapping[str, Any]]


class Benchmark(NamedTuple):
    """A benchmark: its name in the config, files and tables, its path, split and configuration on the hub, and whether
    its answers are choices."""

    id: str
    hub: str
    split: str = "test"
    config: str | None = None
    choice: bool = False

    def read(self, row: Mapping[str, Any], number: int) -> Question:
        """The question of a row, whose ``number`` in the file, from 0, is the question's id if it has none.

        Raises:
            ValueError: the row has no valid question; the message says why.
        """
        return question_of(self.id, row, number, choice=self.choice)


_BENCHMARKS = (
    Benchmark("math500", "HuggingFaceH4/MATH-500"),
    Benchmark("aime24", "math-ai/aime24"),
    Benchmark("aime25", "math-ai/aime25"),
    Benchmark("olympiadbench", "Hothan/OlympiadBench", "train", "OE_TO_maths_en_COMP"),
    Benchmark("amc23", "math-ai/amc23"),
    Benchmark("minerva", "math-ai/minervamath"),
    Benchmark("gpqa", "Idavidrein/gpqa", "train", "gpqa_diamond", choice=True),
    Benchmark("mmlu_pro", "TIGER-Lab/MMLU-Pro", choice=True),
)
CATALOG: Mapping[str, Benchmark] = {benchmark.id: benchmark for benchmark in _BENCHMARKS}


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of this name, also as the literature writes it: AIME24, MMLU-Pro.

    Raises:
        ValueError: there is none; the message lists all benchmarks.
    """
    plain = {id_.replace("_", ""): benchmark for id_, benchmark in CATALOG.items()}
    if (wanted := name.lower().replace("-", "").replace("_", "")) not in plain:
        raise ValueError(f"benchmarks: {name!r} is unknown; known are {', '.join(CATALOG)}")
    return plain[wanted]


def load(name: str, path: Path | None = None, limit: int | None = None) -> list[Question]:
    """A benchmark's questions, in the order of their file.

    Args:
        name: the benchmark's id.
        path: a folder that holds ``<id>.jsonl`` (or json, parquet, csv, or a folder ``<id>``); None: the hub. Where a
            folder is given, the hub is not used.
        limit: the number of questions, always the same ones; those of a smaller limit are among those of a larger one.

    Raises:
        ValueError: there is no such file, or the hub cannot be reached or refuses; a row cannot be read, or two rows
            have one id.
    """
    benchmark = get_benchmark(name)
    source, rows = _rows(benchmark, path)
    questions: dict[str, Question] = {}
    for number, row in enumerate(rows):
        try:
            question = benchmark.read(row, number)
            if question.id in questions:
                raise ValueError(f"another row has id {question.id!r}")
        except ValueError as error:
            raise ValueError(f"{benchmark.id}, row {number} (from 0) of {source}: {error}") from error
        questions[question.id] = question
    if not questions:
        raise ValueError(f"benchmarks.path={source}: there are no rows of {benchmark.id}")
    by_draw = sorted(questions, key=lambda id_: derive_seed("limit", benchmark.id, id_))
    kept = {*by_draw[:limit]}
    return [question for question in questions.values() if question.id in kept]


def _rows(benchmark: Benchmark, path: Path | None) -> tuple[str, Rows]:
    """Where a benchmark's rows are, and the rows."""
    source = benchmark.hub if path is None else str(path / benchmark.id)
    if path is not None:
        for suffix in SUFFIXES:
            if (file := Path(f"{source}{suffix}")).is_file():
                return str(file), read_rows(file)
        if not Path(source).is_dir():  # which the package datasets would look for on the hub
            raise ValueError(
                f"benchmarks.path={path}: put {benchmark.id}.jsonl (or .json, .parquet, .csv) there, or a copy of the "
                f"hub's {benchmark.hub} in a folder named {benchmark.id}; docs/evaluation.md says what a row has"
            )
    import datasets

    try:
        return source, datasets.load_dataset(source, benchmark.config, split=benchmark.split)
    except Exception as error:  # of dozens of kinds: offline, gated, gone, changed
        raise ValueError(
            f"benchmarks.path={written(path)}: nothing was had from {source}: {str(error).strip()[:300]}; without the "
            "hub, set it to a folder with the questions (docs/evaluation.md)"
        ) from error
