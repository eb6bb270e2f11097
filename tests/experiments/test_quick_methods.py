"""Methods that only the experiments have, against values by hand."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from experiments.quick_methods import Methods, ObservationBaselines, regularised
from experiments.quick_sampler import Distributions
from experiments.quick_update import Learner, LossSettings
from recipe.spiral.players.records import GameRecord, Turn
from recipe.spiral.players.seeds import GameKey

torch = pytest.importorskip("torch")
ROWS = [((5, 6, 7), (8, 9)), ((5, 6), (7, 8, 11))]


def learner(model: Any, steps: int = 10, **settings: Any) -> Learner:
    optim = {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.0, "lr_scheduler_type": "constant"}
    optim |= {"lr_warmup_steps": -1, "lr_warmup_steps_ratio": 0.0}
    loss = LossSettings(1.0, 0.0, 0.2, "low_var_kl+", 1.0, **settings)
    return Learner(Distributions(copy.deepcopy(model), trained=True), loss, SimpleNamespace(**optim), steps)


def moved(model: Any) -> None:
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)


def test_settings_are_read_and_unknown_ones_refused() -> None:
    assert Methods.from_config(OmegaConf.create()) == Methods()
    given = OmegaConf.create({"quick": {"kl_end": 0.01, "baseline": "observation", "regularise": "rewards"}})
    assert Methods.from_config(given) == Methods(0.01, "observation", "rewards")
    for wrong in ({"baseline": "game"}, {"kl": 1}):
        with pytest.raises(ValueError, match=r"quick\."):
            Methods.from_config(OmegaConf.create({"quick": wrong}))


def test_what_one_player_pays_for_its_ratios_the_other_gets_from_there_back() -> None:
    """Turns of players 0, 1, 0 with log ratios 1, 2, 4 and a coefficient of 0.1; player 0 wins."""
    record = GameRecord(GameKey("train", 0, 1, 0), "KuhnPoker", ("policy", "policy"), (0, 1))
    record.turns = [Turn(player, turn, "", "", "legal", "", None) for player, turn in ((0, 0), (1, 0), (0, 1))]
    record.rewards = (1.0, -1.0)
    assert regularised(record, [1.0, 2.0, 4.0], 0.1) == pytest.approx([1 - 0.1 + 0.2 - 0.4, -1 - 0.2 + 0.4, 1 - 0.4])


def test_a_batch_is_compared_with_what_observations_brought_before_it() -> None:
    baselines = ObservationBaselines(0.5)
    assert [baselines.compare("a", 1.0), baselines.compare("a", 2.0), baselines.compare("b", -1.0)] == [1.0, 2.0, -1.0]
    baselines.end_batch()
    assert baselines.compare("a", 0.0) == -1.25 and baselines.compare("b", 0.0) == 0.5


def test_the_coefficient_falls_by_the_same_factor_at_each_step(reader: Any) -> None:
    one = learner(reader.model, steps=4, kl_end=0.0125)
    found = []
    for one.done in range(5):
        found.append(one.kl)
    assert found == pytest.approx([0.2, 0.1, 0.05, 0.025, 0.0125])


def test_the_reference_goes_a_part_of_the_way(reader: Any) -> None:
    torch.manual_seed(0)
    one = learner(reader.model)
    old = [weight.clone() for weight in one.model.parameters()]
    moved(one.model)
    first = one.referred(ROWS)
    one.refresh(0.25)
    assert one.reference is not None
    for start, new, mean in zip(old, one.model.parameters(), one.reference.model.parameters(), strict=True):
        torch.testing.assert_close(mean, 0.75 * start + 0.25 * new)
    assert not torch.allclose(first, one.referred(ROWS)), "nothing of the old reference is remembered"
    one.refresh()
    for new, mean in zip(one.model.parameters(), one.reference.model.parameters(), strict=True):
        assert torch.equal(mean, new)


def test_the_ratio_goes_from_one_copy_to_the_next_in_the_first_half(reader: Any) -> None:
    torch.manual_seed(0)
    one = learner(reader.model)

    def of_model(model: Any) -> list[float]:
        _, chosen, mask = Distributions(model, trained=False).of(ROWS)
        return [float(value) for value in (chosen * mask).sum(1)]

    start = of_model(one.model)
    moved(one.model)
    one.policy.forget()
    one.done = 8
    one.refresh()
    copied = of_model(one.model)
    moved(one.model)
    one.policy.forget()
    now = of_model(one.model)
    for done, new in ((8, 0.0), (9, 0.5), (10, 1.0), (11, 1.0)):
        one.done = done
        expected = [a - new * b - (1 - new) * c for a, b, c in zip(now, copied, start, strict=True)]
        assert one.ratios([*ROWS, ROWS[0]], every=4) == pytest.approx([*expected, expected[0]], abs=1e-4)
    assert math.dist(now, copied) > 0.1


def test_runs_with_each_method_are_runs(tmp_path: Path) -> None:
    """A whole run with the shipped model: the reference is measured, and what is regularised learns."""
    from experiments.composed import compose_run
    from experiments.quick import run

    arguments = ["--config-dir", "config", "+experiment=kuhn", "data.train_batch_size=16", "ref_update_freq=2"]
    seen = []
    for number, more in enumerate(
        (["ref_update_rate=0.5"], ["+quick.regularise=rewards"], ["+quick.baseline=observation", "+quick.kl_end=0.02"])
    ):
        config = compose_run([*arguments, "trainer.total_training_steps=4", *more])
        curve = run(config, 2, tmp_path / str(number))
        first, *_, last = (point.measures for point in curve.points)
        assert first["NashConv of the reference"] == pytest.approx(first["NashConv"])
        assert last["NashConv"] != last["NashConv of the reference"] or number
        seen.append(last["NashConv"])
    assert len(set(seen)) == 3
