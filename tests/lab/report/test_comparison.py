"""Several runs on one page as data: which runs are seeds of one setting, what they are called, and how they stand."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.report.__main__ import main
from recipe.spiral.lab.report.bundle import Bundle
from recipe.spiral.lab.report.comparison import Comparison
from recipe.spiral.storage.metrics_file import MetricsFile

METRIC = "turns/entropy"
#: Is at work in a folder until its stdin ends.
AT_WORK = """
import sys
from pathlib import Path
from recipe.spiral.processes.launch import only_one
with only_one(Path(sys.argv[1])):
    print("at work", flush=True)
    sys.stdin.read()
"""


def logged(run: Path, values: Mapping[int, float]) -> Path:
    """A run that has logged one metric, by step."""
    (run / "games").mkdir(parents=True)
    for step, value in values.items():
        MetricsFile(run).log({METRIC: value}, step)
    return run


def swept(folder: Path, values: Mapping[str, Mapping[int, float]], status: str = "ok") -> Path:
    """A sweep over a seed, or over a learning rate and a seed: "lr=1,seed=0"."""
    keys = [pair.split("=")[0] for pair in next(iter(values)).split(",")]
    rows = [f"folder,{','.join(keys)},status,steps,seconds,message"]
    for name, curve in values.items():
        logged(folder / name, curve)
        rows.append(f'"{name}",{",".join(pair.split("=")[1] for pair in name.split(","))},{status},4,1.0,')
    (folder / "results.csv").write_text("\n".join(rows) + "\n")
    return folder


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """While another process holds a folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", AT_WORK, str(folder)], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline()
        yield


def compared(out: Path, *folders: Path) -> Any:
    """The page's facts, and by group the curve of the one metric: {"lr=1": [steps, mean, low, high, runs]}."""
    Comparison(folders, out).renew()
    facts = Bundle(out).read("comparison")
    curves = Bundle(out).read("metric/0")["groups"]
    return facts, {name: curve for (name, _), curve in zip(facts["groups"], curves, strict=True)}


def test_runs_of_one_name_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    runs = [logged(tmp_path / place / "same", {1: value}) for place, value in (("x", 1.0), ("y", 5.0))]
    facts, curves = compared(tmp_path / "out", *runs)
    assert {name: curve[1] for name, curve in curves.items()} == {"x/same": [1.0], "y/same": [5.0]}
    assert [run["name"] for run in facts["runs"]] == ["x/same", "y/same"]


def test_sweeps_of_other_settings_are_not_averaged(tmp_path: Path) -> None:
    sweeps = [
        swept(tmp_path / name, {"seed=0": {1: at}, "seed=1": {1: at + 2}}) for name, at in (("a", 1.0), ("b", 7.0))
    ]
    facts, curves = compared(tmp_path / "out", *sweeps, logged(tmp_path / "all seeds", {1: 0.0}))
    assert {name: curve[1] for name, curve in curves.items()} == {
        "a: all seeds": [2.0],
        "b: all seeds": [8.0],
        "all seeds": [0.0],
    }
    assert len({run["name"] for run in facts["runs"]}) == 5


def test_a_sweep_is_averaged_over_its_seeds_and_no_run_counts_twice(tmp_path: Path) -> None:
    sweep = swept(tmp_path / "sweep", {"lr=1,seed=0": {1: 1.0}, "lr=1,seed=1": {1: 3.0}, "lr=2,seed=0": {1: 9.0}})
    facts, curves = compared(tmp_path / "out", sweep, sweep / "lr=1,seed=0")
    assert {name: curve[1] for name, curve in curves.items()} == {"lr=1": [2.0], "lr=2": [9.0]}
    assert [run["name"] for run in facts["runs"]] == ["lr=1,seed=0", "lr=1,seed=1", "lr=2,seed=0"]


def test_the_mean_of_seeds_of_different_lengths_is_smooth(tmp_path: Path) -> None:
    """Thinned each by itself, they would have points at other steps, and the mean would be one's, then another's."""
    curves = {f"seed={seed}": {step: float(seed) for step in range(1, last + 1)} for seed, last in ((0, 900), (8, 610))}
    facts, groups = compared(tmp_path / "out", swept(tmp_path / "sweep", curves))
    steps, mean, _, _, runs = groups["all seeds"]
    assert len(steps) <= 200 and (facts["runs"][1]["step"], steps[-1]) == (610, 900)
    assert [count for step, count in zip(steps, runs, strict=True) if step <= 610] == [2] * 122
    assert set(mean[:122]) == {4.0} and set(mean[123:]) == {0.0}
    first, second = Bundle(tmp_path / "out").read("metric/0")["runs"]
    assert set(second[0]) < set(first[0])


def test_a_sweep_is_watched_between_its_jobs_and_a_killed_one_is_interrupted(tmp_path: Path) -> None:
    sweep = swept(tmp_path / "sweep", {"seed=0": {1: 1.0}}, status="running")
    page, bundle = Comparison([sweep], sweep / "report"), Bundle(sweep / "report")
    with at_work(sweep):
        assert page.renew() and not page.renew(), "nothing is new"
        assert (bundle.read("version")["running"], bundle.read("comparison")["runs"][0]["status"]) == (True, "running")
        watcher = threading.Thread(target=main, args=([str(sweep), "--watch", "--every", "0.2"],))
        watcher.start()
        watcher.join(1.5)
        assert watcher.is_alive()
    watcher.join(60)
    assert not watcher.is_alive()
    assert (bundle.read("version")["running"], bundle.read("comparison")["runs"][0]["status"]) == (False, "interrupted")


def test_folders_that_are_not_there_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = logged(tmp_path / "run", {1: 1.0}), tmp_path / "out"
    shutil.rmtree(swept(tmp_path / "emptied", {"seed=0": {1: 1.0}}) / "seed=0")
    for folder, why in (("typo", "no run is here, and no sweep"), ("emptied", "none of the runs is here")):
        for arguments in ([tmp_path / folder], [run, tmp_path / folder, "--out", out]):
            assert main(["--compare", *map(str, arguments)]) == 2
            assert f"{tmp_path / folder}: {why}" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists() and not out.exists()


def test_options_of_one_run_are_refused_for_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = swept(tmp_path / "sweep", {"seed=0": {1: 1.0}})
    for folders in ([sweep], [sweep / "seed=0", "--compare"]):
        for option in (["--evaluation", str(tmp_path)], ["--game", "recipe.spiral.games.nim:Nim"]):
            assert main([*map(str, folders), *option]) == 2
            assert f"{option[0]}: is only for one run" in capsys.readouterr().err
    assert not list(tmp_path.rglob("index.html"))


def test_a_job_that_has_not_begun_is_compared_and_one_that_is_not_over_seen(tmp_path: Path) -> None:
    sweep = swept(tmp_path / "sweep", {"seed=0": {1: 1.0}})
    (sweep / "seed=0" / "config.yaml").write_text("trainer: {total_training_steps: 9}\n")
    with (sweep / "results.csv").open("a") as table:
        table.write("seed=1,1,waiting,0,0.0,\n")
    facts, _ = compared(tmp_path / "out", sweep / "seed=0", sweep / "seed=1")
    shown = [(run["status"], run["step"], run["total"]) for run in facts["runs"]]
    assert shown == [("ok", 1, 9), ("waiting", 0, None)]


def test_a_table_that_cannot_be_read_names_no_job(tmp_path: Path) -> None:
    run = logged(tmp_path / "run", {1: 1.0})
    (tmp_path / "results.csv").write_bytes(b"folder,seed\nrun," + b"x" * 200_000 + b"\n")
    facts, _ = compared(tmp_path / "out", run)
    assert [(one["name"], one["swept"]) for one in facts["runs"]] == [("run", {})]


def test_settings_that_differ_are_told_and_where_a_run_lies_is_none(tmp_path: Path) -> None:
    runs = [logged(tmp_path / name, {1: 1.0}) for name in ("a", "b", "without")]
    for rate, run in enumerate(runs[:2]):
        lines = [f"run_dir: {run}", f"trainer: {{experiment_name: {run.name}, default_local_dir: {run}/checkpoints}}"]
        lines += [f"algorithm: {{rae: {{decay: 0.{rate}}}, kl: 0.5}}", "games: [TicTacToe]", *(["seed: 1"] * rate)]
        lines += [f"ray_kwargs: {{ray_init: {{_temp_dir: /somewhere/{run.name}}}}}"]
        (run / "config.yaml").write_text("\n".join(lines) + "\n")
    facts, _ = compared(tmp_path / "out", *runs)
    assert facts["settings"] == [["algorithm.rae.decay", [0.0, 0.1, None]], ["seed", [None, 1, None]]]


def test_the_times_of_a_run_are_those_since_its_start(tmp_path: Path) -> None:
    times = iter((100.0, 160.0, 460.0))
    for step in (1, 2, 5):
        MetricsFile(tmp_path / "run", clock=lambda: next(times)).log({METRIC: 1.0}, step)
    facts, _ = compared(tmp_path / "out", tmp_path / "run")
    assert facts["runs"][0]["times"] == [[1, 2, 5], [0.0, 60.0, 360.0]]
