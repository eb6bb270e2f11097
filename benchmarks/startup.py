"""Measures a start: from the launch to the first step of training, and what each process costs until then.

    python benchmarks/startup.py [--repeats 3] [--cold] [--json FILE] [OVERRIDE ...]

It launches `python -m recipe.spiral.main_spiral +experiment=quickstart OVERRIDE ...` with one step and without a
validation. The table has the CPU seconds of each process until the first step begins, and beside them what the modules
cost that verl, Ray or vLLM import there by themselves: in a process of its own each, with nothing of the recipe. That
is the limit of what the recipe can save. `--cold` first takes the files of the environment out of the page cache.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.options import new_folder, parse_with_overrides  # noqa: E402
from benchmarks.processes import Watch, by_name, end_with_run  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, new_file, within  # noqa: E402
from recipe.spiral.processes.launch import end_with_parent  # noqa: E402

#: Seconds from the launch to the first step, on two idle cores with warm files.
TARGET = 35.0
#: Seconds after which a launch is ended.
LIMIT = 600.0
LAUNCH = (
    "+experiment=quickstart",
    "trainer.total_training_steps=1",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.logger=[file]",
)
#: What each process imports: the recipe's modules, and what its part would be with verl, Ray or vLLM alone. Where the
#: trainer is a copy, it has what the driver imported.
IMPORTS = {
    "driver": (
        "recipe.spiral.main_spiral verl verl.trainer.main_ppo recipe.spiral.task_runner",
        "verl.trainer.main_ppo",
    ),
    "trainer": ("recipe.spiral.trainer recipe.spiral.task_runner", "verl.trainer.main_ppo verl.trainer.ppo.v1"),
    "policy worker": ("recipe.spiral.workers.policy_worker", "verl.workers.engine_workers"),
    "vLLM server": (
        "recipe.spiral.workers.engine.vllm",
        "verl.workers.rollout.vllm_rollout.vllm_async_server verl.workers.rollout.vllm_rollout.vllm_rollout",
    ),
    "vLLM's engine": ("", "verl vllm.v1.engine.core vllm.v1.worker.cpu_worker"),
    "rollout worker": ("recipe.spiral.rollouts.worker recipe.spiral.rollout", "verl.trainer.ppo.v1"),
    "load balancer": ("", "verl.workers.rollout.llm_server"),
    "TransferQueue": ("", "ray transfer_queue"),
    "Ray: idle worker": ("", "ray"),
}


def import_seconds(modules: str) -> dict[str, float]:
    """CPU seconds and the number of modules of a process that imports these, separated by spaces."""
    # Without the recipe's platform verl does not run on a CPU, nor does it find vLLM's build for one.
    environment = os.environ | {
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "recipe.spiral.workers.platforms.cpu",
        "PYTHONPATH": str(ROOT),
    }
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(len(sys.modules))"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *modules.split()], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"import {modules}: {done.stderr[-500:]}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "modules": float(done.stdout.split()[-1])}


def launch(overrides: list[str], kept: Path | None = None) -> dict[str, Any]:
    """One launch: when the first step began and ended, and the CPU seconds of each process until it began.

    Args:
        overrides: Hydra's.
        kept: the run's folder; None: a temporary one.
    """
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        run_dir = kept or Path(folder) / "run"
        log, output = run_dir / "train.log", Path(folder) / "output.txt"
        log.unlink(missing_ok=True)  # of a launch before, in a folder that is kept: it has all that is waited for
        command = [sys.executable, "-m", "recipe.spiral.main_spiral", f"run_dir={run_dir}", *LAUNCH, *overrides]
        with output.open("w") as file:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, preexec_fn=end_with_parent
            )

        def says(words: str) -> bool:
            return log.is_file() and re.search(words, log.read_text(encoding="utf-8", errors="replace")) is not None

        watch = Watch(
            process.pid,
            {
                "starting Ray": lambda: "starting Ray" in output.read_text(encoding="utf-8", errors="replace"),
                "first step": lambda: says("training for"),
                "its end": lambda: says(r"step +1/"),
            },
        )
        try:
            status = process.wait(LIMIT)
        finally:
            watch.stop()
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        if status:
            end_with_run(output)
    return {
        "seconds": watch.marks,
        "others": watch.others,
        "processes": by_name(watch.processes.values(), "first step"),
    }


def forget_files() -> None:
    """Take the environment's files, and the recipe's, out of the page cache: what is read next comes from the disk."""
    os.sync()
    for folder in (Path(sys.prefix), ROOT / "recipe"):
        for file in folder.rglob("*"):
            if file.is_file() and not file.is_symlink():
                with file.open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--repeats", type=within(int, 1), default=3, help="launches; the median counts")
    parser.add_argument("--cold", action="store_true", help="with nothing of the environment in the page cache")
    parser.add_argument("--run-dir", type=new_folder, help="a run's folder to keep; otherwise a temporary one")
    parser.add_argument("--no-imports", action="store_true", help="do not measure what importing takes by itself")
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    arguments, overrides = parse_with_overrides(parser)
    runs = []
    for number in range(arguments.repeats):
        if arguments.cold:
            forget_files()
        runs.append(launch(overrides, arguments.run_dir))
        seconds, others = runs[-1]["seconds"], runs[-1]["others"]["first step"]
        print(
            f"launch {number + 1}: first step after {seconds['first step']:.1f} s, its end after "
            f"{seconds['its end']:.1f} s; other jobs took {others:.0%} of the cores",
            flush=True,
        )
    imports = {
        name: {side: import_seconds(modules) for side, modules in zip(("ours", "alone"), pair, strict=True) if modules}
        for name, pair in (IMPORTS if not arguments.no_imports else {}).items()
    }
    names = list(dict.fromkeys(name for run in runs for name in run["processes"]))
    print(f"\n{'process':<28}{'how many':>9}{'begins':>8}{'CPU s':>8}{'imports':>9}{'alone':>8}")
    for name in names:
        rows = [run["processes"][name] for run in runs if name in run["processes"]]
        count, cpu, begins = (median(column) for column in zip(*rows, strict=True))
        own, alone = (
            f"{imports[name][side]['seconds']:.1f}" if side in imports.get(name, {}) else ""
            for side in ("ours", "alone")
        )
        print(f"{name:<28}{count:>9.0f}{begins:>8.1f}{cpu:>8.1f}{own:>9}{alone:>8}")
    all_of_it = median(sum(row[1] for row in run["processes"].values()) for run in runs)
    first = median(run["seconds"]["first step"] for run in runs)
    print(f"{'all':<28}{'':>9}{'':>8}{all_of_it:>8.1f}")
    print(f"\nlaunch to first step: {first:.1f} s (target: {TARGET:.0f} s on two idle cores)")
    if arguments.json:
        figures = {"target": TARGET, "cold": arguments.cold, "imports": imports, "launches": runs}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
