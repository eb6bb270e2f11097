"""Which turns are played and not trained, and what the rest of the machinery makes of them."""

from __future__ import annotations

import pytest
import torch
from omegaconf import OmegaConf

from recipe.spiral.play.records import GameRecord
from recipe.spiral.trainer import _filters
from recipe.spiral.training import rows
from recipe.spiral.training.estimator import compute_rae_advantage, row_facts
from recipe.spiral.training.filters import REASONS, Filters
from recipe.spiral.training.metrics import training_metrics
from recipe.spiral.training.rows import Row
from tests.fake_queue import FakeQueue
from tests.made import record, turn


def game(rewards: tuple[float, float], baselines: tuple[float, float] = (0.0, 0.0), index: int = 0) -> GameRecord:
    return record(index, rewards=rewards, turns=[turn(0, 0), turn(1, 0)], baselines=baselines)


WON, DRAWN = game((1.0, -1.0)), game((0.0, 0.0))


@pytest.mark.parametrize(
    ("filters", "played", "reasons"),
    [
        (Filters(), DRAWN, [None, None]),
        (Filters(draws=True), DRAWN, ["draw", "draw"]),
        (Filters(draws=True), game((0.0, 0.0), (0.3, -0.3)), ["draw", "draw"]),
        (Filters(draws=True), WON, [None, None]),
        (Filters(zero_advantages=True), DRAWN, ["zero_advantage", "zero_advantage"]),
        (Filters(zero_advantages=True), game((0.0, 0.0), (1e-9, 0.0)), [None, "zero_advantage"]),
        (Filters(zero_advantages=True), game((1.0, -1.0), (1.0, 0.0)), ["zero_advantage", None]),
        (Filters(draws=True, zero_advantages=True), DRAWN, ["draw", "draw"]),
    ],
)
def test_reasons(filters: Filters, played: GameRecord, reasons: list[str | None]) -> None:
    assert [filters.reason(played, turn) for turn in played.turns] == reasons


def test_only_the_turn_that_was_cut_off_is_masked() -> None:
    """Its game is lost all the same, and the turns before it are trained."""
    lost = record(
        0, rewards=(0.5, -1.5), turns=[turn(0, 0), turn(1, 0, "truncated", truncated=True)], termination="illegal"
    )
    assert [Filters(truncations=True).reason(lost, turn) for turn in lost.turns] == [None, "truncated"]
    assert [Filters().reason(lost, turn) for turn in lost.turns] == [None, None]


@pytest.mark.parametrize(
    ("truncated", "draws", "zero", "expected"),
    [
        ("illegal", False, False, Filters()),
        ("read", True, False, Filters(draws=True)),
        ("mask", False, True, Filters(truncations=True, zero_advantages=True)),
    ],
)
def test_the_config_says_which(truncated: str, draws: bool, zero: bool, expected: Filters) -> None:
    algorithm = {"filter_draws": draws, "filter_zero_advantages": zero}
    assert _filters(OmegaConf.create({"rules": {"truncated": truncated}, "algorithm": algorithm})) == expected


def batch_of(queue: FakeQueue, games: list[GameRecord]) -> tuple[object, list[Row | None]]:
    """The rows of these games, in order, as a batch in the queue."""
    import transfer_queue
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    own = [Row(game, turn) for game in games for turn in game.turns]
    fields = [
        {"extra_fields": {"key": row.record.key.to_dict(), "player": row.turn.player, "turn": row.turn.turn}}
        for row in own
    ]
    keys = [f"u{row.record.key.index}_{row.turn.player}_{row.turn.turn}" for row in own]
    queue.kv_batch_put(
        keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=[{} for _ in own]
    )
    return transfer_queue.KVBatchMeta(keys=keys, tags=[{} for _ in own], partition_id="train"), list(own)


def test_rows_are_joined_with_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue.install(monkeypatch)
    games = [game((1.0, -1.0), index=1), game((0.0, 0.0), index=2)]
    batch, own = batch_of(queue, games)
    assert rows.fetch(batch, games) == own
    batch.tags[1]["is_padding"] = True  # type: ignore[attr-defined]
    assert rows.fetch(batch, games)[1] is None


def test_rows_that_are_left_out_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue.install(monkeypatch)
    games = [game((1.0, -1.0), index=1), game((0.0, 0.0), index=2)]
    batch, own = batch_of(queue, games)
    kept = rows.leave_out(batch, own, Filters(draws=True))
    assert kept.keys == ["u1_0_0", "u1_1_0"]
    assert sorted(queue.partitions["train"]) == ["u1_0_0", "u1_1_0"]
    assert [turn.left_out for game in games for turn in game.turns] == [None, None, "draw", "draw"]


def test_one_row_stays_and_has_no_advantage(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl has no empty batches."""
    queue = FakeQueue.install(monkeypatch)
    games = [game((0.0, 0.0), (0.4, -0.4), index=1)]
    batch, own = batch_of(queue, games)
    kept = rows.leave_out(batch, own, Filters(draws=True))
    assert kept.keys == ["u1_0_0"]
    assert not rows.trained(own[0])
    facts = rows.facts(own[:1], 1.0, lambda game, role: 1.0)
    with row_facts(facts):
        advantages, _ = compute_rae_advantage(torch.zeros(1, 3), torch.ones(1, 3))
    assert advantages.tolist() == [[0.0] * 3]


def test_facts_of_rows() -> None:
    """Padding is all zero; scale and discount go with the row."""
    long = record(
        0, rewards=(1.0, -1.0), turns=[turn(0, 0), turn(1, 0), turn(0, 1), turn(1, 1)], baselines=(0.25, -0.5)
    )
    facts = rows.facts([Row(long, long.turns[0]), None, Row(long, long.turns[3])], 0.5, lambda game, role: 2.0 + role)
    assert facts.outcomes.tolist() == [1.0, 0.0, -1.0]
    assert facts.baselines.tolist() == [0.25, 0.0, -0.5]
    assert facts.turns_remaining.tolist() == [1, 0, 0]
    mask = torch.tensor([[1], [0], [1]])
    with row_facts(facts):
        advantages, returns = compute_rae_advantage(torch.tensor([[1.0], [0.0], [-1.0]]), mask)
    assert advantages.tolist() == [[2 * 0.5 * 0.75], [0.0], [3 * -0.5]]
    assert returns.tolist() == [[1.0], [0.0], [-3.0]]


def test_turns_that_verl_rejects_are_noted_as_such() -> None:
    """Their tokens are all masked; in the mean over turns they count as verl counts them."""
    played = game((1.0, -1.0), index=1)
    skipped = game((0.0, 0.0), index=2)
    skipped.turns[0].left_out = "draw"
    own = [Row(played, played.turns[0]), None, Row(played, played.turns[1]), Row(skipped, skipped.turns[0])]
    facts = rows.facts(own, 1.0, lambda game, role: 1.0)
    mask = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 1]])
    with row_facts(facts):
        compute_rae_advantage(torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, -1.0], [0.0, 0.0]]), mask)
    assert facts.advantages is not None and facts.kept is not None
    rows.note_advantages(own, facts.advantages, facts.kept)
    assert [(turn.left_out, turn.advantage) for turn in (*played.turns, skipped.turns[0])] == [
        ("rejected", None),
        (None, -1.0),
        ("draw", None),
    ]
    assert list(map(rows.trained, own)) == [True, False, True, False]
    assert training_metrics([played, skipped], [])["turns/left_out/rejected"] == 1 / 4


def test_what_is_left_out_is_counted() -> None:
    games = [game((0.0, 0.0), index=1), game((1.0, -1.0), index=2)]
    games[0].turns[0].left_out = "draw"
    metrics = training_metrics(games, [])
    assert metrics["turns/left_out/draw"] == 1 / 4
    assert {name for name in metrics if "left_out" in name} == {f"turns/left_out/{reason}" for reason in REASONS}
