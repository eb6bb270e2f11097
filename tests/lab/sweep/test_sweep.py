"""A sweep's jobs run in processes of their own, one after the other or side by side; a stub is the trainer."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from recipe.spiral.checks import ConfigError
from recipe.spiral.lab.sweep.jobs import OUTPUT, STATE, Job, State, _devices, _name
from recipe.spiral.lab.sweep.runner import Sweep
from recipe.spiral.lab.sweep.sweep_table import REPORT, TABLE
from recipe.spiral.storage.record_folder import RecordFolder
from tests.made import record
from tests.made_configs import CONFIG
from tests.made_configs import config as a_config

ROOT = Path(__file__).resolve().parents[3]
#: Does what its arguments say in the folder that they name: a training run as a sweep sees it.
STUB = """
import json, os, signal, sys, time
from pathlib import Path

folder, does = Path(sys.argv[1]), sys.argv[2]
started, pid = time.monotonic(), os.getpid()

def note():
    with open(folder / "starts.jsonl", "a") as out:
        span = [started, time.monotonic()]
        devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        out.write(json.dumps({"pid": pid, "sid": os.getsid(0), "span": span, "devices": devices}) + "\\n")

def interrupted(number, frame):
    (folder / "cleaned").touch()
    note()
    print("spiral: interrupted by SIGTERM", file=sys.stderr)
    sys.exit(130)

signal.signal(signal.SIGTERM, interrupted)
print("step 1/3  played", flush=True)
with open(folder / "train.log", "a") as log:
    log.write("training for 3 steps\\nstep 1/3  0.1 s\\n")
(folder / "ready").touch()
if does == "bad":
    note()
    print("spiral: games: unknown | game 'Chess'", file=sys.stderr)
    sys.exit(2)
if does == "stopped":
    note()
    print("spiral: stopped after step 1 by guard.action=stop: KuhnPoker: player 0 won all", file=sys.stderr)
    sys.exit(3)
if does == "killed":
    note()
    os.kill(pid, signal.SIGKILL)
if does == "wait" and not (folder / "go").exists():
    time.sleep(60)
time.sleep(float(does) if does[0].isdigit() else 0.05)
with open(folder / "train.log", "a") as log:
    log.write("step 3/3  0.1 s\\ntrained to step 3 in 1s\\n")
note()
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("stub") / "stub.py"
    path.write_text(STUB)
    return [sys.executable, "-u", str(path)]


#: Runs a sweep of jobs that do what they are named after, in a process of its own: a sweep ends all that is below it.
DRIVER = """
import json, sys
from pathlib import Path
from recipe.spiral.lab.sweep.jobs import Job
from recipe.spiral.lab.sweep.runner import Sweep

folder, at_once, does, command, digest, devices = json.loads(sys.argv[1])
jobs = [
    Job(f"job={i}", Path(folder) / f"job={i}", {"job": str(i)}, (f"{folder}/job={i}", each), digest, devices)
    for i, each in enumerate(does)
]
try:
    sys.exit(Sweep(jobs, Path(folder), at_once, command).run())
except KeyboardInterrupt:
    sys.exit(130)
"""


class Driver:
    """A sweep in a process of its own."""

    def __init__(
        self, folder: Path, stub: list[str], *does: str, at_once: int = 1, config: str = "c", devices: int = 0
    ):
        self.folder = folder
        arguments = json.dumps([str(folder), at_once, does, stub, config, devices])
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, arguments],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def wait(self, seconds: float = 240.0) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output

    def wait_for(self, path: str, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not (self.folder / path).exists():
            assert time.monotonic() < end, f"{path} did not come"
            time.sleep(0.02)


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.process.kill()
        driver.process.communicate()


def starts(folder: Path, job: int) -> list[dict]:
    path = folder / f"job={job}" / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / TABLE).open(newline="") as rows:
        return list(csv.DictReader(rows))


def test_a_job_that_the_guard_stopped_has_not_failed(tmp_path: Path, stub: list[str], drivers: list[Driver]) -> None:
    """It is not done either: a second start goes on with it."""
    reason = "stopped after step 1 by guard.action=stop: KuhnPoker: player 0 won all"
    drivers.append(driver := Driver(tmp_path, stub, "stopped", "ok"))
    status, output = driver.wait()
    assert status == 1, output
    assert [(row["status"], row["message"]) for row in table(tmp_path)] == [("stopped", reason), ("ok", "")]
    assert re.search(rf"job 1/2 job=0: stopped after 1 steps and \d+s, {reason}\n", output)
    assert f"- job=0: {reason}" in (tmp_path / REPORT).read_text()
    assert State.read(tmp_path / "job=0").status == "stopped"
    drivers.append(again := Driver(tmp_path, stub, "stopped", "ok"))
    again.wait()
    assert [len(starts(tmp_path, job)) for job in (0, 1)] == [2, 1]


def test_a_job_that_fails_does_not_end_the_others(tmp_path: Path, stub: list[str], drivers: list[Driver]) -> None:
    drivers.append(driver := Driver(tmp_path, stub, "ok", "bad", "killed", "ok"))
    status, output = driver.wait()
    assert status == 1, output
    runs = [starts(tmp_path, job)[0] for job in range(4)]
    assert len({run["pid"] for run in runs}) == 4 and driver.process.pid not in {run["pid"] for run in runs}
    assert all(run["sid"] == run["pid"] for run in runs), "Ctrl-C is for the sweep alone"
    spans = [run["span"] for run in runs]
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), "side by side"
    rows = table(tmp_path)
    assert [row["job"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["status"] for row in rows] == ["ok", "failed", "failed", "ok"]
    assert [row["steps"] for row in rows] == ["3", "1", "1", "3"]
    assert rows[1]["message"] == "games: unknown | game 'Chess'"
    assert "[job=0] step 1/3  played\n" in output
    assert re.search(r"job 2/4 job=1: failed after 1 steps and \d+s, games: unknown \| game 'Chess'\n", output)
    assert (tmp_path / REPORT).read_text().strip() in output
    assert "- job=1: games: unknown | game 'Chess'" in output


def test_a_second_start_skips_what_is_done(tmp_path: Path, stub: list[str], drivers: list[Driver]) -> None:
    drivers.append(Driver(tmp_path, stub, "ok", "bad"))
    assert drivers[-1].wait()[0] == 1
    drivers.append(Driver(tmp_path, stub, "ok", "ok"))
    status, output = drivers[-1].wait()
    assert (status, "1 done before" in output) == (0, True), output
    assert (len(starts(tmp_path, 0)), len(starts(tmp_path, 1))) == (1, 2)
    assert [row["status"] for row in table(tmp_path)] == ["ok", "ok"]
    assert State.read(tmp_path / "job=1").message == "", "the failure is over"


def test_a_done_job_with_another_config_is_started_again(
    tmp_path: Path, stub: list[str], drivers: list[Driver]
) -> None:
    for config, count in (("three steps", 1), ("three steps", 1), ("six steps", 2)):
        drivers.append(Driver(tmp_path, stub, "ok", config=config))
        assert drivers[-1].wait()[0] == 0
        assert len(starts(tmp_path, 0)) == count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_job_and_the_sweep(
    tmp_path: Path, stub: list[str], drivers: list[Driver], number: signal.Signals
) -> None:
    drivers.append(driver := Driver(tmp_path, stub, "ok", "wait", "ok"))
    driver.wait_for("job=1/ready")
    driver.process.send_signal(number)
    status, output = driver.wait()
    assert status == 130, output
    assert (tmp_path / "job=1/cleaned").exists(), "the job had no time to clean up"
    assert [row["status"] for row in table(tmp_path)] == ["ok", "interrupted", "waiting"]
    assert not starts(tmp_path, 2)

    (tmp_path / "job=1/go").touch()
    drivers.append(Driver(tmp_path, stub, "ok", "wait", "ok"))
    assert drivers[-1].wait()[0] == 0
    assert [len(starts(tmp_path, job)) for job in range(3)] == [1, 2, 1]


def test_a_job_that_still_saves_counts_as_interrupted_and_is_let_alone(tmp_path: Path) -> None:
    from recipe.spiral.lab.sweep.runner import _Running

    job = Job("job=0", tmp_path / "job=0", {}, (), "c")
    sweep = Sweep([job], tmp_path, 1, ["true"])
    job.folder.mkdir(exist_ok=True)
    (job.folder / OUTPUT).touch()
    with subprocess.Popen(["sleep", "60"]) as saving:
        sweep._end(_Running(job, saving, 0, 0.0, 0.0, 0, ExitStack()))
        assert saving.poll() is None and sweep.states["job=0"].status == "interrupted"
        saving.kill()


def test_a_killed_sweep_leaves_a_table_and_ends_its_job(tmp_path: Path, stub: list[str], drivers: list[Driver]) -> None:
    drivers.append(driver := Driver(tmp_path, stub, "ok", "wait"))
    driver.wait_for("job=1/ready")
    driver.process.kill()
    driver.wait_for("job=1/cleaned")
    assert [row["status"] for row in table(tmp_path)] == ["ok", "running"]
    (tmp_path / "job=1/go").touch()
    drivers.append(Driver(tmp_path, stub, "ok", "wait"))
    assert drivers[-1].wait()[0] == 0
    assert [row["status"] for row in table(tmp_path)] == ["ok", "ok"]


def test_a_job_that_is_interrupted_alone_is_no_reason_to_stop(
    tmp_path: Path, stub: list[str], drivers: list[Driver]
) -> None:
    drivers.append(driver := Driver(tmp_path, stub, "wait", "ok"))
    driver.wait_for("job=0/ready")
    children = psutil.Process(driver.process.pid).children()
    [job] = [child for child in children if str(tmp_path / "job=0") in child.cmdline()]
    job.terminate()
    assert driver.wait()[0] == 1
    assert [row["status"] for row in table(tmp_path)] == ["interrupted", "ok"]


def test_jobs_side_by_side(tmp_path: Path, stub: list[str], drivers: list[Driver]) -> None:
    """Never more at once than asked for; each with accelerators of its own; their output in files alone."""
    drivers.append(driver := Driver(tmp_path, stub, *["1.0"] * 5, at_once=2, devices=2))
    status, output = driver.wait()
    assert status == 0, output
    runs = [starts(tmp_path, job)[0] for job in range(5)]
    spans = [run["span"] for run in runs]
    together = [sum(a[0] < b[1] and b[0] < a[1] for b in spans) for a in spans]
    at_once = max(sum(a[0] <= t < a[1] for a in spans) for t, _ in spans)
    assert at_once == 2 and max(together) > 1
    for a, one in zip(spans, runs, strict=True):
        for b, other in zip(spans, runs, strict=True):
            assert a is b or a[1] <= b[0] or b[1] <= a[0] or one["devices"] != other["devices"]
    assert {run["devices"] for run in runs} == {"0,1", "2,3"}
    assert "played" not in output and "job 5/5 job=4: ok after 3 steps" in output
    for job in range(5):
        lines = [line for line in output.splitlines() if line.startswith(f"job {job + 1}/5 job={job}: step")]
        assert lines == [f"job {job + 1}/5 job={job}: step {step}/3" for step in (1, 3)], "how far it is"
    assert "played" in (tmp_path / "job=4" / OUTPUT).read_text()


def test_jobs_of_different_sizes_share_no_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = [Job(f"n={n}", tmp_path / str(n), {}, devices=n) for n in (2, 1)]
    together = Sweep(jobs, tmp_path, 2, [])
    shares = [together._devices(job, slot)["CUDA_VISIBLE_DEVICES"] for slot, job in enumerate(jobs)]
    assert shares == ["0,1", "2"]


def test_engines_with_accelerators_of_their_own_are_counted(tmp_path: Path) -> None:
    def count(*overrides: str) -> int:
        return _devices(a_config(tmp_path, "trainer.n_gpus_per_node=2", *overrides, hardware="gpu"))

    own = ("opponent_engine.devices=own", "fsp.enabled=true", "fsp.members_per_step=3")
    assert (count(), count(*own)) == (2, 5)
    apart = ("trainer.v1.trainer_mode=separate_async", "actor_rollout_ref.rollout.n_gpus_per_node=4")
    assert (count(*apart), count(*apart, *own)) == (6, 12)
    with pytest.raises(ConfigError, match=r"fsp\.size=many: must be"):
        count("fsp.size=many")


def test_the_same_sweep_runs_once_at_a_time(tmp_path: Path, stub: list[str], drivers: list[Driver]) -> None:
    drivers.append(first := Driver(tmp_path, stub, "wait"))
    first.wait_for("job=0/ready")
    drivers.append(second := Driver(tmp_path, stub, "wait"))
    status, output = second.wait()
    assert status == 1 and f"process {first.process.pid} is at work there" in output
    assert first.process.poll() is None and not (tmp_path / "job=0/cleaned").exists()


def test_the_table_tells_of_the_first_and_the_last_validation(tmp_path: Path) -> None:
    """By game and role, also where jobs play different games or were never validated."""
    jobs = [Job(f"games={i}", tmp_path / str(i), {"games": f"[{i},x|y]"}) for i in range(3)]
    for i, game in ((0, "Nim"), (1, "KuhnPoker")):
        folder = RecordFolder(tmp_path / str(i) / "games")
        for step, wins in ((0, 1), (6, 3)):
            games = [
                record(k, game, (1.0, -1.0) if k < wins else (-1.0, 1.0), trainable=(0,), turns=()) for k in range(4)
            ]
            folder.write("val", step, games)
        State("ok", steps=6, seconds=65.25).write(jobs[i].folder)
    report = Sweep(jobs, tmp_path, 1, []).write_tables()
    rows = table(tmp_path)
    assert rows[0]["games"] == "[0,x|y]" and rows[0]["seconds"] == "65.2"
    assert (rows[0]["Nim/p0/win_before"], rows[0]["Nim/p0/win_after"]) == ("0.25", "0.75")
    assert rows[0]["KuhnPoker/p0/win_before"] == "" and rows[1]["KuhnPoker/p0/win_after"] == "0.75"
    assert (rows[2]["status"], rows[2]["Nim/p0/win_after"]) == ("waiting", "")
    header, _, first, *_ = report.splitlines()
    wins = [f"{game}/p0/win_{when}" for game in ("Nim", "KuhnPoker") for when in ("before", "after")]
    assert header.split() == ["games", "status", "steps", "seconds", *wins]
    assert first.split() == ["[0,x|y]", "ok", "6", "65.2", "0.25", "0.75"]


def test_one_validation_is_no_change(tmp_path: Path) -> None:
    RecordFolder(tmp_path / "games").write("val", 0, [record(0, "Nim", (1.0, -1.0), trainable=(0,))])
    Sweep([Job("job", tmp_path, {})], tmp_path, 1, []).write_tables()
    assert (table(tmp_path)[0]["Nim/p0/win_before"], table(tmp_path)[0]["Nim/p0/win_after"]) == ("1", "")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"unknown": 1}'])
def test_a_state_that_cannot_be_read_is_of_a_job_that_has_not_run(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE).write_text(text)
    assert State.read(tmp_path) == State()


@pytest.mark.parametrize(
    ("swept", "name"),
    [
        ({"seed": "1", "algorithm.rae.decay": "0.9"}, "algorithm.rae.decay=0.9,seed=1"),
        ({"games": "[TicTacToe,{id: KuhnPoker-5, weight: 2}]"}, "games=TicTacToe,id_KuhnPoker-5,_weight_2"),
        ({"+model.path": "'/models/a b'"}, "model.path=_models_a_b"),
        ({}, "job"),
    ],
)
def test_a_folder_is_named_by_what_is_swept(swept: dict[str, str], name: str) -> None:
    assert _name(swept) == name


def test_a_long_name_is_cut_and_still_its_own() -> None:
    names = {_name({"path": "x" * 300 + end}) for end in "ab"}
    assert len(names) == 2 and all(len(name) <= 150 for name in names)


# -- from the command line: Hydra composes, and a job's own process composes the same again ----------------------------

#: The entry point, with another program for the jobs.
ENTRY = "import sys; from recipe.spiral import main_spiral; from recipe.spiral.lab import extension; " + (
    "n = int(sys.argv.pop(1)); extension.JOB = sys.argv[1 : n + 1]; del sys.argv[1 : n + 1]; main_spiral.main()"
)
COMPOSE = [sys.executable, "-m", "recipe.spiral.main_spiral", "--cfg", "job", "--resolve"]


def sweep(command: list[str], *arguments: str, cwd: Path = ROOT, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, str(len(command)), *command, *arguments],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    return done.returncode, done.stdout


@pytest.mark.full
def test_each_job_composes_what_was_swept(tmp_path: Path) -> None:
    """Lists, quotes, commas, groups, a file of --config-dir, and Hydra's own number of the job."""
    status, output = sweep(
        COMPOSE,
        *("--config-dir", "config", "-m", "+experiment=smollm2_cpu", "loss=importance_sampling", f"run_dir={tmp_path}"),
        "games=[KuhnPoker],[TicTacToe,{id: 'KuhnPoker-5', weight: 2}]",
        "trainer.project_name='a, \"b\" = c'",
        "seed=${hydra:job.num}",
        "hydra.job.name=named",
    )
    assert status == 0, output
    folders = [tmp_path / row["folder"] for row in table(tmp_path)]
    assert len(folders) == 2
    configs = [OmegaConf.load(folder / OUTPUT) for folder in folders]
    assert [config.seed for config in configs] == [0, 1]
    for config, folder in zip(configs, folders, strict=True):
        assert config.embedded_model == "smollm2_135m"
        assert config.actor_rollout_ref.actor.clip_ratio == 1e9
        assert config.run_dir == str(folder)
        assert config.trainer.default_local_dir == f"{folder}/checkpoints"
        assert config.trainer.experiment_name == f"smollm2_cpu/{folder.name}"
        assert config.trainer.project_name == 'a, "b" = c'
    assert configs[0].games == ["KuhnPoker"]
    assert configs[1].games == ["TicTacToe", {"id": "KuhnPoker-5", "weight": 2}]


@pytest.mark.parametrize("file", sorted((CONFIG / "sweep").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_compose(file: Path) -> None:
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", [f"+sweep={file.stem}"], return_hydra_config=True)
    assert config.trainer.experiment_name == f"sweep_{file.stem}"
    params = [f"{key}={value}" for key, value in config.hydra.sweeper.params.items()]
    for override in OverridesParser.create().parse_overrides(params):
        assert override.is_sweep_override() and OmegaConf.select(config, override.key_or_group) is not None


@pytest.mark.full
def test_an_example_is_a_sweep(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    status, output = sweep(command, "-m", "+sweep=games", f"run_dir={tmp_path}")
    assert status == 0, output
    assert [row["folder"] for row in table(tmp_path)] == [
        "games=TicTacToe",
        "games=KuhnPoker",
        "games=TicTacToe,KuhnPoker",
    ]
    assert table(tmp_path)[2]["games"] == "[TicTacToe,KuhnPoker]"
    arguments = (tmp_path / "games=TicTacToe" / OUTPUT).read_text()
    assert "trainer.experiment_name='sweep_games/games=TicTacToe'" in arguments and "hydra.mode=RUN" in arguments


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=0,1", "jobs_at_once=0"], "spiral: jobs_at_once=0: must be a whole number >= 1, the same for all jobs"),
        (["seed=0,0"], "spiral: two jobs of the sweep would share the folder job: sweep over values that differ"),
        (["trainer.experiment_name=a,b"], "give all of them one folder: hydra.sweep.dir=outputs/my_sweep"),
        (
            ["seed=0,1", "jobs_at_once=2", "hardware=gpu", "trainer.n_gpus_per_node=2"],
            "spiral: jobs_at_once=2: jobs of up to 2 accelerators (trainer.n_gpus_per_node, and engines' own) need 4, "
            "and CUDA_VISIBLE_DEVICES=0,1,2 names fewer; lower one of the two",
        ),
        (["seed=0,1", "no.such.key=1"], "spiral: no.such.key=1: there is no such setting; "),
        (["games=[KuhnPoker],[Nimm]"], "spiral: unknown game 'Nimm'. Did you mean 'Nim'?"),
        (["+sweep=seeds,games"], "spiral: +sweep=seeds,games: sweeps cannot be swept; give one\n"),
        (["+sweep=seeds", "seed=7", "games=[Nim]"], "note: -m: nothing is swept, so this is one job\n"),
        (
            ["seed=0,1", "trainer.default_local_dir=ck"],
            "/ck: is that of job seed=0, too; leave it out",
        ),
        (["seed=0,1", "trainer.default_local_dir=ck", "dry_run=true"], "/ck: is that of job seed=0, too; leave it out"),
        (
            ["seed=0,1", "trainer.default_local_dir=ck/${trainer.experiment_name}", "games=[Nim]"],
            "actor_rollout_ref.model.path=FOLDER (job seed=0)\n",
        ),
    ],
)
def test_a_sweep_that_cannot_run_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    status, output = sweep(["false"], "-m", *arguments, cwd=tmp_path, CUDA_VISIBLE_DEVICES="0,1,2")
    assert status != 0 and message in output
    assert not list(tmp_path.rglob(STATE))


def test_a_single_run_composes_without_a_sweep() -> None:
    """What the defaults for sweeps refer to is there in a sweep only."""
    composed = subprocess.run([*COMPOSE, "--package", "_global_"], cwd=ROOT, text=True, capture_output=True, check=True)
    assert "jobs_at_once: 1" in composed.stdout
