"""DPO by the whole stack, on questions and on games: runs are killed between a refresh of the reference and a save."""

from __future__ import annotations

import copy
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from experiments import arithmetic
from recipe.spiral.games import make
from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.players.records import GameRecord, Turn
from tests.e2e.conftest import DETERMINISM, LIMIT, LORA, NO_VALIDATION, ROOT, Runs, games_of, logged, small
from tests.e2e.test_reference import shards

pytestmark = [pytest.mark.e2e, pytest.mark.full]
#: The reference becomes the policy after steps 2 and 4; a checkpoint is written after steps 3 and 5.
STEPS, REFRESH, SAVE = 5, 2, 3
RESUMABLE = [
    f"trainer.total_training_steps={STEPS}",
    f"ref_update_freq={REFRESH}",
    f"trainer.save_freq={SAVE}",
    *NO_VALIDATION,
    *DETERMINISM,
]


def killed_and_resumed(run_dir: Path, runs: Runs, *overrides: str, cwd: Path = ROOT) -> dict[int, dict[str, Any]]:
    """The metrics of each step of a run that was killed after the reference of step 4, and went on from step 3.

    What it logged of step 4 before and after must be the same.
    """
    killed = runs.start(run_dir, *RESUMABLE, *overrides, cwd=cwd)
    killed.wait_for(rf"^step *4/{STEPS} ")
    end = time.monotonic() + LIMIT
    while 4 not in (before := logged(run_dir, "pairs/count")) and time.monotonic() < end:
        time.sleep(0.05)
    killed.signal(signal.SIGKILL)
    killed.wait()
    resumed = runs.train(run_dir, *RESUMABLE, *overrides, cwd=cwd)
    assert f"going on after step {SAVE} of {STEPS}" in resumed.output
    after = logged(run_dir, "pairs/count")
    assert sorted(after) == [*range(1, STEPS + 1)]
    same = {name: value for name, value in before[4].items() if name.startswith(("pairs/", "games/", "actor/dpo_"))}
    assert len(same) > 20 and {name: after[4][name] for name in same} == pytest.approx(same, rel=1e-4, abs=1e-6)
    return after


def check_reference(found: dict[int, dict[str, Any]], game: str) -> None:
    """Where the policy is the reference there is no margin, whichever pairs there are."""
    for step, data in found.items():
        fresh = step % REFRESH == 1
        assert data["pairs/count"] > 0 and data["actor/grad_norm"] > 0
        assert (abs(data[f"pairs/{game}/margin"]) < 1e-4) == fresh, f"step {step}: {data[f'pairs/{game}/margin']}"


def prompts(records: list[GameRecord]) -> dict[object, list[tuple[GameRecord, Turn]]]:
    """The turns of trainable players that had one prompt, against one opponent, in the order of their games' keys."""
    found: dict[object, list[tuple[GameRecord, Turn]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.key):
        for turn in sorted(record.trainable_turns(), key=lambda turn: (turn.player, turn.turn)):
            assert turn.tokens is not None
            found[record.key.start(), record.players, turn.player, tuple(turn.tokens.prompt_ids)].append((record, turn))
    return found


def pairs(records: list[GameRecord]) -> Iterator[tuple[tuple[GameRecord, Turn], tuple[GameRecord, Turn]]]:
    """(chosen, rejected) by their marks; each prompt has one pair at most."""
    for turns in prompts(records).values():
        marked = {turn.advantage: (record, turn) for record, turn in turns if turn.advantage is not None}
        assert sum(turn.advantage is not None for _, turn in turns) == len(marked)
        assert marked.keys() in ({1.0, -1.0}, set())
        if marked:
            yield marked[1.0], marked[-1.0]


# -- questions ---------------------------------------------------------------------------------------------------------

#: A user's grader that fails for some answers, in each way.
GRADER = """
import math, re, time

def grade(solution_str, ground_truth, **more):
    said = re.findall(r"boxed{(\\d+)}", solution_str)
    answer = int(said[-1]) if said else -1
    if answer == 3:
        raise ZeroDivisionError("three")
    if answer == 5:
        time.sleep(10_000)
    if answer == 7:
        return math.nan
    return {"score": float(answer == int(ground_truth))}
"""


def test_questions(tmp_path: Path, runs: Runs) -> None:
    """On two ranks. The weights at the end are those that plain torch comes to from the records alone."""
    arithmetic.make(tmp_path)
    (tmp_path / "grading.py").write_text(GRADER)
    found = killed_and_resumed(
        tmp_path / "run",
        runs,
        "+experiment=spin_arithmetic",
        f"actor_rollout_ref.model.path={tmp_path}/model",
        f"data.train_files={tmp_path}/train.jsonl",
        f"data.val_files={tmp_path}/test.jsonl",
        "questions.grader=grading:grade",
        "data.train_batch_size=12",
        "actor_rollout_ref.rollout.n=8",
        "trainer.n_gpus_per_node=2",
        "trainer.logger=[file]",
        cwd=tmp_path,
    )
    check_reference(found, "sums")
    records = games_of(tmp_path / "run")
    for step, data in found.items():
        assert data["games/count"] + data["games/discarded/void"] == 96
        counted = [record for record in records if record.key.step == step and record.discarded is None]
        for (chosen, _), (rejected, _) in pairs(counted):
            assert (chosen.rewards[0], rejected.rewards[0]) == (1.0, 0.0)
    reasons = {str(record.reason).split(": ", 1)[1] for record in records if record.discarded == "void"}
    assert reasons == {"raised: ZeroDivisionError: three", "time-out", "not a number: nan"}
    assert audit([str(tmp_path / "run")]) == 0

    before, trained = recomputed(tmp_path / "run", tmp_path / "model", records)
    first, second = shards(tmp_path / "run", STEPS, "actor", lora=False)
    saved = {name: torch.cat([shard, second[name]]) for name, shard in first.items() if name in trained}

    def norm(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
        return sum(float((left[name].double() - right[name].double()).square().sum()) for name in saved) ** 0.5

    assert len(saved) > 10 and norm(saved, trained) < 3e-4 * norm(trained, before)


def recomputed(run_dir: Path, model: Path, records: list[GameRecord]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The weights before and after a run on questions, in plain torch: -log sigmoid(beta d) of the recorded pairs."""
    from transformers import AutoModelForCausalLM

    config = OmegaConf.load(run_dir / "config.yaml")
    actor, optim = config.actor_rollout_ref.actor, config.actor_rollout_ref.actor.optim
    assert (optim.lr_scheduler_type, actor.entropy_coeff, actor.kl_loss_coef) == ("constant", 0.0, 0.0)
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    before, reference = copy.deepcopy(policy.state_dict()), copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
    )

    def log_prob(model: Any, turn: Turn) -> torch.Tensor:
        assert turn.tokens is not None
        prompt, response = turn.tokens.prompt_ids, turn.tokens.response_ids
        logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None]).sum()

    for step in range(1, STEPS + 1):
        chosen_first = list(pairs([one for one in records if one.key.step == step and one.discarded is None]))
        count = config.num_mini_batches
        for first, last in pairwise(len(chosen_first) * number // count for number in range(count + 1)):
            losses = []
            for (_, chosen), (_, rejected) in chosen_first[first:last]:
                with torch.no_grad():
                    wanted = log_prob(reference, chosen) - log_prob(reference, rejected)
                d = log_prob(policy, chosen) - log_prob(policy, rejected) - wanted
                losses.append(-torch.log(torch.sigmoid(config.algorithm.dpo_beta * d)))
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), optim.clip_grad)
            optimizer.step()
        if step % REFRESH == 0:
            reference = copy.deepcopy(policy)
    return before, policy.state_dict()


# -- games -------------------------------------------------------------------------------------------------------------


def test_games(tmp_path: Path, model: Path, runs: Runs) -> None:
    """Kuhn poker with LoRA: games that start alike and branches, against itself, past selves and random play."""
    found = killed_and_resumed(
        tmp_path / "run",
        runs,
        *small(model),
        "loss=dpo",
        "games=[KuhnPoker]",
        "data.games_per_start=4",
        "data.train_batch_size=4",
        "branching.states=1",
        "branching.continuations=3",
        "fsp.enabled=true",
        "fsp.ratio=0.25",
        "fsp.update_interval=1",
        "opponents=[{kind: random, share: 0.25}]",
        *LORA,
        "actor_rollout_ref.actor.optim.lr=1e-2",
    )
    check_reference(found, "KuhnPoker")
    records = games_of(tmp_path / "run")
    assert {record.opponent for record in records} == {"self", "pool", "random"}
    trained = set()
    for step, data in found.items():
        of_step = [record for record in records if record.key.step == step]
        games, branches = ([r for r in of_step if bool(r.key.retry) is branch] for branch in (False, True))
        moved = sum(bool(record.trainable_turns()) for record in games)
        assert (len(games), len(branches)) == (16, 3 * moved) == (16, data["games/branches"])
        found_pairs = list(pairs(of_step))
        assert len(found_pairs) == data["pairs/count"]
        for (chosen, good), (rejected, bad) in found_pairs:
            assert chosen.players == rejected.players and good.response != bad.response
            trained.add((chosen.opponent, bool(chosen.key.retry or rejected.key.retry)))
    assert {("self", True), ("self", False)} < trained, "others, too"
    for record in records:
        dealt = [re.findall(r"card: (.)", make("KuhnPoker", record.key.game_seed()).observation(p)) for p in (0, 1)]
        assert all(re.findall(r"card: (.)", turn.observation) == dealt[turn.player] for turn in record.turns)
    assert audit([str(tmp_path / "run")]) == 0
