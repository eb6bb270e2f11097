"""Nothing that a run started outlives it, and nothing else is touched."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from recipe.spiral.processes import launch
from recipe.spiral.processes.launch import (
    PROCESSES,
    clean_run,
    end_leftovers,
    is_in_use,
    put_on_path,
    remove_segments,
    set_environment,
)
from recipe.spiral.storage.disk import WITHOUT_LOCKS, InUse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are adopted on Linux only")

ROOT = Path(__file__).resolve().parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
#: A run that starts a child and a daemon whose parent is gone at once, notes both numbers, and goes on as told.
DRIVER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from recipe.spiral.processes.launch import clean_run

run_dir, ending, on_sigterm = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with clean_run(run_dir):
    daemon = (
        f"import signal, time; signal.signal(signal.SIGTERM, signal.{on_sigterm}); print(1, flush=True); time.sleep(60)"
    )
    middle = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE,"
        " stderr=subprocess.DEVNULL, start_new_session=True); p.stdout.readline(); print(p.pid)"
    )
    orphan = subprocess.run([sys.executable, "-c", middle, daemon], capture_output=True, text=True, check=True).stdout
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (run_dir / "started").write_text(f"{orphan.strip()} {child.pid}")
    if ending == "error":
        raise RuntimeError("failed")
    if ending == "wait":
        time.sleep(60)
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user's that no run started."""
    process = subprocess.Popen(SLEEP)
    yield process
    process.kill()
    process.wait()


def start(run_dir: Path, ending: str, stubborn: bool = False) -> subprocess.Popen[bytes]:
    """A driver; a stubborn one's daemon ignores SIGTERM."""
    command = [sys.executable, "-c", DRIVER, str(run_dir), ending, "SIG_IGN" if stubborn else "SIG_DFL"]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)


def started(run_dir: Path) -> list[int]:
    assert wait_until(lambda: (run_dir / "started").exists() and bool((run_dir / "started").read_text()))
    return [int(pid) for pid in (run_dir / "started").read_text().split()]


@pytest.mark.parametrize(
    ("ending", "number", "stubborn"),
    [("done", 0, False), ("error", 0, False), ("wait", signal.SIGINT, True), ("wait", signal.SIGTERM, False)],
)
def test_nothing_outlives_a_run(
    tmp_path: Path, bystander: subprocess.Popen[bytes], ending: str, number: int, stubborn: bool
) -> None:
    """However it ends: neither its children nor a daemon whose parent is gone, be it deaf to SIGTERM."""
    driver = start(tmp_path / "run", ending, stubborn)
    try:
        pids = started(tmp_path / "run")
        if number:
            driver.send_signal(number)
        status = driver.wait(60)
        assert all(map(gone, pids))
        assert (status == 0) == (ending == "done")
        assert not (tmp_path / "run" / PROCESSES).exists()
        assert bystander.poll() is None
    finally:
        driver.kill()
        driver.wait()


def test_a_list_in_a_folder_that_this_start_did_not_write_ends_nobody(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    mine = [[bystander.pid, launch.started(bystander.pid)]]
    (tmp_path / PROCESSES).write_text(json.dumps({"driver": [1, "x"], "processes": mine}))
    assert start(tmp_path, "done").wait(60) == 0
    assert bystander.poll() is None


def test_a_process_is_the_same_whatever_the_clock_says(
    bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = launch.started(bystander.pid)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before and launch.started(bystander.pid) == before != launch.started(os.getpid())
    # the file of which Linux makes a start's time of day moves with the clock, and is not read
    assert before.split()[1].isdecimal() and len(before.split()) == 2
    bystander.kill()
    bystander.wait()
    assert launch.started(bystander.pid) == ""


def _noted(run_dir: Path) -> set[int]:
    try:
        return {pid for pid, _ in json.loads((run_dir / PROCESSES).read_text())["processes"]}
    except FileNotFoundError:
        return set()


def test_a_process_number_that_was_used_again_is_left_alone(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    notes = tmp_path / PROCESSES
    since = launch.started(os.getpid())
    notes.write_text(json.dumps({"driver": OF, "processes": [[bystander.pid, since]]}))
    assert end_leftovers(notes, OF) == 0
    assert bystander.poll() is None


#: A driver, by number and start.
OF = [1, "a boot 2"]
ODD = [
    "",
    "[[1",
    "[]",
    "null",
    "7",
    '"x"',
    "{}",
    '{"processes": 7}',
    '{"processes": [7]}',
    '{"processes": [[null, 1]]}',
    '{"processes": [], "segments": 7}',
    '{"processes": [["1", "x"]]}',
    "[" * 100_000,
    "\ud800",
]


@pytest.mark.parametrize("text", [None, *ODD])
def test_notes_that_cannot_be_read_end_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / PROCESSES).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert end_leftovers(tmp_path / PROCESSES, OF) == 0


@pytest.mark.parametrize("pid", [-1, 10**30, 0])
def test_numbers_of_no_process_end_nothing(tmp_path: Path, pid: int) -> None:
    (tmp_path / PROCESSES).write_text(json.dumps({"driver": OF, "processes": [[pid, ""]]}))
    assert end_leftovers(tmp_path / PROCESSES, OF) == 0


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /dev/shm."""
    monkeypatch.setattr(launch, "_SHM", tmp_path)
    return tmp_path


HOLDER = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(1, flush=True); input()"


def hold(segment: Path) -> subprocess.Popen[bytes]:
    """A process that has the segment mapped until a line comes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(segment)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_only_the_named_segments_that_nobody_has_mapped_are_removed(shm: Path) -> None:
    for name in ("psm_ours", "torch_1_2", "psm_another_runs", "psm_mapped"):
        (shm / name).write_bytes(b"x" * 4096)
    holder = hold(shm / "psm_mapped")
    try:
        assert remove_segments(["psm_ours", "torch_1_2", "psm_mapped", "psm_gone"]) == 2
        assert sorted(path.name for path in shm.iterdir()) == ["psm_another_runs", "psm_mapped"]
    finally:
        holder.communicate(b"\n")
    assert remove_segments(["psm_mapped"]) == 1
    assert [path.name for path in shm.iterdir()] == ["psm_another_runs"]


def test_a_killed_processs_semaphore_is_removed() -> None:
    """It is mapped under a name that is gone by then."""
    code = (
        "import multiprocessing, os, signal; lock = multiprocessing.get_context('spawn').Lock(); "
        "print(lock._semlock.name, flush=True); input()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        semaphore = Path("/dev/shm", f"sem.{holder.stdout.readline().strip().lstrip('/')}")
        assert semaphore.exists()
        assert launch._segments_of([psutil.Process(holder.pid)]) == {semaphore.name}
        for process in [*psutil.Process(holder.pid).children(), holder]:
            process.kill()  # the tracker first, which would remove it
        holder.wait()
        assert semaphore.exists()
        assert remove_segments([semaphore.name]) == 1 and not semaphore.exists()
    finally:
        holder.kill()


#: A run that keeps its segments in a folder, and two of whose processes have one each.
HOLDING = f"""
import subprocess, sys
from pathlib import Path
from recipe.spiral.processes import launch

launch._SHM = Path(sys.argv[1])
with launch.clean_run(Path(sys.argv[2])):
    for segment in sys.argv[3:]:
        command = [sys.executable, "-c", {HOLDER!r}, segment]
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE).stdout.readline()
"""


def test_a_run_removes_the_segments_of_its_processes_and_no_others(shm: Path, tmp_path: Path) -> None:
    """Two runs at once: what nobody has mapped for a moment may be the other's."""
    for name in ("psm_ours", "psm_another_runs", "notes"):
        (shm / name).write_bytes(b"x" * 4096)
    held = [str(shm / name) for name in ("psm_ours", "notes")]
    # In a process of its own: whoever ends a run ends all children, and tests share some.
    subprocess.run([sys.executable, "-c", HOLDING, shm, tmp_path / "run", *held], cwd=ROOT, check=True, timeout=60)
    left = {path.name for path in shm.iterdir() if path.is_file()}
    assert left == {"psm_another_runs", "notes"}, "a file of no known kind is nobody's segment"


def test_segments_of_a_killed_run_are_removed(shm: Path, tmp_path: Path) -> None:
    (shm / "psm_ours").write_bytes(b"x" * 4096)
    (shm / "verl_weights_noted").write_bytes(b"x" * 4096)
    holder = hold(shm / "psm_ours")
    notes = tmp_path / PROCESSES
    mine = [[holder.pid, launch.started(holder.pid)]]
    notes.write_text(json.dumps({"driver": OF, "processes": mine, "segments": ["verl_weights_noted"]}))
    assert end_leftovers(notes, OF) == 1
    holder.wait(60)
    assert not (shm / "psm_ours").exists() and not (shm / "verl_weights_noted").exists()


def test_notes_remove_nothing_but_segments(shm: Path, tmp_path: Path) -> None:
    """Whoever can write into a run's folder must not be able to remove the user's files."""
    (shm / "psm_folder").mkdir()
    files = [tmp_path / name for name in ("mine", "shm_mine", "psm_folder/mine")]
    for file in files:
        file.write_bytes(b"x")
    names = ["mine", "psm_folder/../mine", "psm_folder/mine", str(files[0]), "../x", "", "."]
    (tmp_path / PROCESSES).write_text(json.dumps({"driver": OF, "processes": [], "segments": names}))
    assert end_leftovers(tmp_path / PROCESSES, OF) == 0
    assert all(file.exists() for file in files)
    assert remove_segments(names) == 0


def test_a_folder_is_one_runs(tmp_path: Path) -> None:
    """A second start in the same folder must not take the first one's processes for leftovers."""
    assert not is_in_use(tmp_path / "run")
    first = start(tmp_path / "run", "wait")
    try:
        pids = started(tmp_path / "run")
        assert is_in_use(tmp_path / "run")
        assert wait_until(lambda: _noted(tmp_path / "run") >= set(pids))
        refused = pytest.raises(InUse, match=rf"run_dir=.*/run: process {first.pid} is at work there")
        with refused, clean_run(tmp_path / "run"):
            pytest.fail("two runs in one folder")
        assert not any(map(gone, pids))
        first.send_signal(signal.SIGTERM)
        first.wait(60)
        assert not is_in_use(tmp_path / "run")
        assert start(tmp_path / "run", "done").wait(60) == 0
    finally:
        first.kill()
        first.wait()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)


def test_a_folder_without_locks_is_refused_unless_the_user_takes_it(
    tmp_path: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = pytest.raises(InUse, match=r"run_dir=.*: files cannot be locked there .*SPIRAL_WITHOUT_LOCKS=1")
    with refused, launch.only_one(tmp_path):
        pytest.fail("two runs in one folder")
    monkeypatch.setenv(WITHOUT_LOCKS, "1")
    with launch.only_one(tmp_path):
        assert is_in_use(tmp_path)  # so that nobody takes it for a killed run's


def test_what_a_killed_driver_leaves_is_ended_without_another_start(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    driver = start(tmp_path / "run", "wait", stubborn=True)
    pids = started(tmp_path / "run")
    assert wait_until(lambda: _noted(tmp_path / "run") >= set(pids))
    guards = [child for child in psutil.Process(driver.pid).children() if "after_kill" in " ".join(child.cmdline())]
    driver.kill()
    driver.wait()
    assert wait_until(lambda: all(map(gone, [*pids, *(guard.pid for guard in guards)]))) and len(guards) == 1
    assert bystander.poll() is None


def test_another_starts_processes_are_left_alone(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    """It may have begun in the folder before the guard of the killed one looks."""
    noted = {"driver": OF, "processes": [[bystander.pid, launch.started(bystander.pid)]], "segments": []}
    (tmp_path / PROCESSES).write_text(json.dumps(noted))
    assert end_leftovers(tmp_path / PROCESSES, of=[1, "another"]) == 0 and bystander.poll() is None
    assert (tmp_path / PROCESSES).exists()


def test_runs_side_by_side_leave_each_other_alone(tmp_path: Path) -> None:
    first, second = start(tmp_path / "first", "wait"), start(tmp_path / "second", "wait")
    try:
        firsts, seconds = started(tmp_path / "first"), started(tmp_path / "second")
        first.send_signal(signal.SIGTERM)
        first.wait(60)
        assert all(map(gone, firsts)) and not any(map(gone, seconds))
        second.send_signal(signal.SIGTERM)
        second.wait(60)
        assert all(map(gone, seconds))
    finally:
        for driver in (first, second):
            driver.kill()
            driver.wait()


def test_orphans_are_adopted_during_a_run_alone(tmp_path: Path) -> None:
    """Afterwards they would stay in the table of processes, because nobody would ask how they ended."""
    parents = []
    for folder in ("a run", None):
        with clean_run(tmp_path / folder) if folder else nullcontext():
            program = "from subprocess import *; print(Popen(['sleep', '1234'], stdout=DEVNULL).pid)"
            orphan = psutil.Process(int(subprocess.check_output([sys.executable, "-c", program])))
            parents.append(orphan.ppid())
            orphan.kill()
    assert parents[0] == os.getpid() and parents[1] != os.getpid()


def test_a_machine_without_shared_memory_has_no_segments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launch, "_SHM", tmp_path / "none")
    assert remove_segments(["psm_1"]) == 0


def test_the_users_own_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPIRAL_TEST_SET", "mine")
    monkeypatch.setenv("SPIRAL_TEST_UNSET", "x")
    monkeypatch.delenv("SPIRAL_TEST_UNSET")
    set_environment({"SPIRAL_TEST_SET": "ours", "SPIRAL_TEST_UNSET": 4})
    assert (os.environ["SPIRAL_TEST_SET"], os.environ["SPIRAL_TEST_UNSET"]) == ("mine", "4")


def test_a_folder_is_put_on_the_path_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    put_on_path(tmp_path)
    put_on_path(tmp_path)
    assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}/elsewhere"
