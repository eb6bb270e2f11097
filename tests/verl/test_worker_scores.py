"""A worker scores answers with the policy that it trains; several ranks share the work."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recipe.spiral.lab.evaluation.exploitability.live_metrics import score_on_rank
from recipe.spiral.lab.models.answer_scores import Question, in_order
from recipe.spiral.workers.policy_worker import PolicyWorker
from tests.lab.models.test_answers import models, questions, scored


class Engine:
    """verl's engine as far as scores need it: counts passes, as every pass of a shard needs all ranks."""

    def __init__(self, module: Any) -> None:
        self.module, self._autocast_dtype, self.passes = module, torch.float32, 0
        module.register_forward_pre_hook(lambda *_: self._count())

    def _count(self) -> None:
        self.passes += 1

    @contextmanager
    def eval_mode(self) -> Any:
        self.module.eval()
        yield


def ranks(number: int, monkeypatch: pytest.MonkeyPatch, asked: list[Question]) -> tuple[list[Any], list[int]]:
    """Each rank's part of the scores, and how many passes it made."""
    monkeypatch.setattr("verl.utils.device.get_device_id", lambda: "cpu")
    parts, passes = [], []
    for rank in range(number):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: number)
        worker = object.__new__(PolicyWorker)
        worker.actor = SimpleNamespace(engine=Engine(models()[0]))
        parts.append(worker.on_each_rank(score_on_rank, asked, [0, 7], 0.7, 100))
        passes.append(worker.actor.engine.passes)
    return parts, passes


@pytest.mark.parametrize("number", [1, 2, 5])
def test_ranks_share_the_work(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipe.spiral.lab.models.answer_scores.TREE_TOKENS", 40)
    asked = questions()
    parts, passes = ranks(number, monkeypatch, asked)
    together = {place: value for part in parts for place, value in part.items()}
    for found, expected in zip(in_order(asked, together), scored(models()[0], asked, [0, 7], 0.7), strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    assert len(set(passes)) == 1, "a rank without a pass would leave the others waiting"
    if number > 1:
        assert sum(map(len, parts)) < number * len(together)


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl.utils.device.get_device_id", lambda: "cpu")
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)


def check_reference(worker: Any, expected: Any) -> None:
    """The reference has the scores of this model, and the actor has its own before and after."""
    asked = questions()
    for reference, model in ((False, models()[0]), (True, expected), (False, models()[0])):
        parts = worker.on_each_rank(score_on_rank, asked, [0, 7], 0.7, 100, reference)
        wanted = scored(model, asked, [0, 7], 0.7)
        for found, value in zip(in_order(asked, parts), wanted, strict=True):
            assert found == pytest.approx(value, abs=1e-5)


@pytest.mark.usefixtures("one_rank")
def test_the_reference_has_scores_of_its_own() -> None:
    other = models()[0]
    with torch.no_grad():
        other.model.embed_tokens.weight.mul_(3)
    worker: Any = object.__new__(PolicyWorker)
    worker.actor, worker.ref = SimpleNamespace(engine=Engine(models()[0])), SimpleNamespace(engine=Engine(other))
    check_reference(worker, other)


@pytest.mark.usefixtures("one_rank")
def test_with_lora_the_reference_is_the_base_and_then_another_adapter() -> None:
    from peft import LoraConfig, get_peft_model

    # the actor that check_reference expects: its adapter, which is the base at first, is zero
    module = get_peft_model(models()[0], LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"]))
    engine: Any = Engine(module)
    engine.disable_adapter = module.disable_adapter
    worker: Any = object.__new__(PolicyWorker)
    worker.actor, worker.ref = SimpleNamespace(engine=engine), None
    torch.manual_seed(1)
    adapter = {name: torch.randn_like(weight) for name, weight in module.state_dict().items() if "lora_" in name}
    worker._adapter = adapter
    expected = models()[0]
    with torch.no_grad():
        for name, weight in expected.named_parameters():
            part = f"base_model.model.{name.removesuffix('.weight')}.lora_{{}}.default.weight"
            if (a := adapter.get(part.format("A"))) is not None:
                weight.add_(2 * adapter[part.format("B")] @ a)
    check_reference(worker, expected)
    worker._adapter = None
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "lora_" in name:
                weight.copy_(adapter[name])
    asked = questions()
    parts = worker.on_each_rank(score_on_rank, asked, [0, 7], 0.7, 100, True)
    for found, value in zip(in_order(asked, parts), scored(models()[0], asked, [0, 7], 0.7), strict=True):
        assert found == pytest.approx(value, abs=1e-5)
