"""Past selves as opponents in real runs: only the policy learns, members are who they should be, all is resumed."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord, Turn
from tests.lab.opponents.endpoint import Endpoint, error, good

from .conftest import DETERMINISM, Run, small
from .fixed_move import ANSWER, write_fixed_move

pytestmark = [pytest.mark.e2e, pytest.mark.full]
STEPS = 30


def pool(model: Path, *overrides: str) -> list[str]:
    return small(
        model,
        "seed=5",
        *DETERMINISM,
        "fsp.enabled=true",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=8",
        "trainer.val_before_train=false",
        "trainer.test_freq=-1",
        *overrides,
    )


def games(run_dir: Path) -> list[GameRecord]:
    return list(RecordFolder(run_dir / "games").read("train"))


def metrics(run_dir: Path) -> list[dict[str, float]]:
    lines = [line for file in sorted(run_dir.glob("metrics-*.jsonl")) for line in file.read_text().splitlines()]
    return [json.loads(line)["data"] for line in lines]


def audited(run_dir: Path) -> bool:
    from recipe.spiral.lab.audit.__main__ import main

    return main([str(run_dir)]) == 0


def test_many_members_through_a_small_pool_killed_while_one_is_written(
    tmp_path: Path, model: Path, runs: list[Run]
) -> None:
    """Two members a step, one new member a step; the killed run is the one that was not interrupted."""
    settings = pool(model, "fsp.update_interval=1", "fsp.size=4", "fsp.members_per_step=2", "fsp.sample=hard")
    whole = Run(tmp_path / "whole", *settings)
    runs.append(whole)
    assert whole.wait() == 0, whole.output[-4000:]
    moment, hits = random.Random(3), 0
    for _ in range(4):
        killed = Run(tmp_path / "killed", *settings)
        runs.append(killed)
        hits += kill_in_a_refresh(killed, after=moment.randrange(9, 13))
        if hits == 2:
            break
    assert hits, "no kill met a refresh"
    last = Run(tmp_path / "killed", *settings)
    runs.append(last)
    assert last.wait() == 0, last.output[-4000:]

    mine, others = games(tmp_path / "whole"), games(tmp_path / "killed")
    assert list(map(said, mine)) == list(map(said, others))
    assert state(tmp_path / "whole") == state(tmp_path / "killed")
    assert audited(tmp_path / "whole") and audited(tmp_path / "killed")
    check_who_answered(mine)
    roles = Counter(record.trainable for record in mine if record.opponent == "pool" and record.discarded is None)
    assert abs(roles[0,] + roles[1,] - 8 * STEPS) < 2 * STEPS and abs(roles[0,] - roles[1,]) < STEPS
    members = {name for record in mine if record.opponent == "pool" for name in record.players} - {"policy"}
    assert len(members) > 15
    for measured in metrics(tmp_path / "whole"):
        assert measured["fsp/size"] <= 4.0
        # a row that the policy did not sample would not have its probabilities
        assert measured["training/rollout_probs_diff_max"] < 1e-3
    assert len(list((tmp_path / "whole/pool").iterdir())) == 4


def kill_in_a_refresh(run: Run, after: int) -> bool:
    """SIGKILL while a member is being written, in a step after ``after``; returns whether one was.

    All processes at once, as when a machine goes down: without its driver, the others would write it to the end.
    """
    run.wait_for(rf"^step *{after}/{STEPS} ")
    end = time.monotonic() + 20.0
    while time.monotonic() < end and not any((run.run_dir / "pool").glob(".*")):
        time.sleep(0.0005)
    run.kill()
    run.wait()
    return any((run.run_dir / "pool").glob(".*"))


def said(record: GameRecord) -> object:
    turns = [(turn.response, turn.advantage, turn.tokens and turn.tokens.answered_by) for turn in record.turns]
    return record.key, record.players, record.rewards, record.baselines, record.discarded, turns


def state(run_dir: Path) -> object:
    return json.loads((run_dir / f"checkpoints/global_step_{STEPS}/spiral.json").read_text())["league"]


def check_who_answered(records: list[GameRecord]) -> None:
    """Each turn by whose it should be, and only the policy's were trained."""
    for record in records:
        for turn in record.turns:
            assert turn.tokens is not None
            learns = turn.player in record.trainable
            assert turn.tokens.answered_by == (None if learns else record.players[turn.player])
            assert (turn.advantage is not None) == (learns and record.discarded is None)


@pytest.fixture(scope="module")
def fixed_move(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that always gives one answer."""
    return write_fixed_move(model, tmp_path_factory.mktemp("members") / "fixed")


def test_a_member_is_recognised_in_its_own_games_and_nowhere_else(
    tmp_path: Path, model: Path, fixed_move: Path, runs: list[Run]
) -> None:
    run = Run(
        tmp_path / "run",
        *pool(model, f"fsp.initial=[{fixed_move}]", "fsp.update_interval=2", "fsp.members_per_step=2"),
        "trainer.total_training_steps=4",
    )
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    records = games(tmp_path / "run")
    check_who_answered(records)
    alone = Run(tmp_path / "alone", *pool(model, "fsp.enabled=false"), "trainer.total_training_steps=4")
    runs.append(alone)
    assert alone.wait() == 0, alone.output[-4000:]
    of_member = [turn for record in records for turn in record.turns if turn.tokens.answered_by == "given-fixed"]
    others = [turn for record in records for turn in record.turns if turn.tokens.answered_by != "given-fixed"]
    assert of_member and {turn.response for turn in of_member} == {ANSWER}
    assert rate(others) < 1.5 * rate([turn for record in games(tmp_path / "alone") for turn in record.turns]) + 0.05
    assert {record.opponent for record in records if "given-fixed" in record.players} == {"pool"}
    assert audited(tmp_path / "run")


def rate(turns: list[Turn]) -> float:
    return sum(turn.response == ANSWER for turn in turns) / len(turns)


def test_opponents_of_every_kind_at_once(tmp_path: Path, model: Path, fixed_move: Path, runs: list[Run]) -> None:
    """Batches of turns, against the pool, a frozen model, an endpoint that dies after the question before the run, and
    others; draws are played again."""
    endpoint = Endpoint(good(), error(500))
    entries = [
        f"{{kind: model, name: frozen, path: {fixed_move}, share: 0.15}}",
        "{kind: random, share: 0.1}",
        "{kind: perfect, share: 0.1}",
        f"{{kind: api, name: dead, model: m, base_url: '{endpoint.url}', api_key_env: null, share: 0.1, retries: 0}}",
    ]
    run = Run(
        tmp_path / "run",
        *pool(model, "fsp.ratio=0.3", "fsp.update_interval=1", f"opponents=[{', '.join(entries)}]"),
        "batch_unit=turns",
        "data.train_batch_size=48",
        "draw_retry.enabled=true",
        "validation.opponents=[perfect]",
        "trainer.test_freq=3",
        "trainer.total_training_steps=3",
    )
    runs.append(run)
    with endpoint.serving():
        assert run.wait() == 0, run.output[-4000:]
    records = games(tmp_path / "run")
    trained = [record for record in records if record.discarded is None]
    assert {record.opponent for record in trained} - {"dead"} == {"self", "pool", "frozen", "random", "perfect"}
    # the policy's first answer may be illegal: then the game is over before the endpoint is asked
    against_dead = [record for record in trained if record.opponent == "dead"]
    assert {turn.player for record in against_dead for turn in record.turns} <= {0}
    assert all(record.trainable == (0,) for record in against_dead)
    voids = [record for record in records if record.discarded == "void"]
    assert voids and {record.opponent for record in voids} == {"dead"}
    assert any(record.discarded == "draw" for record in records)
    validation = list(RecordFolder(tmp_path / "run/games").read("val"))
    assert {name for record in validation for name in record.players} == {"policy", "perfect"}
    assert all(record.rewards[record.trainable[0]] <= 0 for record in validation if record.game == "TicTacToe")
    assert audited(tmp_path / "run")


def test_adapters_beside_the_policys(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    """With LoRA, members and the base model answer from the policy's own engine."""
    run = Run(
        tmp_path / "run",
        *pool(model, "fsp.initial=[base]", "fsp.update_interval=1", "fsp.size=3", "fsp.members_per_step=2"),
        "actor_rollout_ref.model.lora_rank=8",
        "actor_rollout_ref.model.lora_alpha=16",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "trainer.total_training_steps=5",
        "opponents=[{kind: random, share: 0.125}]",
    )
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    records = games(tmp_path / "run")
    members = {name for record in records if record.opponent == "pool" for name in record.players} - {"policy"}
    assert "base" in members and len(members) >= 3
    for record in records:
        for turn in record.turns:
            if record.players[turn.player] != "random":
                assert turn.tokens is not None
                learns = turn.player in record.trainable
                assert turn.tokens.answered_by == (None if learns else record.players[turn.player])
    assert all(step["training/rollout_probs_diff_max"] < 1e-3 for step in metrics(tmp_path / "run"))
    assert audited(tmp_path / "run")
