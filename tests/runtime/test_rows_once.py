"""verl's micro-batches, of rows that torch has taken apart once."""

from __future__ import annotations

import gc
import inspect
import re
import weakref
from typing import Any

import pytest
import torch
from torch.nested._internal.nested_tensor import NestedTensor
from verl.utils import tensordict_utils as tu
from verl.utils.tensordict_utils import assert_tensordict_eq
from verl.workers import engine_workers
from verl.workers.engine import utils as engine_utils
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.utils import prepare_micro_batches
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils import losses, padding

from recipe.spiral.runtime.workers import FastPolicyWorker, FastTrainedWorker, RowsOnceWorker, with_rows

LENGTHS = [5, 1, 9, 3, 3, 7, 2, 8, 4, 6]


def batch() -> Any:
    def rows(make: Any) -> torch.Tensor:
        return torch.nested.as_nested_tensor([make(length) for length in LENGTHS], layout=torch.jagged)

    tensors = {
        "input_ids": rows(lambda length: torch.arange(length) + 100 * length),
        "loss_mask": rows(lambda length: torch.ones(length, dtype=torch.bool)),
        "logits": rows(lambda length: torch.randn(length, 3, generator=torch.Generator().manual_seed(length))),
        "num_turns": torch.arange(len(LENGTHS)),
    }
    return tu.get_tensordict(tensors, {"max_token_len_per_gpu": 12, "data_source": ["Nim"] * len(LENGTHS)})


@pytest.fixture
def taken_apart(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of nested tensors that torch has taken apart."""
    sizes: list[int] = []

    def unbind(tensor: torch.Tensor, dim: int = 0) -> Any:
        sizes.append(len(tensor))
        return torch.unbind(tensor, dim)

    monkeypatch.setattr(NestedTensor, "unbind", unbind, raising=False)
    return sizes


def test_micro_batches_are_the_same_and_rows_are_taken_apart_once(taken_apart: list[int]) -> None:
    """The first assertion fails when verl does it by itself, and ``RowsOnceWorker`` can go."""
    expected, places = prepare_micro_batches(batch())
    assert len(expected) > 3 and taken_apart.count(len(LENGTHS)) == 3 * len(expected), "once for each micro-batch"
    taken_apart.clear()
    with with_rows(batch()) as data:
        made, places_again = prepare_micro_batches(data)
    assert taken_apart.count(len(LENGTHS)) == 1, "the logits, once; sequences of numbers are cut"
    assert places_again == places
    for one, other in zip(made, expected, strict=True):
        assert_tensordict_eq(one, other)


def test_mini_batches_are_the_same(taken_apart: list[int]) -> None:
    options: dict[str, Any] = {"mini_batch_size": 5, "epochs": 2, "seed": 1, "dataloader_kwargs": {"shuffle": True}}
    expected = [*tu.make_iterator(batch(), **options)]
    taken_apart.clear()
    with with_rows(batch()) as data:
        made = [*tu.make_iterator(data, **options)]
    assert len(made) == 4 and taken_apart.count(len(LENGTHS)) == 1
    for one, other in zip(made, expected, strict=True):
        assert_tensordict_eq(one, other)


def test_a_selection_knows_its_own_rows() -> None:
    """Not those of the batch that it was selected from."""
    with with_rows(batch()) as data:
        selected = tu.index_select_tensor_dict(data, [3, 0])
        moved = data.to(torch.device("cpu"), non_blocking=True)
    assert [row.tolist() for row in selected["input_ids"].unbind()] == [[300, 301, 302], [500, 501, 502, 503, 504]]
    assert [len(row) for row in moved["input_ids"].unbind()] == LENGTHS


@pytest.mark.parametrize("name", ["input_ids", "logits"])
def test_a_batch_is_gone_after_its_use(name: str) -> None:
    """Rows keep the tensor that they are cut from, where Python's search for garbage does not see it."""
    data = batch()
    gone = weakref.ref(data[name])
    with with_rows(data) as known:
        assert len(known[name].unbind()) == len(LENGTHS)
    del data, known
    gc.collect()
    assert gone() is None


def test_what_nobody_reads_is_left_out() -> None:
    """verl's engines read images. Ours read which rows are turns, which become a tensor; settings of the batch stay."""
    whole = batch()
    more = {"uid": ["a"] * len(LENGTHS), "multi_modal_inputs": [{"pixels": i} for i in range(len(LENGTHS))]}
    for name, values in {**more, "num_turns": [*range(len(LENGTHS))]}.items():
        tu.assign_non_tensor_stack(whole, name, values)
    with with_rows(whole) as kept:
        pass
    assert whole.keys() - kept.keys() == {"uid"}
    assert kept["num_turns"].tolist() == [*range(len(LENGTHS))]
    assert [image["pixels"] for image in kept["multi_modal_inputs"]] == [*range(len(LENGTHS))]
    assert tu.get(kept, "max_token_len_per_gpu") == 12
    with with_rows(batch().exclude("num_turns")) as kept:
        assert "num_turns" not in kept


def test_verl_reads_no_other_rows_that_are_no_tensors() -> None:
    """Fails when a worker of verl's reads another field, which must be kept if it is no tensor."""
    read: set[str] = set()
    for module in (engine_workers, engine_utils, transformer_impl, losses, padding):
        read |= set(re.findall(r"(?:batch|data|td)(?:\.get\(|\[)\"(\w+)\"", inspect.getsource(module)))
    of_batch = {"batch_num_tokens", "dp_size", "global_batch_size", "max_token_len_per_gpu", "micro_batch_size_per_gpu"}
    tensors = {"advantages", "attention_mask", "input_ids", "loss_mask", "old_log_probs", "position_ids", "prompts"}
    tensors |= {"ref_log_prob", "response_mask", "responses", "returns", "rollout_is_weights", "temperature", "values"}
    of_others = {"routed_experts", "teacher_ids", "teacher_logprobs"}  # tensors as well
    diffusion = {"negative_prompt_embeds", "negative_prompt_embeds_mask", "prompt_embeds", "prompt_embeds_mask"}
    assert read == {"multi_modal_inputs"} | of_batch | tensors | of_others | diffusion


def test_rows_between_which_something_lies_are_torchs() -> None:
    """A part of each row of a larger tensor."""
    whole = torch.arange(20).view(4, 5)
    part = torch.nested.narrow(whole, 1, torch.tensor([0, 1, 2, 0]), torch.tensor([2, 1, 3, 5]), layout=torch.jagged)
    with with_rows({"ids": part}) as data:
        rows = data["ids"].unbind()
    assert [row.tolist() for row in rows] == [[0, 1], [6], [12, 13, 14], [15, 16, 17, 18, 19]]


def test_policy_reference_and_critic_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []
    for name in ("train_batch", "infer_batch", "train_mini_batch"):

        def noted(worker: Any, data: Any, name: str = name) -> None:
            asked.append((name, "unbind" in vars(data["input_ids"])))

        monkeypatch.setattr(TrainingWorker, name, noted)
        getattr(object.__new__(RowsOnceWorker), name)(batch())
    assert asked == [("train_batch", True), ("infer_batch", True), ("train_mini_batch", True)]
    parts = [FastPolicyWorker.actor_worker_cls, FastPolicyWorker.ref_worker_cls, FastTrainedWorker]
    assert all(issubclass(part, RowsOnceWorker) for part in parts)
