"""The check of a machine's GPUs: stages end within their limits, nothing is left, and what is done is kept."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from experiments.result import current_commit

from benchmarks.gpu_check import results as results_module
from benchmarks.gpu_check import running
from benchmarks.gpu_check.__main__ import FAILED, INTERRUPTED, OK, REFUSED, UNFINISHED, main
from benchmarks.gpu_check.cards import peaks
from benchmarks.gpu_check.masking import Masker
from benchmarks.gpu_check.results import Log
from benchmarks.gpu_check.stages import STAGES
from recipe.spiral import __version__

from .made_stages import alone, stage

HERE = Path(__file__).resolve().parent
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a stage that hangs writes the number of the process that it started."""
    file = tmp_path / "sleeper"
    monkeypatch.setenv("SLEEPER", str(file))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
    yield file
    end = time.monotonic() + 20
    while file.exists() and psutil.pid_exists(int(file.read_text())):
        assert time.monotonic() < end, "what a stage started is left"
        time.sleep(0.1)


def check(folder: Path, *names: str, arguments: tuple[str, ...] = ()) -> int:
    made = [stage(name, vital=name == "needs") for name in names]
    return main(["--device", "cpu", "--folder", str(folder), *arguments], made)


def report(folder: Path) -> dict[str, dict[str, object]]:
    content = json.loads((folder / "gpu_report.json").read_text())
    return {result["name"]: result for result in content["stages"]}


def test_the_guard_outlives_a_stage(tmp_path: Path) -> None:
    assert check(tmp_path, "passes", "is_guarded") == OK


def test_each_way_of_ending_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "check"
    assert check(folder, "passes", "fails", "raises", "skips") == FAILED
    found = report(folder)
    assert {name: (result["status"], result["exit"]) for name, result in found.items()} == {
        "passes": ("passed", 0),
        "fails": ("failed", 4),
        "raises": ("failed", 1),
        "skips": ("skipped", 3),
    }
    assert found["passes"]["line"] == "1 checks passed, 1 skipped"
    assert found["fails"]["line"] == "the other one: it is wrong"
    assert found["raises"]["line"] == "ValueError: wrong"
    assert found["skips"]["line"] == "one card only"
    figures = dict(found["passes"]["figures"])  # type: ignore[call-overload]
    about = rf"{__version__}, commit {current_commit()}, \d{{4}}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(about, figures.pop("project"))
    assert figures == {
        "answer": {"of life": 42, "of a third": 1 / 3},
        "ways": {"fast": {"play s": 1.5, "step s": 3}, "alone": {"play s": 0.5}},
    }
    printed = capsys.readouterr().out
    assert all(f"{name:<12}{result['status']}" in printed for name, result in found.items())
    assert "failed: fails, raises." in printed
    page = (folder / "gpu_report.md").read_text()
    assert "- **failed**: the other one: it is wrong" in page
    assert "| answer: of a third | 0.3333 |" in page and "ran on a CPU" in page
    assert "| ways | play s | step s |\n| --- | --- | --- |\n| fast | 1.5 | 3 |\n| alone | 0.5 |  |\n" in page
    assert (folder / "logs" / "passes.log").read_text().startswith("coloured\n")
    assert {path.name for path in folder.iterdir()} == {
        "gpu_report.json",
        "gpu_report.md",
        "logs",
        "stages",
        "in_use.lock",
    }


def test_what_has_passed_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "check"
    assert check(folder, "passes", "fails") == FAILED
    first = (folder / "stages" / "passes.json").stat().st_mtime_ns
    capsys.readouterr()
    assert check(folder, "passes", "fails") == FAILED
    assert "(kept)" in capsys.readouterr().out
    assert (folder / "stages" / "passes.json").stat().st_mtime_ns == first
    for again in (("--stage", "passes"), ("--from", "passes"), ("--again",)):
        check(folder, "passes", "fails", arguments=again)
        assert (folder / "stages" / "passes.json").stat().st_mtime_ns > first, again
        first = (folder / "stages" / "passes.json").stat().st_mtime_ns
    assert check(folder, "passes", "skips", arguments=("--stage", "skips")) == OK


def test_without_what_is_vital_nothing_more_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path / "check", "needs", "passes") == FAILED
    assert report(tmp_path / "check").keys() == {"needs"}
    assert report(tmp_path / "check")["needs"]["line"] == "a need: it is missing"
    assert "not run" in (tmp_path / "check" / "gpu_report.md").read_text()


def test_a_vital_stage_that_goes_to_its_end_does_not_keep_others_from_running(tmp_path: Path) -> None:
    """Of a machine's checks some fail without much following."""
    stages = [stage("fails", vital=True), stage("passes")]
    assert main(["--device", "cpu", "--folder", str(tmp_path / "check")], stages) == FAILED
    assert {name: result["status"] for name, result in report(tmp_path / "check").items()} == {
        "fails": "failed",
        "passes": "passed",
    }


def test_a_stage_ends_at_its_limit_with_all_that_it_started(tmp_path: Path, sleeper: Path) -> None:
    begin = time.monotonic()
    assert check(tmp_path / "check", "hangs", "passes", arguments=("--limit", "4")) == UNFINISHED
    assert time.monotonic() - begin < 60
    found = report(tmp_path / "check")
    assert found["hangs"]["status"] == "ended"
    assert found["hangs"]["line"] == "1 of 2 passed, then its limit of 4 s was over"
    assert found["hangs"]["checks"] and found["passes"]["status"] == "passed"
    assert not psutil.pid_exists(int(sleeper.read_text()))
    assert check(tmp_path / "check", "fails_and_hangs", arguments=("--limit", "4")) == FAILED
    assert report(tmp_path / "check")["fails_and_hangs"]["line"] == "a check: it is wrong"


def test_a_check_ends_in_its_minutes_and_tells_what_it_has(
    tmp_path: Path, sleeper: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = time.monotonic()
    arguments = ("--minutes", "0.5")  # of which 14 s are for ending what runs
    assert check(tmp_path / "check", "passes", "hangs", "skips", arguments=arguments) == UNFINISHED
    assert time.monotonic() - begin < 30
    found = report(tmp_path / "check")
    statuses = {name: result["status"] for name, result in found.items()}
    assert statuses == {"passes": "passed", "hangs": "ended", "skips": "ended"}
    assert found["hangs"]["line"] == "1 of 2 passed, then out of time"
    assert found["skips"]["line"] == "not begun: 0 s left, it needs 1"
    assert not psutil.pid_exists(int(sleeper.read_text()))
    assert "not finished: hangs, skips; the same call goes on with them" in capsys.readouterr().out
    page = (tmp_path / "check" / "gpu_report.md").read_text()
    assert "1 passed, 2 ended" in page and "| hangs | ended |" in page


@pytest.mark.parametrize(
    ("least", "line"),
    [
        (2.0, "1 checks passed, 1 skipped"),
        pytest.param(20.0, "not begun: 0 s left, it needs 20", marks=pytest.mark.full),
    ],
)
def test_stages_side_by_side_leave_time_to_those_that_measure_speed_or_have_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], least: float, line: str
) -> None:
    """What finds no lane in time runs after those that measure speed, if they leave some."""
    for name, number in (("LANES", 2), ("PATIENCE", 4.0), ("AFTER", 1.0)):
        monkeypatch.setattr(running, name, number)
    arguments = ["--device", "cpu", "--folder", str(tmp_path / "check"), "--side-by-side", "--minutes", "0.5"]
    stages = [
        stage("skips"),
        stage("is_deaf", least=3.0),
        stage("hangs", least=4.0),
        alone(stage("passes", least=least)),
    ]
    assert main(arguments, stages) == UNFINISHED
    found = report(tmp_path / "check")
    assert found["hangs"]["line"] == "1 of 2 passed, then out of time"
    assert found["passes"]["line"] == line
    assert found["skips"]["status"] == ("skipped" if least == 2 else "ended")
    said = "no time is left for passes after hangs: the other stages get all of it" in capsys.readouterr().out
    assert said == (least == 20)


def test_what_does_not_hear_is_killed_with_all_that_it_started(
    tmp_path: Path, sleeper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PATIENCE", 1.0)
    assert check(tmp_path / "check", "is_deaf", arguments=("--limit", "4")) == UNFINISHED
    assert not psutil.pid_exists(int(sleeper.read_text()))


def test_side_by_side_only_what_measures_speed_runs_alone(
    tmp_path: Path, sleeper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that wait for each other pass; a stage that ends takes nothing of the others' with it."""
    monkeypatch.setenv("MEETING", str(tmp_path))
    stages = [stage("meets_one"), stage("meets_other"), alone(stage("meets_nobody"))]
    arguments = ["--device", "cpu", "--folder", str(tmp_path / "check"), "--side-by-side"]
    assert main(arguments, stages) == OK
    assert {result["status"] for result in report(tmp_path / "check").values()} == {"passed"}


def test_a_stage_that_somebody_else_ends_says_what_had_passed(tmp_path: Path) -> None:
    folder = tmp_path / "check"
    assert check(folder, "is_ended", "passes") == UNFINISHED
    found = report(folder)
    assert {name: result["status"] for name, result in found.items()} == {"is_ended": "ended", "passes": "passed"}
    assert found["is_ended"]["line"] == "1 of 2 passed, then interrupted"
    assert "\nhalf a li" in (folder / "logs" / "is_ended.log").read_text()
    assert check(folder, "is_killed") == FAILED
    assert report(folder)["is_killed"]["line"] == "1 of 2 passed, then ended by signal SIGKILL"


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "made_stages.py"), "passes,hangs_once", "--device", "cpu"]
    return subprocess.Popen(
        [*command, "--folder", str(folder), *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def wait_for(file: Path) -> None:
    end = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_call_that_was_ended_goes_on(tmp_path: Path, sleeper: Path, number: signal.Signals) -> None:
    folder = tmp_path / "check"
    sleeper.touch()
    assert check(folder, "passes", "hangs_once") == OK
    sleeper.unlink()
    process = started(folder, "--from", "hangs_once")
    wait_for(sleeper)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    if number != signal.SIGKILL:
        assert process.returncode == INTERRUPTED and errors.strip().endswith("the same call goes on")
        assert not psutil.pid_exists(int(sleeper.read_text())) and not (folder / "work").exists()
        assert report(folder)["hangs_once"]["line"] == "1 of 2 passed, then interrupted"
    else:
        assert report(folder).keys() == {"passes"}, "what was to run anew"
    again = started(folder)
    _, errors = again.communicate(timeout=60)
    assert again.returncode == OK, errors
    assert report(folder).keys() == {"passes", "hangs_once"} and not (folder / "work").exists()


def test_a_folder_is_for_one_device_and_one_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "check"
    assert check(folder, "passes") == OK
    assert main(["--device", "cuda", "--folder", str(folder)], [stage("passes")]) == REFUSED
    assert "has results for --device cpu" in capsys.readouterr().err
    assert main(["--device", "cuda", "--folder", str(folder), "--again"], [stage("passes")]) == OK
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "work").mkdir()
    assert check(tmp_path / "other", "passes") == REFUSED
    assert (tmp_path / "other" / "work").is_dir()


@pytest.mark.parametrize("left", ["logs", "gpu_report.json.7.tmp"])
def test_a_call_that_ended_before_its_first_report_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    folder = tmp_path / "check"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(results_module, "write_whole", full)
        assert check(folder, "passes") == FAILED
    (folder / left).touch()
    assert (folder / "stages").is_dir() and check(folder, "passes") == OK
    theirs = tmp_path / "other" / "logs"
    theirs.mkdir(parents=True)
    (theirs / "passes.log").touch()
    assert check(tmp_path / "other", "passes") == REFUSED


@pytest.mark.parametrize("arguments", [("--stage", "x"), ("--limit", "0"), ("--minutes", "0"), ("--from", "x")])
def test_wrong_options_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        check(tmp_path / "check", "passes", arguments=arguments)


def test_a_full_disk_gives_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(tmp_path / "stage", "fills_the_disk") == FAILED
    assert report(tmp_path / "stage")["fills_the_disk"]["line"] == "the disk is full: free some space and start again"
    assert main(["--device", "cpu", "--folder", str(tmp_path / "large")], [stage("passes", disk=1e9)]) == FAILED
    assert "this stage needs 1e+09" in str(report(tmp_path / "large")["passes"]["line"])

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results_module, "write_whole", full)
    assert check(tmp_path / "check", "passes") == FAILED
    assert "the disk is full" in capsys.readouterr().err


def test_a_log_takes_lines_on_a_full_disk_and_keeps_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Log(Path("/dev/full"), Masker({}))
    for number in range(100):
        full.take(f"line {number}")
    full.close()
    assert full.error is not None and full.tail[-1] == "line 99"
    monkeypatch.setattr(results_module, "LARGEST", 1000)
    log = Log(tmp_path / "log", Masker({}))
    for number in range(1000):
        log.take(f"line {number}")
    log.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "line 0" and lines[-1] == "line 999"
    assert len("\n".join(lines)) < 1100 and any("lines left out" in line for line in lines)


SECRET = "s3cret-value-1"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("OPENAI_API_KEY=sk-abcdefghijklmnopqrstu end", "OPENAI_API_KEY=*** end"),
        ("the token is hf_abcdefghijklmnopqrstuvwx", "the token is ***"),
        (f"sent {SECRET} there", "sent *** there"),
        ("{'api_key': 'abcdefghijkl'}", "{'api_key': '***'}"),
        ("Authorization: Bearer abcdefghijk", "Authorization: Bearer ***"),
        ("https://me:pass@host.org/x", "https://***@host.org/x"),
        ("in /home/alice/.cache/x.py, line 3", "in ~/.cache/x.py, line 3"),
        ("in /scratch/alice/models/a.safetensors", "in <path>/a.safetensors"),
        ("in /srv/spiral/recipe/spiral/rae.py:3", "in <project>/recipe/spiral/rae.py:3"),
        ("alice@node17: malice", "<user>@<host>: malice"),
        ("GPU-12345678-9abc-def0-1234-56789abcdef0", "<card>"),
        ("at 10.1.2.3:6379", "at <address>:6379"),
        ("mail alice.b@example.org", "mail <mail>"),
        # what stays
        ("step 1/4  1.0 s (play 0.5)  TicTacToe 44/36/20  3 games/s", None),
        ("/usr/lib/python3.12/site.py, /proc/meminfo, /dev/shm/x", None),
        ("torch 2.11.0, nvidia-nccl-cu13 2.28.9, cudnn 9.19.0.56", None),
        ("127.0.0.1:6379, https://github.com/verl-project/verl", None),
        ("max_tokens=16, tokens: 4096, token ids [1, 2, 3]", None),
    ],
)
def test_keys_users_and_paths_are_masked(text: str, masked: str | None) -> None:
    names = {"/home/alice": "~", "/srv/spiral": "<project>", SECRET: "***"}
    words = {"alice": "<user>", "node17": "<host>"}
    assert Masker(names, words)(text) == (text if masked is None else masked)


def test_nothing_of_this_machine_is_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "a-key-that-nobody-knows")
    folder = tmp_path / "check"
    check(folder, "passes", "fails", "raises")
    written = "".join(file.read_text() for file in folder.rglob("*") if file.is_file())
    assert "abcdefgh12345678" not in written and "***" in written
    for private in (str(tmp_path), str(ROOT), sys.prefix, "a-key-that-nobody-knows"):
        assert private not in written
    assert "<folder>" in written and "<project>" in written


def test_memory_is_told_by_phase() -> None:
    seen = [(0.0, 1.0), (10.5, 5.0), (11.5, 2.0), (12.5, 7.0), (13.5, 3.0), (20.5, 6.0)]
    step = {"step": 4.0, "gen": 1.0, "old_log_prob": 1.0, "update_actor": 1.0}
    found = peaks(seen, [(14.0, step), (24.0, step)])
    assert found == {"start": 1.0, "gen": 6.0, "old_log_prob": 2.0, "update_actor": 7.0, "step": 7.0}
    assert peaks([], [(14.0, step)]) == {}


def test_every_stage_exists_and_has_limits_for_both_devices() -> None:
    import importlib

    assert len({made.name for made in STAGES}) == len(STAGES)
    for made in STAGES:
        module, function = made.function.split(":")
        assert callable(getattr(importlib.import_module(module), function))
        assert made.least.keys() == made.limits.keys() == made.disk.keys() == {"cuda", "cpu"}
        assert all(made.least[device] < made.limits[device] for device in made.limits)
    # docs/gpu.md says that 14 minutes are enough for both kinds of stages; 31 s: what is vital, on an H100
    kinds = [[made.least["cuda"] for made in STAGES if made.alone is speed] for speed in (False, True)]
    assert 13 * 60 < 31 + max(kinds[0]) + sum(kinds[1]) + 3 * (running.PATIENCE + running.AFTER) < 14 * 60


def test_the_list_needs_nothing_installed() -> None:
    """Not even psutil: ``-S`` leaves all packages out."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "benchmarks.gpu_check", "--list"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and len(done.stdout.splitlines()) == len(STAGES), done.stderr
    assert os.access(ROOT / "run_scripts" / "gpu_check.sh", os.X_OK)
