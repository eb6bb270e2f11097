"""Training, killed in the middle with SIGKILL and started again with another learning rate, is one run: its records add
up, the rate is followed, and trackers take it for one run.

Nobody but this machine can reach it meanwhile, and nothing of it is left outside of its folder. It begins in a fork of
verl's, where the recipe lies beside ``verl/`` and nothing of ours is installed, and goes on in this checkout: a start
takes most of a minute.
"""

from __future__ import annotations

import json
import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord
from recipe.spiral.storage.run_files import CHANGES, METRICS, read_metrics
from tests.e2e.conftest import Left, Run, Runs, games_of, logged, small

pytestmark = pytest.mark.e2e
STEPS = 8
RATE = "actor_rollout_ref.actor.optim.lr"
GAMES = 16


def test_a_killed_run_goes_on_as_the_same_run(tmp_path: Path, model: Path, runs: Runs, fork: tuple[Path, str]) -> None:
    overrides = small(
        model, "seed=7", f"trainer.total_training_steps={STEPS}", "trainer.save_freq=2", f"trainer.test_freq={STEPS}"
    )
    overrides.append("trainer.logger=[file,tensorboard,wandb]")
    offline = {"WANDB_MODE": "offline"}
    tree, python = fork
    killed = runs.start(tmp_path / "run", *overrides, python=python, cwd=tree, environment=offline)
    # All processes are there; steps take less than a second, and looking at processes may take longer.
    killed.wait_for(rf"^training for {STEPS} steps")
    assert not reachable(killed)
    private = private_folder(killed)
    killed.wait_for(rf"^step *3/{STEPS} ")
    left = Left(killed)
    killed.signal(signal.SIGKILL)
    killed.wait()
    assert left.gone(120) == []  # agents of Ray's take more than a minute

    resumed = runs.start(tmp_path / "run", *overrides, f"{RATE}=1e-6", environment=offline)
    resumed.wait_for(rf"^going on after step [246] of {STEPS}")
    assert private_folder(resumed) == private
    left = Left(resumed)
    assert resumed.wait() == 0, resumed.output[-4000:]
    assert left.gone(10) == [] and not private.exists()

    records = games_of(tmp_path / "run")
    assert [record.key.step for record in records] == sorted(GAMES * list(range(1, STEPS + 1)))
    assert len({record.key for record in records}) == STEPS * GAMES
    baselines = check_arithmetic(records)
    state = json.loads((tmp_path / "run/checkpoints" / f"global_step_{STEPS}" / "spiral.json").read_text())
    for game, role, _, value in state["baselines"]["values"]:
        assert value == pytest.approx(baselines[game, role], abs=1e-9)
    assert f"validation at step 0 -> {STEPS}" in resumed.output
    check_validation(tmp_path / "run")
    check_rates_and_trackers(tmp_path / "run", resumed.output)
    done = runs.start(tmp_path / "run", *overrides, f"{RATE}=1e-3")
    assert done.wait() == 0 and "run folder:" not in done.output
    assert f"the run is done: it has step {STEPS}" in done.output


def reachable(run: Run) -> list[tuple[str, str, int]]:
    """The sockets of a run's processes that listen on another address than loopback: process, address, port."""
    found = []
    for process in [psutil.Process(run.process.pid), *run.descendants()]:
        with suppress(psutil.Error):
            listening = [at.laddr for at in process.net_connections("inet") if at.status == psutil.CONN_LISTEN]
            loopback = ("127.", "::1", "::ffff:127.")
            found += [(process.name(), at.ip, at.port) for at in listening if not at.ip.startswith(loopback)]
    return found


def private_folder(run: Run) -> Path:
    """Where Ray has its session and its secret."""
    secret = Path(run.find("raylet").environ()["RAY_AUTH_TOKEN_PATH"])
    assert secret.stat().st_mode & 0o777 == 0o600 and secret.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in secret.parent.glob("ray/session_2*")]
    return secret.parent


def check_arithmetic(records: list[GameRecord]) -> dict[tuple[str, int], float]:
    """Recompute baselines and advantages of every step from the outcomes alone; returns the last baselines."""
    baselines: dict[tuple[str, int], float] = {}
    for step in sorted({record.key.step for record in records}):
        games = [record for record in records if record.key.step == step]
        for record in games:
            for role in (0, 1):
                assert record.baselines[role] == pytest.approx(baselines.get((record.game, role), 0.0), abs=1e-9)
            for turn in record.turns:
                expected = record.rewards[turn.player] - baselines.get((record.game, turn.player), 0.0)
                assert turn.advantage == pytest.approx(expected, abs=1e-6)
                assert turn.tokens is not None and len(turn.tokens.log_probs or []) == len(turn.tokens.response_ids)
                assert turn.tokens.weight_versions == (step - 1, step - 1)
        for record in games:  # they are in the order of their keys
            for role in (0, 1):
                value = baselines.get((record.game, role), 0.0)
                baselines[record.game, role] = 0.95 * value + 0.05 * record.rewards[role]
    return baselines


def check_rates_and_trackers(run_dir: Path, output: str) -> None:
    """The second start's learning rate holds from its checkpoint on; for trackers both starts are one run."""
    said = re.search(rf"^{re.escape(RATE)}: (\S+) up to step (\d), 1e-06 from there on$", output, re.MULTILINE)
    assert said is not None
    rates = [float(said[1])] * int(said[2])
    rates += [1e-6] * (STEPS - len(rates))
    lines = [line for line, _ in read_metrics(run_dir / METRICS) if "actor/lr" in line.metrics]  # others: validations
    logged = {line.step: line.metrics["actor/lr"] for line in lines}
    assert list(logged.values()) == pytest.approx(rates)
    (noted,) = [json.loads(line) for line in (run_dir / CHANGES).read_text().splitlines()]
    assert noted["step"] == int(said[2]) and noted["changed"][RATE] == [float(said[1]), 1e-6]
    names = [folder.name.rsplit("-", 1)[1] for folder in (run_dir / "wandb").glob("offline-run-*")]
    assert len(names) == 2 and len({*names}) == 1


def check_validation(run_dir: Path) -> None:
    """The reported shares are those of the games."""
    last = logged(run_dir, "val-core/KuhnPoker/p0/win")[STEPS]
    games = list(RecordFolder(run_dir / "games").read_step("val", STEPS))
    for game in ("TicTacToe", "KuhnPoker"):
        for role in (0, 1):
            played = [record for record in games if record.game == game and record.trainable == (role,)]
            assert last[f"val-core/{game}/p{role}/games"] == len(played) == 4
            wins = sum(record.rewards[role] > record.rewards[1 - role] for record in played)
            assert last[f"val-core/{game}/p{role}/win"] == pytest.approx(wins / len(played))
            assert all(record.players[1 - role] == "random" for record in played)
