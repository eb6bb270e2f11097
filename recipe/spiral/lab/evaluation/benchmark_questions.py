"""The eight benchmarks that SPIRAL reports, and their questions from files, or, where no folder is given, from the
Hugging Face hub. docs/evaluation.md says what a row has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    """A benchmark: its name in the config, files and tables, and its path, split and configuration on the hub."""

    id: str
    kind: Literal["math", "choice"]
    hub: str
    split: str = "test"
    config: str | None = None

    def read(self, row: Mapping[str, Any], number: int) -> Question:
        """The question of a row, whose ``number`` in the file, from 0, is the question's id if it has none.

        Raises:
            ValueError: the row has no valid question; the message says why.
        """
        return question_of(self.id, row, number, choice=self.kind == "choice")


_BENCHMARKS = (
    Benchmark("math500", "math", "HuggingFaceH4/MATH-500"),
    Benchmark("aime24", "math", "math-ai/aime24"),
    Benchmark("aime25", "math", "math-ai/aime25"),
    Benchmark("olympiadbench", "math", "Hothan/OlympiadBench", "train", "OE_TO_maths_en_COMP"),
    Benchmark("amc23", "math", "math-ai/amc23"),
    Benchmark("minerva", "math", "math-ai/minervamath"),
    Benchmark("gpqa", "choice", "Idavidrein/gpqa", "train", "gpqa_diamond"),
    Benchmark("mmlu_pro", "choice", "TIGER-Lab/MMLU-Pro"),
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
    if path is None:
        source, rows = f"{benchmark.hub} on the hub", _from_hub(benchmark)
    else:
        source, rows = str(path), (row for file in _files(benchmark, path) for row in read_rows(file))
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


def _files(benchmark: Benchmark, path: Path) -> list[Path]:
    for suffix in SUFFIXES:
        if (file := path / f"{benchmark.id}{suffix}").is_file():
            return [file]
    for suffix in (".jsonl", ".parquet", ".csv", ".json"):  # a .json may only describe the others
        if files := _files_of_split(benchmark, path / benchmark.id, suffix):
            return files
    raise ValueError(
        f"benchmarks.path={path}: put {benchmark.id}.jsonl (or .json, .parquet, .csv) there, or a copy of the hub's "
        f"{benchmark.hub} in a folder named {benchmark.id}; docs/evaluation.md says what a row has"
    )


def _files_of_split(benchmark: Benchmark, folder: Path, suffix: str) -> list[Path]:
    """From a copy of the hub's files, those whose names have the configuration and the split, if any have."""
    files = {file: file.relative_to(folder).as_posix() for file in sorted(folder.rglob(f"*{suffix}"))}
    files = {file: name for file, name in files.items() if not any(part[0] == "." for part in name.split("/"))}
    for wanted in filter(None, (benchmark.config, benchmark.split)):
        files = {file: name for file, name in files.items() if wanted in name} or files
    return list(files)


def _from_hub(benchmark: Benchmark) -> Rows:
    import datasets

    try:
        rows: Rows = datasets.load_dataset(benchmark.hub, benchmark.config, split=benchmark.split)
        return rows
    except Exception as error:  # the package datasets raises dozens of kinds: offline, gated, gone, changed
        raise ValueError(
            f"benchmarks.path=null: the hub gave no {benchmark.hub}: {str(error).strip()[:300]}; without the hub, set "
            "benchmarks.path to a folder with the questions (docs/evaluation.md)"
        ) from error
