"""One seed, one run: twice the same, and the same again when it is killed on the way. Whatever process of a run is
killed, the run ends with its name and leaves nothing, and the next start goes on.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

from recipe.spiral.storage.checkpoints import latest
from tests.e2e.conftest import DETERMINISM, NO_VALIDATION, Left, Runs, games_of, said, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
STEPS = 20


def overrides(model: Path) -> list[str]:
    return small(
        model,
        "seed=3",
        *DETERMINISM,
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=3",
        *NO_VALIDATION,
        "actor_rollout_ref.actor.entropy_coeff=0.01",
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with closing(Runs()) as runs:
        runs.train(folder, *overrides(model))
    return folder


def test_two_runs_are_the_same(uninterrupted: Path, tmp_path: Path, model: Path, runs: Runs) -> None:
    runs.train(tmp_path / "run", *overrides(model))
    assert_same(uninterrupted, tmp_path / "run")


def test_a_run_killed_at_random_is_the_same(uninterrupted: Path, tmp_path: Path, model: Path, runs: Runs) -> None:
    moment = random.Random(time.time_ns())
    for step in (moment.randrange(2, 9), moment.randrange(10, 18)):
        run = runs.start(tmp_path / "run", *overrides(model))
        run.wait_for(rf"^step *{step}/{STEPS} ")
        pause = moment.random() * 2
        time.sleep(pause)
        print(f"killed {pause:.2f} s after step {step}")
        run.signal(signal.SIGKILL)
        run.wait()
    runs.train(tmp_path / "run", *overrides(model))
    assert_same(uninterrupted, tmp_path / "run")


def assert_same(one: Path, other: Path) -> None:
    """Tokens, outcomes, baselines and advantages of every step, and the weights at the end."""
    first, second = games_of(one), games_of(other)
    assert list(map(said, first)) == list(map(said, second))
    differences = [
        abs(a - b)
        for record, twin in zip(first, second, strict=True)
        for turn, same in zip(record.turns, twin.turns, strict=True)
        if turn.tokens and same.tokens
        for a, b in zip(turn.tokens.log_probs or [], same.tokens.log_probs or [], strict=True)
    ]
    print(
        f"{sum(d > 0 for d in differences)} of {len(differences)} log-probabilities differ, at most {max(differences)}"
    )
    assert max(differences) < 1e-5
    mine, others = weights(one), weights(other)
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)


def weights(run: Path) -> dict[str, torch.Tensor]:
    file = run / f"checkpoints/global_step_{STEPS}/actor/model_world_size_1_rank_0.pt"
    shards = torch.load(file, weights_only=False)  # written by the run above
    return {name: getattr(shard, "_local_tensor", shard) for name, shard in shards.items()}


#: What is killed, by a part of its command line (None: the process that was started), and what the last line then has.
VICTIMS = {
    "TransferQueueController": "TransferQueueController",
    "raylet": "",
    "gcs_server": None,  # Ray ends the process itself
    "VLLMServer": "vllm_server_0_0",
    "WorkerDict": "WorkerDict",
    "TaskRunner": "TaskRunner",
    "EngineCore": "vllm_server_0_0: EngineDeadError",
    None: None,
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_saves_a_checkpoint_first(
    tmp_path: Path, model: Path, runs: Runs, number: signal.Signals
) -> None:
    overrides = small(model, "trainer.total_training_steps=2000", "trainer.save_freq=1000", "trainer.test_freq=1000")
    run = runs.start(tmp_path / "run", *overrides)
    run.wait_for(r"^step +2/2000 ")
    left = Left(run)
    os.killpg(run.process.pid, number)  # as a terminal and `timeout` do
    assert run.wait() == 130, run.output[-4000:]
    step = latest(tmp_path / "run" / "checkpoints")
    assert step is not None and 2 <= step < 1000
    assert run.last_line.endswith(f"from step {step}") and left.gone(30) == []
    print(f"{number!r}: {run.last_line}")


def test_whoever_dies_nothing_is_left_and_the_run_goes_on(tmp_path: Path, model: Path, runs: Runs) -> None:
    """One run, which is killed at another place in each of its starts."""
    overrides = small(model, "trainer.total_training_steps=500", "trainer.save_freq=1", "trainer.test_freq=-1")
    run_dir, steps = tmp_path / "run", [0]
    for victim, named in VICTIMS.items():
        run = runs.start(run_dir, *overrides)
        run.wait_for(rf"^step +{steps[-1] + 2}/500 ")
        left, killed = Left(run), time.monotonic()
        if victim is None:
            run.process.kill()
        else:
            run.find(victim).kill()
        status = run.wait(120)
        ended = time.monotonic() - killed
        remains = left.gone(120)  # agents of Ray's take more than a minute
        print(f"{victim}: status {status} after {ended:.1f} s, all gone after {time.monotonic() - killed:.1f} s")
        print(f"  {run.last_line[:300]}")
        assert remains == []
        assert status == (-signal.SIGKILL if victim is None else 1), run.output[-4000:]
        assert named is None or (run.last_line.startswith("spiral: ") and named in run.last_line)
        step = latest(run_dir / "checkpoints")
        assert step is not None and step > steps[-1]
        steps.append(step)
