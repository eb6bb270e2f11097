"""An update by verl's worker on two ranks, against the same update in plain torch on one."""

from __future__ import annotations

import math
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from torch.distributed.tensor import DTensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForCausalLM
from verl.trainer.ppo.core_algos import kl_penalty
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils import tensordict_utils as tu
from verl.utils.metric.utils import reduce_metrics
from verl.utils.torch_functional import get_cosine_schedule_with_warmup

from recipe.spiral import extensions, main_spiral
from recipe.spiral.checks.settle import settle
from recipe.spiral.training.step import deal, rows_at_once
from recipe.spiral.workers import mini_batch_worker
from recipe.spiral.workers.mini_batch_worker import MINI_BATCHES, MiniBatchWorker, as_asked
from tests.ranks import run_ranks

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(main_spiral.__file__).parent / "config"
SHIPPED = ROOT / "recipe/spiral/shipped/tiny"
RANKS = 2
#: Seconds for the updates of a test, most of which are imports: many times what they take, as machines differ.
LIMIT = 600
#: Tokens that are drawn.
VOCABULARY = 64
#: What the old policy and the reference said of a row.
NEAR = ("old", "reference")

# -- the update in plain torch -----------------------------------------------------------------------------------------


@dataclass
class Row:
    """A turn: tokens, and what the trainer knows of each token of its response."""

    prompt: torch.Tensor
    response: torch.Tensor
    advantage: float
    old: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    reference: torch.Tensor = field(default_factory=lambda: torch.empty(0))


def rows_of(model: Any, number: int, seed: int) -> list[Row]:
    """Random turns, whose old policy and reference are near the model."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> torch.Tensor:
        size = int(torch.randint(low, high, (), generator=generator))
        return torch.randint(3, VOCABULARY, (size,), generator=generator)

    rows = [Row(draw(4, 20), draw(1, 9), float(torch.randn((), generator=generator))) for _ in range(number)]
    with torch.no_grad():
        log_probs, _, mask = outputs(model, rows)
    for row, chosen, own in zip(rows, log_probs, mask, strict=True):
        row.old = chosen[own] + 0.2 * torch.randn(len(row.response), generator=generator)
        row.reference = chosen[own] + 0.2 * torch.randn(len(row.response), generator=generator)
    return rows


def outputs(model: Any, rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log-probabilities of the responses' tokens, the entropies, and a mask, all [rows, longest response]."""
    texts = [torch.cat([row.prompt, row.response]) for row in rows]
    whole = model(input_ids=pad_sequence(texts, batch_first=True)).logits.log_softmax(-1)
    chosen, entropy = [], []
    for row, log_p in zip(rows, whole, strict=True):
        own = log_p[len(row.prompt) - 1 : len(row.prompt) + len(row.response) - 1]
        chosen.append(own.gather(-1, row.response[:, None])[:, 0])
        entropy.append(-(own.exp() * own).sum(-1))
    mask = pad_sequence([torch.ones(len(row.response), dtype=torch.bool) for row in rows], batch_first=True)
    return pad_sequence(chosen, batch_first=True), pad_sequence(entropy, batch_first=True), mask


class Plain:
    """PPO in plain torch; a mini-batch without a turn is not there."""

    def __init__(self, model: Any, actor: DictConfig, steps: int) -> None:
        self.model, self.actor = model.train(), actor
        optim = actor.optim
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
        )
        # the rate falls with the training's steps, however many the optimizer takes in each
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)

    def update(self, rows: list[Row], mini_batches: int) -> dict[str, float]:
        """The turns in their order, in so many runs whose sizes differ by one at most; returns the mean metrics."""
        cuts = [len(rows) * number // mini_batches for number in range(mini_batches + 1)]
        metrics = []
        for _ in range(self.actor.ppo_epochs):
            for first, last in pairwise(cuts):
                if first < last:
                    metrics.append(self._step(rows[first:last]))
        self.schedule.step()
        return {name: sum(step[name] for step in metrics) / len(metrics) for name in metrics[0]}

    def _step(self, rows: list[Row]) -> dict[str, float]:
        actor = self.actor
        log_probs, entropy, mask = outputs(self.model, rows)
        old, reference = (pad_sequence([getattr(row, name) for row in rows], batch_first=True) for name in NEAR)
        advantages = torch.tensor([row.advantage for row in rows])[:, None]
        ratio = (log_probs - old).exp()
        unclipped, clipped = -advantages * ratio, -advantages * ratio.clamp(1 - actor.clip_ratio, 1 + actor.clip_ratio)
        loss = torch.maximum(unclipped, clipped) - actor.entropy_coeff * entropy
        if actor.use_kl_loss:
            loss = loss + actor.kl_loss_coef * kl_penalty(log_probs, reference, actor.kl_loss_type)
        if actor.loss_agg_mode == "token-mean":
            mean = loss[mask].mean()
        else:
            assert actor.loss_agg_mode == "seq-mean-token-sum-norm"
            mean = ((loss * mask).sum(-1) / actor.loss_scale_factor).mean()
        self.optimizer.zero_grad()
        mean.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), actor.grad_clip)
        assert norm > 2 * actor.grad_clip, "it is clipped"
        self.optimizer.step()
        return {"grad_norm": float(norm)}


# -- the same by verl's worker -----------------------------------------------------------------------------------------


def composed(folder: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose(
            "spiral_trainer",
            overrides=["hardware=cpu", f"run_dir={folder}", f"trainer.n_gpus_per_node={RANKS}", *overrides],
        )
    settle(config)
    config.actor_rollout_ref.model.path = str(folder / "model")
    return OmegaConf.create(OmegaConf.to_container(config.actor_rollout_ref, resolve=True))


def random_model(folder: Path) -> Any:
    """The tiny model's form and tokenizer with a few random weights."""
    shutil.copytree(SHIPPED, folder)
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = 2, 32, 64
    config.layer_types = config.layer_types[:2]
    config.num_attention_heads = config.num_key_value_heads = 4
    config.head_dim = 8
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return model


def as_tensordict(rows: list[Row], padding: int) -> Any:
    """What verl's queue gives a worker of these turns, and of rows of padding after them."""
    samples = []
    for row in rows:
        whole, mask = torch.cat([row.prompt, row.response]), torch.ones(len(row.response), dtype=torch.int64)
        samples.append(
            {
                "prompts": row.prompt,
                "responses": row.response,
                "input_ids": whole,
                "attention_mask": torch.ones_like(whole),
                "position_ids": torch.arange(len(whole)),
                "response_mask": mask,
                "loss_mask": mask,
                "old_log_probs": row.old,
                "ref_log_prob": row.reference,
                "advantages": row.advantage * mask,
                "rm_scores": 0.0 * mask,
                "rollout_log_probs": row.old,
                "num_turns": 3,
            }
        )
    template, _ = construct_minimal_padding_template(samples[0], {"seq_len": 1}, 2)
    # verl computes these two of padding, too; advantages are zero
    template |= {name: torch.full((1,), -5.0) for name in ("old_log_probs", "ref_log_prob")}
    template["advantages"] = torch.zeros(1)
    return tu.list_of_dict_to_tensordict([*samples, *([template] * padding)])


def on_a_rank(rank: int, folder: Path) -> None:
    """What each of the processes does."""
    from recipe.spiral.workers.policy_worker import PolicyWorker

    config, batches = pickle.loads((folder / "task.pkl").read_bytes())
    worker = PolicyWorker(config=config, role="actor")
    worker.init_model()
    results = []
    for fields, mini_batches in batches:
        rows = [Row(**values) for values in fields]
        multiple = RANKS * mini_batches * rows_at_once(config)
        size = -(-len(rows) // multiple) * multiple
        lengths = [len(row.prompt) + len(row.response) for row in rows]
        padded = [*lengths, *[2] * (size - len(rows))]
        share = deal(padded, len(rows), mini_batches, RANKS)[0][rank]
        data = tu.index_select_tensor_dict(as_tensordict(rows, size - len(rows)), share)
        tu.assign_non_tensor(
            data,
            calculate_entropy=True,
            # what verl says of every batch, and what counts
            global_batch_size=777,
            mini_batch_size=777,
            **{MINI_BATCHES: mini_batches},
            epochs=config.actor.ppo_epochs,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            temperature=1.0,
        )
        metrics = reduce_metrics(dict(tu.get(worker.update_actor(data), "metrics")))
        weights = worker.actor.engine.module.state_dict()
        whole = {name: w.full_tensor() if isinstance(w, DTensor) else w for name, w in weights.items()}
        results.append((metrics, {name: weight.detach().clone() for name, weight in whole.items()}))
    if rank == 0:
        (folder / "results.pkl").write_bytes(pickle.dumps(results))
    torch.distributed.destroy_process_group()


def updated(folder: Path, config: DictConfig, batches: list[tuple[list[Row], int]]) -> Any:
    """Metrics and weights after each of the updates, by ranks in processes of their own."""
    plain = [([vars(row) for row in rows], mini_batches) for rows, mini_batches in batches]
    (folder / "task.pkl").write_bytes(pickle.dumps((config, plain)))
    environment = {
        "DIST_INIT_METHOD": f"file://{folder}/store",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        extensions.NAMES: os.environ[extensions.NAMES],
    }
    run_ranks(on_a_rank, folder, ranks=RANKS, limit=LIMIT, **environment)
    return pickle.loads((folder / "results.pkl").read_bytes())


def apart(ours: Mapping[str, torch.Tensor], model: Any, before: Mapping[str, torch.Tensor]) -> float:
    """How far the weights are from the model's, as a share of how far those are from where they were."""
    theirs = model.state_dict()

    def norm(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> float:
        return sum(float((left[name].double() - right[name].double()).square().sum()) for name in before) ** 0.5

    return norm(ours, theirs) / norm(theirs, before)


@pytest.mark.e2e
@pytest.mark.timeout(3 * LIMIT)
@pytest.mark.parametrize(
    "overrides",
    [
        # several micro-batches, by their tokens, in one of which there may be padding alone
        [
            "actor_rollout_ref.model.enable_gradient_checkpointing=true",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=160",
            "actor_rollout_ref.actor.use_kl_loss=true",
        ],
        # three rows at a time, which takes more padding
        [
            "actor_rollout_ref.actor.use_dynamic_bsz=false",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=3",
            "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        ],
    ],
    ids=["by_tokens", "fixed"],
)
def test_an_update_is_that_of_plain_torch(tmp_path: Path, overrides: list[str]) -> None:
    """Fifty turns in three mini-batches; then three turns in four, one of which is empty and takes no step."""
    model = random_model(tmp_path / "model")
    config = composed(
        tmp_path,
        *overrides,
        "actor_rollout_ref.actor.ppo_epochs=2",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "actor_rollout_ref.actor.kl_loss_coef=0.1",
        "actor_rollout_ref.actor.kl_loss_type=low_var_kl+",
        # so small a norm that AdamW's epsilon counts: an update without it would be another one
        "actor_rollout_ref.actor.grad_clip=1e-5",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.optim.lr_scheduler_type=cosine",
        "actor_rollout_ref.actor.optim.total_training_steps=4",
    )
    batches = [(rows_of(model, 50, seed=1), 3), (rows_of(model, 3, seed=2), 4)]
    results = updated(tmp_path, config, batches)
    plain = Plain(model, config.actor, 4)
    for (rows, mini_batches), (metrics, weights) in zip(batches, results, strict=True):
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        means = plain.update(rows, mini_batches)
        assert apart(weights, model, before) < 1e-4
        assert {name: metrics[name] for name in means} == pytest.approx(means, rel=1e-3, abs=1e-6)
        assert metrics["lr"] == plain.schedule.get_last_lr()[0]


# -- parts -------------------------------------------------------------------------------------------------------------


def test_where_no_token_is_trained_only_the_schedule_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all turns of a mini-batch are rejected. It moves after the last mini-batch, as in verl, and counts
    training steps, those in which nothing is trained included."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **more: None)
    monkeypatch.setattr(mini_batch_worker, "get_device_name", lambda: "cpu")
    (skips, _), (trains, schedule) = with_a_schedule(), with_a_schedule()
    columns = {"response_mask": torch.zeros(2, 3, dtype=torch.int64), "num_turns": torch.tensor([2, 0])}
    for number in range(1, 10):
        for last in (False, True):
            data = tu.get_tensordict(columns, {"update_lr_scheduler": last})
            metrics = tu.get(trains.train_batch(data), "metrics")
            assert metrics == ({"lr": schedule.get_last_lr()[0]} if last else {})
        assert skips.skip_update() == metrics["lr"]
        assert metrics["lr"] == pytest.approx((1 + math.cos(number / 10 * math.pi)) / 2, abs=1e-6)


def with_a_schedule() -> tuple[MiniBatchWorker, Any]:
    """A worker of a policy with one weight, and its cosine schedule of 10 steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=10)

    def step() -> float:
        optimizer.step()
        schedule.step()
        return float(schedule.get_last_lr()[0])

    made: Any = object.__new__(MiniBatchWorker)
    made.engine = SimpleNamespace(lr_scheduler_step=step, get_data_parallel_group=lambda: None)
    return made, schedule


def test_a_resumed_optimizer_has_the_settings_that_are_asked_for() -> None:
    """Its moments are the checkpoint's, and its rate is what a run that always had these settings would have now."""

    def made(lr: float, decay: float) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        optimizer = torch.optim.AdamW([weight], lr=lr, weight_decay=decay)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    saved, always, asked = made(0.1, 0.1), made(0.01, 0.2), made(0.01, 0.2)
    for optimizer, schedule in (*[saved] * 3, *[always] * 3):
        optimizer.step()
        schedule.step()
    with as_asked(*asked):
        for new, old in zip(asked, saved, strict=True):
            new.load_state_dict(old.state_dict())
    (group,), (wanted,) = asked[0].param_groups, always[0].param_groups
    assert [group[name] for name in ("lr", "weight_decay")] == [wanted[name] for name in ("lr", "weight_decay")]
    assert int(next(iter(asked[0].state.values()))["step"]) == 3
