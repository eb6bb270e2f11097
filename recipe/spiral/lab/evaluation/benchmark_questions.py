"""Questions from files, or from the Hugging Face hub where no folder is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...players.seeds import derive_seed
from ..graders.question import SUFFIXES, Question, read_rows
from .benchmark_catalog import Benchmark, get_benchmark

Rows = Iterable[Mapping[str, Any]]


def load(name: str, path: str | Path | None = None, limit: int | None = None) -> list[Question]:
    """A benchmark's questions, in the order of their file.

    Args:
        name: the benchmark's id.
        path: a folder that holds ``<id>.jsonl`` (or json, parquet, csv, or a folder ``<id>``), or one such file;
            None: the hub. Where a folder is given, the hub is not used.
        limit: the number of questions, always the same ones; those of a smaller limit are among those of a larger one.

    Raises:
        ValueError: there is no such file, or the hub cannot be reached or refuses (the message says which file with
            which fields to put where); a row cannot be read, or two rows have one id.
    """
    benchmark = get_benchmark(name)
    if path is not None:
        files, source = _files(benchmark, Path(path)), str(path)
        rows: Rows = (row for file in files for row in read_rows(file))
    else:
        source = f"{benchmark.hub} on the hub"
        rows = _from_hub(benchmark)
    questions = _unique(benchmark, rows, source)
    return questions if limit is None else _some(questions, limit)


def _files(benchmark: Benchmark, path: Path) -> list[Path]:
    if path.is_file() and path.suffix in SUFFIXES:
        return [path]
    for suffix in SUFFIXES:
        if (file := path / f"{benchmark.id}{suffix}").is_file():
            return [file]
    folder = path / benchmark.id
    if folder.is_dir():
        for suffix in (".jsonl", ".parquet", ".csv", ".json"):  # a .json may only describe the others
            if files := _files_of_split(benchmark, folder, suffix):
                return files
    problem = f"there are no questions of {benchmark.id}" if path.exists() else "there is no such folder"
    raise ValueError(f"benchmarks.path={path}: {problem}. {_wanted(benchmark, str(path))}")


def _files_of_split(benchmark: Benchmark, folder: Path, suffix: str) -> list[Path]:
    """From a copy of the hub's files, those whose names have the configuration and the split, if any have."""
    files = {file: file.relative_to(folder).as_posix() for file in sorted(folder.rglob(f"*{suffix}"))}
    files = {file: name for file, name in files.items() if not any(part[0] == "." for part in name.split("/"))}
    for wanted in filter(None, (benchmark.config, benchmark.split)):
        files = {file: name for file, name in files.items() if wanted in name} or files
    return list(files)


def _wanted(benchmark: Benchmark, folder: str) -> str:
    config = f", configuration {benchmark.config}" if benchmark.config else ""
    gated = ", after its terms were accepted" if benchmark.gated else ""
    return (
        f"Put {benchmark.id}.jsonl (or .json, .parquet, .csv) into {folder}: {benchmark.questions} rows, each with "
        f"{benchmark.fields}. {benchmark.title} is {benchmark.hub} (split {benchmark.split}{config}{gated}) on the "
        f"Hugging Face hub; a copy of its files does, in a folder named {benchmark.id}."
    )


def _from_hub(benchmark: Benchmark) -> Rows:
    import datasets

    try:
        rows: Rows = datasets.load_dataset(benchmark.hub, benchmark.config, split=benchmark.split)
        return rows
    except Exception as error:  # the package datasets raises dozens of kinds: offline, refused, gone, changed
        reason = (str(error).strip().splitlines() or ["no reason given"])[0][:300]
        login = " This one is gated: accept its terms there and log in (hf auth login)." if benchmark.gated else ""
        raise ValueError(
            f"benchmark {benchmark.id}: the hub gave no data ({type(error).__name__}: {reason}).{login} Without the "
            f"hub, set benchmarks.path=<folder>. {_wanted(benchmark, '<folder>')}"
        ) from error


def _unique(benchmark: Benchmark, rows: Rows, source: str) -> list[Question]:
    questions: dict[str, Question] = {}
    for number, row in enumerate(rows):
        try:
            question = benchmark.read(row, number)
        except ValueError as error:
            raise ValueError(f"{benchmark.id}, row {number} (from 0) of {source}: {error}") from error
        if question.id in questions:
            raise ValueError(f"{benchmark.id}, row {number} (from 0) of {source}: another row has id {question.id!r}")
        questions[question.id] = question
    if not questions:
        raise ValueError(f"{source} holds no rows of {benchmark.id}. {_wanted(benchmark, 'a folder')}")
    return list(questions.values())


def _some(questions: list[Question], limit: int) -> list[Question]:
    by_draw = sorted(questions, key=lambda question: derive_seed("limit", question.benchmark, question.id))
    kept = {question.id for question in by_draw[:limit]}
    return [question for question in questions if question.id in kept]
