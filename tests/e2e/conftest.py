"""Real runs in processes of their own, each with a hard limit, each cleaned up after."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord
from recipe.spiral.processes.launch import end_with_parent

#: Seconds for a run: several times what it takes, as machines differ by so much.
LIMIT = 900.0
#: The setting that names the folder of what a program makes.
FOLDERS = {"main_spiral": "run_dir", "main_eval": "eval_dir"}
#: Seconds in which an interrupted run cleans up.
PATIENCE = 20.0
ROOT = Path(__file__).resolve().parents[2]
#: What this project puts among a Python's packages, and verl.
_OURS = ("verl_spiral", "__editable__", "recipe", "verl", "_verl_spiral")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test here has the time of some runs, instead of pyproject.toml's. It comes before all others, so that at last
    no process waits for another one's run."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.parent != here)
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.timeout(3 * LIMIT))


class Run:
    """A training run, or an evaluation: ``python -m recipe.spiral.main_spiral`` or ``main_eval`` with overrides.

    Args:
        run_dir: its folder; its output goes into a file beside it.
        overrides: Hydra's.
        program: ``main_spiral`` or ``main_eval``.
        python: the interpreter.
        cwd: where it is started.
        environment: variables besides this process's.
    """

    def __init__(
        self,
        run_dir: Path,
        *overrides: str,
        program: str = "main_spiral",
        python: str = sys.executable,
        cwd: Path = ROOT,
        environment: dict[str, str] | None = None,
        limit: float = LIMIT,
    ) -> None:
        self.run_dir = run_dir
        self.output_file = run_dir.parent / f"{run_dir.name}-{time.monotonic_ns()}.txt"
        self.output_file.parent.mkdir(parents=True, exist_ok=True)
        with self.output_file.open("w") as output:
            self.process = subprocess.Popen(
                [python, "-m", f"recipe.spiral.{program}", f"{FOLDERS[program]}={run_dir}", *overrides],
                cwd=cwd,
                env={**os.environ, "WANDB_MODE": "disabled", **(environment or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self._limit = threading.Timer(limit, self.kill)
        self._limit.start()

    @property
    def output(self) -> str:
        return self.output_file.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        return self.output.strip().splitlines()[-1]

    def wait_for(self, pattern: str, seconds: float = LIMIT) -> None:
        """Wait until a line of the output matches."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if re.search(pattern, self.output, re.MULTILINE):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        pytest.fail(f"no line matches {pattern!r} (exit {self.process.poll()}):\n{self.output[-4000:]}")

    def wait(self, seconds: float = LIMIT) -> int:
        """Wait for the end; returns the exit status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s:\n{self.output[-4000:]}")
        self._limit.cancel()
        return status

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def find(self, title: str) -> psutil.Process:
        """The run's process with this in its command line. Ray writes it anew at each call: a look may miss it."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for process in self.descendants():
                with suppress(psutil.NoSuchProcess):
                    if title in " ".join(process.cmdline()):
                        return process
            time.sleep(0.05)
        pytest.fail(f"the run has no process {title!r}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End everything at once, as when a machine goes down."""
        try:
            processes = [*self.descendants(), psutil.Process(self.process.pid)]
        except psutil.Error:
            return
        for process in processes:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue

    def close(self) -> None:
        """End the run as Ctrl-C does."""
        self._limit.cancel()
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        self.kill()
        self.process.wait()


class Left:
    """What a run has now: its processes, and the shared memory that they have mapped."""

    def __init__(self, run: Run) -> None:
        self.processes = run.descendants()
        self.names = {process.pid: name_of(process) for process in self.processes}
        self.segments: set[Path] = set()
        for process in self.processes:
            with suppress(OSError):
                maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
                self.segments |= {Path(path) for path in re.findall(r"/dev/shm/\S+", maps)}

    def gone(self, seconds: float) -> list[str]:
        """Wait for all of it to be gone; returns what is still there."""
        end = time.monotonic() + seconds
        while (left := self._alive()) and time.monotonic() < end:
            time.sleep(0.2)
        return left + [str(segment) for segment in self.segments if segment.exists()]

    def _alive(self) -> list[str]:
        alive = [each for each in self.processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        return [self.names[each.pid] for each in alive]


def name_of(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())[:60] or process.name()
    return ""


class Runs(list[Run]):
    """Runs that are ended together, whatever happens."""

    def start(self, run_dir: Path, *overrides: str, **how: Any) -> Run:
        """``how`` as of ``Run``."""
        self.append(run := Run(run_dir, *overrides, **how))
        return run

    def train(self, run_dir: Path, *overrides: str, **how: Any) -> Run:
        """A run to its end."""
        run = self.start(run_dir, *overrides, **how)
        assert run.wait() == 0, run.output[-4000:]
        return run

    def kill_and_resume(self, run_dir: Path, after: int, *overrides: str, **how: Any) -> None:
        """A run that is killed after the line of a step, and started again to its end."""
        killed = self.start(run_dir, *overrides, **how)
        killed.wait_for(rf"^step *{after}/")
        killed.signal(signal.SIGKILL)
        killed.wait()
        assert "going on after step" in self.train(run_dir, *overrides, **how).output

    def close(self) -> None:
        for run in self:
            run.close()


@pytest.fixture
def runs() -> Iterator[Runs]:
    with closing(Runs()) as started:
        yield started


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A tree with ``verl/`` and ``recipe/spiral/``, and a Python without the distribution verl-spiral."""
    tree = tmp_path_factory.mktemp("fork")
    verl = importlib.util.find_spec("verl")
    assert verl is not None and verl.origin is not None
    shutil.copytree(Path(verl.origin).parent, tree / "verl")
    shutil.copytree(
        ROOT / "recipe" / "spiral", tree / "recipe" / "spiral", ignore=shutil.ignore_patterns("__pycache__")
    )
    environment = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        # verl itself comes from the tree, its metadata stays
        if not entry.name.startswith(_OURS) or entry.name.startswith("verl-"):
            (site / entry.name).symlink_to(entry)
    return tree, str(python)


@pytest.fixture(scope="session")
def model(of_the_session: Path) -> Path:
    """An embedded tiny model that was hardly warmed up: it errs, which the runs here must cope with."""
    from recipe.spiral.lab.models.tiny import Spec, make_tiny
    from recipe.spiral.lab.models.warm_start import Schedule

    folder = of_the_session / "models" / "tiny"
    with FileLock(of_the_session / "models.lock"):
        if not folder.exists():
            schedule = Schedule(steps=80, rounds=1)
            made = replace(Spec.of(("TicTacToe", "KuhnPoker")), hidden_size=64, layers=2, schedule=schedule)
            make_tiny(made, folder.with_name("unfinished"), check=False)
            folder.with_name("unfinished").rename(folder)
    return folder


def games_of(run_dir: Path, split: str = "train") -> list[GameRecord]:
    """The games of a run in the order in which it played them."""
    return list(RecordFolder(run_dir / "games").read(split))


def logged(run_dir: Path, having: str = "actor/grad_norm") -> dict[int, dict[str, float]]:
    """What a run logged that has this metric, by step: of training steps, unless it is another's."""
    lines = [line for file in sorted(run_dir.glob("metrics-*.jsonl")) for line in file.read_text().splitlines()]
    return {entry["step"]: entry["data"] for entry in map(json.loads, lines) if having in entry["data"]}


def said(record: GameRecord) -> object:
    """What two runs of one seed must have alike of a game."""
    turns = [(turn.response, turn.verdict, turn.advantage) for turn in record.turns]
    tokens = [(turn.tokens.response_ids, turn.tokens.answered_by) for turn in record.turns if turn.tokens is not None]
    result = record.termination, record.rewards, record.baselines, record.discarded
    return record.key, record.game, record.players, result, turns, tokens


def check_who_answered(records: list[GameRecord]) -> None:
    """Each turn by whose it should be, and only the policy's were trained. Random players have no tokens."""
    for record in records:
        for turn in record.turns:
            learns = turn.player in record.trainable
            assert (turn.advantage is not None) == (learns and record.discarded is None)
            if record.players[turn.player] != "random":
                assert turn.tokens is not None
                assert turn.tokens.answered_by == (None if learns else record.players[turn.player])


def kill_a_worker(run: Run, after: str) -> None:
    """Kill a worker of a run, after a line. The run ends: soon, with the reason in the last line, and leaving nothing
    behind."""
    run.wait_for(after)
    left = Left(run)
    run.find("VLLMServer").kill()
    assert run.wait(90) == 1
    assert run.last_line.startswith("spiral: ") and "vllm_server_0_0" in run.last_line, run.last_line
    assert left.gone(30) == []


LORA = ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"]
NO_VALIDATION = ["trainer.val_before_train=false", "trainer.test_freq=-1"]
#: With these, two runs of one seed give the same weights, to the bit.
DETERMINISM = [
    "actor_rollout_ref.actor.fsdp_config.full_determinism=true",
    "critic.fsdp.full_determinism=true",
    "actor_rollout_ref.rollout.enable_prefix_caching=false",
]


def small(model: Path, *overrides: str) -> list[str]:
    """Overrides of a run that is over in minutes."""
    return [
        "model=tiny",
        f"actor_rollout_ref.model.path={model}",
        "data.train_batch_size=16",
        "validation.games_per_role=4",
        "trainer.logger=[file]",
        *overrides,
    ]
