"""The asynchronous modes: a run accounts for every game, one that is killed goes on as the same run, and each token was
drawn from whole weights."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe.spiral.export.writing import export
from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.watching.game_metrics import staleness
from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.storage.checkpoints import folder_of, latest, read_state
from tests.e2e.conftest import NO_VALIDATION, Runs, games_of, kill_a_worker, logged, small

pytestmark = pytest.mark.e2e
STEPS, GAMES = 6, 16


def asynchronous(model: Path, mode: str, *overrides: str) -> list[str]:
    return small(
        model,
        "seed=7",
        f"trainer.v1.trainer_mode={mode}",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=1",
        "trainer.max_actor_ckpt_to_keep=null",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        *NO_VALIDATION,
        *overrides,
    )


def steps_of(run_dir: Path) -> dict[int, list[GameRecord]]:
    """The games of each step by the step that trained or dropped them."""
    folder = RecordFolder(run_dir / "games")
    return {step: list(folder.read_step("train", step)) for step in folder.steps("train")}


def in_flight(run_dir: Path, step: int) -> set[int]:
    """The numbers of the games that a checkpoint has in flight."""
    state = json.loads((run_dir / f"checkpoints/global_step_{step}/spiral.json").read_text())
    return {(block - 1) * GAMES + index for block, index, _ in state["in_flight"]}


def number(record: GameRecord) -> int:
    return (record.key.step - 1) * GAMES + record.key.index


def count(folder: Path) -> str:
    """Where each game of an asynchronous run is, by its number alone; returns "each once", or what is wrong."""
    saved = folder_of(folder)
    step, last = latest(saved), max(RecordFolder(folder / "games").steps("train"), default=0)
    if step != last:
        return f"the last checkpoint is of step {step}, and the last games are of step {last}"
    state = read_state(saved / f"global_step_{step}")
    batch = int(state["settings"]["data.train_batch_size"])
    places = Counter((block - 1) * batch + index for block, index, _ in state["in_flight"])
    for record in games_of(folder):
        if record.discarded in (None, "stale"):  # others are played again, under the same number
            places[(record.key.step - 1) * batch + record.key.index] += 1
    lost, twice = set(range(max(places) + 1)) - places.keys(), [place for place, times in places.items() if times > 1]
    return f"{len(lost)} are lost, and {len(twice)} there more than once" if lost or twice else "each once"


def check_accounting(run_dir: Path, most: int | None) -> None:
    """Every game that was launched is trained or dropped once, or in flight; recomputed from the records alone."""
    steps = steps_of(run_dir)
    assert list(steps) == list(range(1, STEPS + 1))
    baselines: dict[tuple[str, int], float] = {}
    seen: Counter[int] = Counter()
    for step, records in steps.items():
        trained = [record for record in records if record.discarded is None]
        assert len(trained) == GAMES
        seen.update(number(record) for record in records)
        for record in trained:
            assert most is None or staleness(record, step) <= most
            for turn in record.turns:
                assert turn.tokens is not None and turn.tokens.weight_versions is not None
                first, last = turn.tokens.weight_versions
                assert 0 <= first <= last <= step - 1
                expected = record.rewards[turn.player] - baselines.get((record.game, turn.player), 0.0)
                assert turn.advantage == pytest.approx(expected, abs=1e-6), "both players' turns are in one step"
        for record in trained:  # they are in the order of their keys
            for role in (0, 1):
                value = baselines.get((record.game, role), 0.0)
                baselines[record.game, role] = 0.95 * value + 0.05 * record.rewards[role]
        for record in records:
            if record.discarded is not None:
                assert record.discarded == "stale" and staleness(record, step) > (most or 0)
    assert set(seen.values()) == {1}, "no game is there twice"
    left = in_flight(run_dir, STEPS)
    assert not left & seen.keys()
    assert seen.keys() | left == set(range(len(seen) + len(left))), "no game is lost"
    assert audit([str(run_dir)]) == 0


@pytest.mark.parametrize(
    ("mode", "by_a_worker"),
    [
        ("separate_async", True),
        pytest.param("separate_async", False, marks=pytest.mark.full),
        pytest.param("colocate_async", False, marks=pytest.mark.full),
    ],
)
def test_a_killed_run_goes_on_and_every_game_is_accounted_for(
    tmp_path: Path, model: Path, runs: Runs, mode: str, by_a_worker: bool
) -> None:
    """Killed as a whole, or ended because a worker died."""
    overrides = asynchronous(model, mode)
    killed = runs.start(tmp_path / "run", *overrides)
    # Its games are played ahead: it may have ended more steps by the time it is killed.
    if by_a_worker:
        kill_a_worker(killed, after=r"^step *2/6 ")
    else:
        killed.wait_for(r"^step *2/6 ")
        killed.signal(signal.SIGKILL)
        killed.wait()
    resumed = runs.start(tmp_path / "run", *overrides)
    resumed.wait_for(r"^going on after step [1-5] of 6")
    assert resumed.wait() == 0, resumed.output[-4000:]
    check_accounting(tmp_path / "run", most=4)
    check_weights(tmp_path / "run", model, tmp_path / "versions")
    assert not list((tmp_path / "run").glob("weights/*"))


def check_weights(run_dir: Path, model: Path, versions: Path) -> None:
    """Each token of the policy's has the log-probability that one version gives it, from the first to the last that its
    turn names; a version's weights are those of the checkpoint, which the engine never saw."""
    made = {0: scorer(model)}
    for version in range(1, STEPS):
        export(run_dir / f"checkpoints/global_step_{version}", versions / str(version))
        made[version] = scorer(versions / str(version))
    turns = [turn for records in steps_of(run_dir).values() for record in records for turn in record.turns]
    written = [turn.tokens for turn in turns if turn.tokens is not None and turn.tokens.weight_versions is not None]
    matching = {version: matches(scores, written) for version, scores in made.items()}
    mixed = of_another = 0
    for turn, tokens in enumerate(written):
        first, last = tokens.weight_versions or (0, 0)
        version = first
        for place in range(len(tokens.response_ids)):
            while version < last and not matching[version][turn][place]:
                version += 1  # the response went on with new weights here
            assert matching[version][turn][place], f"token {place} of {tokens} is of no version from {first} to {last}"
        mixed += first < last
        other = min(last + 1, STEPS - 1) if last < STEPS - 1 else first - 1
        of_another += all(matching[max(other, 0)][turn])
    assert of_another < len(written) / 2, "otherwise versions are too much alike for this to show anything"
    print(f"{len(written)} turns, {mixed} of several versions, {of_another} as likely under another version")


def scorer(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def matches(model: Any, turns: Sequence[Tokens]) -> list[list[bool]]:
    """Of each turn, whether each response token's log-probability is what the model gives it."""
    rows = [torch.tensor([*tokens.prompt_ids, *tokens.response_ids]) for tokens in turns]
    with torch.no_grad():
        # no token sees what comes after it, padding neither
        logits = model(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)).logits
    found = []
    for tokens, of_row in zip(turns, logits, strict=True):
        start, length = len(tokens.prompt_ids), len(tokens.response_ids)
        log_probs = torch.log_softmax(of_row[start - 1 : start + length - 1], -1)
        given = log_probs.gather(-1, torch.tensor(tokens.response_ids)[:, None])[:, 0]
        found.append(((given - torch.tensor(tokens.log_probs)).abs() < 1e-3).tolist())
    return found


def test_stale_games_are_dropped_and_named(tmp_path: Path, model: Path, runs: Runs) -> None:
    """Two batches are played ahead, and no turn may be older than the version before the last."""
    runs.train(
        tmp_path / "run",
        *asynchronous(model, "colocate_async", "asynchronous.max_staleness=1", "asynchronous.on_stale=drop"),
        "trainer.v1.colocate_async.num_warmup_batches=3",
    )
    check_accounting(tmp_path / "run", most=1)
    dropped = [record for records in steps_of(tmp_path / "run").values() for record in records if record.discarded]
    counted = sum(step.get("async/dropped", 0.0) for step in logged(tmp_path / "run").values())
    assert dropped and counted == len(dropped)
