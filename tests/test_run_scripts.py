"""Scripts of real runs hand a preset and the user's arguments on; with --dry-run nothing is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from recipe.spiral.checks.names import Names
from recipe.spiral.lab.evaluation.settings import Settings
from tests.made_configs import CONFIG

ROOT = Path(__file__).resolve().parents[1]
PAPER = sorted(file.stem for file in (ROOT / "run_scripts" / "paper").glob("*.sh"))
#: Script -> preset; ``evaluate`` is another program.
PRESETS = {
    "three_games": "paper",
    "single_game": "paper_kuhn",
    "qwen3_8b": "paper_qwen3_8b",
    "pool": "paper_pool",
    "resume_pool": "paper_pool",
    "lora": "paper_lora",
    "r1_distill_7b": "paper_r1_distill_7b",
    "llama_8b": "paper_llama_8b",
    "two_nodes": "paper",
    "slurm": "paper",
}
#: Scripts that stop after SPIRAL_TIME_LIMIT seconds.
LIMITED = [
    "quickstart.sh",
    "eval.sh",
    "train_smollm2.sh",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The scripts, with a set-up that only notes its arguments and a Python that prints its own."""
    shutil.copytree(ROOT / "run_scripts", tmp_path / "run_scripts")
    (tmp_path / "run_scripts" / "setup.sh").write_text('#!/bin/sh\necho "$@" >>setup.txt\n')
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    python.chmod(0o755)
    return tmp_path


def run(project: Path, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "BASE", "SPIRAL_TIME_LIMIT")
    }
    return subprocess.run(
        [str(project / "run_scripts" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={**environment, **variables},
    )


def begun(project: Path, run_dir: str) -> None:
    tracker = project / run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
    tracker.parent.mkdir(parents=True)
    tracker.write_text("40")


def test_every_script_has_a_preset() -> None:
    assert set(PAPER) == {*PRESETS, "evaluate"}
    assert all((CONFIG / "experiment" / f"{preset}.yaml").is_file() for preset in PRESETS.values())


@pytest.mark.parametrize("script", PRESETS)
def test_a_script_hands_its_preset_and_the_arguments_on(project: Path, script: str) -> None:
    if script == "resume_pool":
        begun(project, "outputs/spiral/paper_pool")
    done = run(project, f"paper/{script}.sh", "--dry-run", "seed=3", "games=[Nim, TicTacToe]")
    assert done.returncode == 0, done.stderr
    given = json.loads(done.stdout)
    assert given[:3] == ["-m", "recipe.spiral.main_spiral", f"+experiment={PRESETS[script]}"]
    assert given[-3:] == ["dry_run=true", "seed=3", "games=[Nim, TicTacToe]"]
    assert (project / "setup.txt").read_text() == "\n", "no environment for GPUs"
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", overrides=given[2:])
    Names("spiral_trainer").refuse_unknown(config)
    assert (config.seed, config.trainer.nnodes) == (3, 2 if script in ("two_nodes", "slurm") else 1)


def test_without_dry_run_the_environment_is_for_gpus(project: Path) -> None:
    done = run(project, "paper/pool.sh", "seed=3")
    given = ["-m", "recipe.spiral.main_spiral", "+experiment=paper_pool", "seed=3"]
    assert json.loads(done.stdout) == given
    assert (project / "setup.txt").read_text() == "--gpu\n"
    assert json.loads(run(project, "train_qwen3_8gpu.sh").stdout) == [*given[:2], "+experiment=qwen3_4b"]
    assert json.loads(run(project, "train_spin.sh").stdout) == [*given[:2], "+experiment=spin"]


def test_sums_are_made_and_trained_without_a_gpu(project: Path) -> None:
    done = run(project, "train_spin_cpu.sh", "seed=3")
    assert done.returncode == 0, done.stderr
    assert (project / "setup.txt").read_text() == "\n", "no environment for GPUs"
    asked, made, trained = map(json.loads, done.stdout.splitlines())
    assert asked == [*made, "--questions"] == ["-m", "experiments.arithmetic", "outputs/arithmetic", "--questions"]
    assert trained[:3] == ["-m", "recipe.spiral.main_spiral", "+experiment=spin_arithmetic"] and trained[-1] == "seed=3"
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", overrides=["hardware=cpu", *trained[2:]])
    Names("spiral_trainer").refuse_unknown(config)
    assert config.data.train_files == f"{made[-1]}/train.jsonl"
    python = project / ".venv" / "bin" / "python"
    python.write_text(f"{python.read_text()}sys.exit(2 * ('dry_run=true' in sys.argv))\n")
    done = run(project, "train_spin_cpu.sh", "nope")
    assert done.returncode == 2 and "model" not in done.stdout, "a refusal comes before the model is made"
    model = project / "outputs" / "arithmetic" / "model" / "config.json"
    model.parent.mkdir(parents=True)
    model.touch()
    assert json.loads(run(project, "train_spin_cpu.sh").stdout) == trained[:-1]


@pytest.mark.parametrize("made", ["cpu", "gpu"])
def test_smollm2_is_trained_on_what_the_environment_is_for(project: Path, made: str) -> None:
    """Without an environment a card decides."""
    (project / ".venv" / ".spiral").mkdir()
    (project / ".venv" / ".spiral" / "kind").write_text(f"{made}\n")
    done = run(project, "train_smollm2.sh", "seed=3")
    preset = f"smollm2_{made}"
    assert json.loads(done.stdout) == ["-m", "recipe.spiral.main_spiral", f"+experiment={preset}", "seed=3"]
    assert preset in done.stderr and "an estimate" in done.stderr
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", overrides=[f"+experiment={preset}"])
    assert config.trainer.device == {"cpu": "cpu", "gpu": "cuda"}[made]


@pytest.mark.parametrize("script", LIMITED)
def test_a_time_limit_is_the_environments_or_else_the_files(project: Path, script: str) -> None:
    timeout = project / ".venv" / "bin" / "timeout"
    timeout.write_text('#!/bin/sh\necho "$4"\n')
    timeout.chmod(0o755)
    assert int(run(project, script, "kuhn").stdout) >= 3600
    (project / ".env").write_text("SPIRAL_TIME_LIMIT=17\n")
    assert run(project, script, "kuhn").stdout == "17\n"
    assert run(project, script, "kuhn", SPIRAL_TIME_LIMIT="5").stdout == "5\n"
    (project / "setup.txt").unlink()
    for wrong in ("abc", "-5", "0x5", "5 6"):
        done = run(project, script, "kuhn", SPIRAL_TIME_LIMIT=wrong)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{Path(script).name}: SPIRAL_TIME_LIMIT={wrong}: must be seconds")
    assert not (project / "setup.txt").exists()


def test_what_a_script_needs_is_said(project: Path) -> None:
    done = run(project, "paper/two_nodes.sh")
    assert done.returncode == 2 and "RAY_ADDRESS is not set" in done.stderr
    assert run(project, "paper/two_nodes.sh", RAY_ADDRESS="10.0.0.1:6379").returncode == 0
    done = run(project, "paper/resume_pool.sh", "run_dir=elsewhere")
    assert done.returncode == 2 and "elsewhere has no checkpoint; begin with" in done.stderr
    begun(project, "elsewhere")
    assert run(project, "paper/resume_pool.sh", "run_dir=elsewhere").returncode == 0
    assert run(project, "paper/resume_pool.sh", "trainer.default_local_dir=elsewhere/checkpoints").returncode == 0
    named = ("trainer.experiment_name=second", "trainer.project_name=ours")
    assert "outputs/ours/second has no checkpoint" in run(project, "paper/resume_pool.sh", *named).stderr
    begun(project, "outputs/ours/second")
    assert run(project, "paper/resume_pool.sh", *named).returncode == 0
    for given, said in ((["slurm"], "SLURM_JOB_NODELIST is not set"), (["evaluate", "/nowhere/run"], "no such folder")):
        done = run(project, f"paper/{given[0]}.sh", *given[1:], HOME=str(project / "home"))
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "") and said in line
    assert not (project / "home").exists()
    assert run(project, "train.sh").returncode == run(project, "train.sh", "--dry-run").returncode == 2
    for script in ("train.sh", *(f"paper/{name}.sh" for name in PAPER)):
        assert "usage:" in run(project, script, "--help").stdout, script


def test_others_cannot_read_the_secret_of_a_cluster(project: Path) -> None:
    binaries, home = project / ".venv" / "bin", project / "home"
    (binaries / "activate").write_text(f"PATH={binaries}:$PATH\numask 022\n")
    (binaries / "ray").write_text("#!/bin/sh\nmkdir ~/.ray\necho a secret >~/.ray/auth_token\n")
    (binaries / "ray").chmod(0o755)
    home.mkdir()
    run(project, "paper/slurm.sh", SLURM_JOB_NODELIST="a", HOME=str(home))  # it ends where SLURM does not answer
    assert (home / ".ray" / "auth_token").stat().st_mode & 0o077 == 0


def test_ray_has_all_of_a_jobs_cores_on_each_of_its_machines(project: Path) -> None:
    binaries, home = project / ".venv" / "bin", project / "home"
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text("a secret")
    (binaries / "activate").write_text(f"PATH={binaries}:$PATH\n")
    programs = {
        "sleep": "",
        "scontrol": "echo a; echo b",
        "srun": f'echo "$SRUN_CPUS_PER_TASK $*" >>{project}/srun.txt',
    }
    for name, does in programs.items():
        (binaries / name).write_text(f"#!/bin/sh\n{does}\n")
        (binaries / name).chmod(0o755)
    job = {"SLURM_JOB_NODELIST": "[a-b]", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_ON_NODE": "96", "HOME": str(home)}
    for given, cores in (({"SLURM_CPUS_PER_TASK": "64"}, "64"), ({}, "96")):
        done = run(project, "paper/slurm.sh", **job, **given)
        assert done.returncode == 0, done.stderr
        _, head, other = sorted(
            (project / "srun.txt").read_text().splitlines(), key=lambda call: call.find("ray start")
        )
        assert [head.split()[0], other.split()[0]] == [cores, cores], "srun takes no job's cores over by itself"
        assert "ray start --head" in head and "--exclude=a ray start" in other
        (project / "srun.txt").unlink()


@pytest.mark.parametrize("script", sorted({*LIMITED, "lock.sh", "test.sh", "train_spin.sh", "train_spin_cpu.sh"}))
def test_help_sets_nothing_up(project: Path, script: str) -> None:
    for flag in ("-h", "--help"):
        done = run(project, script, flag)
        assert done.returncode == 0 and len(done.stdout.splitlines()) > 1, done.stderr
    assert not (project / "setup.txt").exists()


def test_a_first_command_on_a_machine_with_gpus_makes_an_environment_for_them(project: Path) -> None:
    (project / ".venv").rename(project / "made")
    setup = '#!/bin/sh\necho "$@" >>setup.txt\ncp -r made .venv\n'
    (project / "run_scripts" / "setup.sh").write_text(setup)
    driver = project / "driver" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\n")
    driver.chmod(0o755)
    path = f"{driver.parent}:{os.environ['PATH']}"
    for script, *dry in (("paper/evaluate.sh",), ("paper/pool.sh", "--dry-run"), ("train_smollm2.sh",)):
        shutil.rmtree(project / ".venv", ignore_errors=True)
        assert run(project, script, *dry, PATH=path).returncode == 0
        assert run(project, script, *dry, PATH=path).returncode == 0, "the environment is there now, and stays"
    assert (project / "setup.txt").read_text() == "--gpu\n\n" * 3


def test_the_evaluation_asks_the_base_model_and_then_the_trained_one_in_one_folder(project: Path) -> None:
    before = json.loads(run(project, "paper/evaluate.sh").stdout)
    begun(project, "outputs/spiral/paper")
    after = json.loads(run(project, "paper/evaluate.sh", "outputs/spiral/paper/", "benchmarks.limit=5").stdout)
    names = []
    for given in (before, after):
        assert given[:2] == ["-m", "recipe.spiral.main_eval"]
        with initialize_config_dir(str(CONFIG), version_base=None):
            config = compose("eval", overrides=given[2:])
        Names("eval").refuse_unknown(config)
        assert config.eval_dir == "outputs/spiral/paper-benchmarks" and len(config.benchmarks.names) == 8
        names.append([policy["name"] for policy in config.policies])
        config.policies = [*config.policies][:0]
        Settings.from_config(config)
    assert names == [["base", "base few-shot"], ["base", "base few-shot", "trained"]]
    assert config.benchmarks.limit == 5
    assert json.loads(run(project, "paper/evaluate.sh", "--dry-run").stdout)[2:5] == ["--cfg", "job", "--resolve"]
