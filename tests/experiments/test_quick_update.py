"""The quick loop's update against the trainer's: a recorded step goes to verl's loss and optimizer, row by row."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.composed import compose_run
from experiments.quick import _Run
from recipe.spiral.players.records import GameRecord
from recipe.spiral.rae import rae_advantages

torch = pytest.importorskip("torch")
ENTROPY = ["actor_rollout_ref.actor.use_kl_loss=false", "actor_rollout_ref.actor.entropy_coeff=0.05"]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Makes the shipped model's run with a reference that is not the model."""

    def run(*overrides: str) -> _Run:
        arguments = ["--config-dir", "config", "+experiment=kuhn", "data.train_batch_size=24", "algorithm.gamma=0.5"]
        config = compose_run([*arguments, "trainer.total_training_steps=4", f"run_dir={tmp_path}", *overrides])
        made = _Run(config, "KuhnPoker")
        if made.learner.reference is not None:
            torch.manual_seed(1)
            for weight in made.learner.reference.model.parameters():
                weight.data += 0.03 * torch.randn_like(weight)
        return made

    return run


def played(run: _Run, step: int) -> list[GameRecord]:
    """A step's games with their baselines."""
    games = run._play(step)
    baselines = run._baselines(games)
    records = [replace(record, baselines=baselines.of(record)) for record in games]
    run.baselines.update(records)
    return records


def verls_loss(run: _Run, model: Any, records: list[GameRecord]) -> Any:
    """The actor's loss as the trainer calls it; each turn is a row, and nothing is merged or kept from sampling."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    samples, log_probs, entropies, baselines = [], [], [], run._baselines(records)
    temperature = run.config.actor_rollout_ref.rollout.temperature
    for record in records:
        for player in record.trainable:
            turns = record.turns_of(player)
            for turn in turns:
                tokens, baseline = turn.tokens, record.baselines[player]
                assert tokens is not None and tokens.log_probs is not None and baseline is not None
                prompt, response = tokens.prompt_ids, tokens.response_ids
                mask = torch.ones(len(response))
                advantages, _ = rae_advantages(
                    torch.tensor([record.rewards[player]]),
                    torch.tensor([baseline]),
                    torch.tensor([len(turns) - 1 - turn.turn]),
                    mask[None],
                    gamma=run.config.algorithm.gamma,
                )
                sample = {
                    "prompts": torch.tensor(prompt),
                    "responses": torch.tensor(response),
                    "response_mask": mask,
                    "old_log_probs": torch.tensor(tokens.log_probs),
                    "advantages": advantages[0] * baselines.scale(record, player),
                }
                values = whole(model, [*prompt, *response], temperature)
                log_probs.append(values.gather(1, torch.tensor([*prompt[1:], *response, 0])[:, None])[:, 0])
                entropies.append(-(values.exp() * values).sum(-1))
                if run.learner.reference is not None:
                    with torch.no_grad():
                        referred = whole(run.learner.reference.model, [*prompt, *response], temperature)
                    referred = referred[len(prompt) - 1 : -1]
                    sample["ref_log_prob"] = referred.gather(1, sample["responses"][:, None])[:, 0]
                samples.append(sample)

    def nested(values: list[Any]) -> Any:
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    columns = {name: nested([sample[name] for sample in samples]) for name in samples[0]}
    data = TensorDict(columns, batch_size=[len(samples)])
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=len(samples))
    output = {"log_probs": nested(log_probs), "entropy": nested(entropies)}
    loss, _ = ppo_loss(omega_conf_to_dataclass(run.config.actor_rollout_ref.actor), output, data)
    return loss


def whole(model: Any, ids: list[int], temperature: float) -> Any:
    """Log-probabilities of all tokens after each token of a text by itself."""
    return torch.log_softmax(model(torch.tensor([ids])).logits[0].float() / temperature, -1)


def gradient(loss: Any, model: Any) -> Any:
    return torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["actor_rollout_ref.actor.kl_loss_type=low_var_kl"],
        ENTROPY,
        ["actor_rollout_ref.rollout.temperature=1.5"],
        ["algorithm.adv_estimator=grpo_role", "data.games_per_start=4"],
    ],
    ids=["low_var_kl+", "low_var_kl", "entropy", "temperature", "grpo_role"],
)
def test_the_gradient_of_a_recorded_step_is_verls(start: Any, overrides: list[str]) -> None:
    run = start(*overrides)
    records = played(run, 1)
    assert len({record.rewards for record in records}) > 2
    loss, wanted = run.learner.objective(run._rows(records)), verls_loss(run, run.model, records)
    ours, theirs = gradient(loss, run.model), gradient(wanted, run.model)
    assert theirs.norm() > 0.01 and (ours - theirs).norm() < 1e-4 * theirs.norm()


def test_the_two_estimators_of_kl_have_one_value_and_two_gradients(start: Any) -> None:
    values, gradients = [], []
    for kind in ("low_var_kl", "low_var_kl+"):
        run = start(f"actor_rollout_ref.actor.kl_loss_type={kind}", "actor_rollout_ref.actor.kl_loss_coef=10")
        loss = run.learner.objective(run._rows(played(run, 1)))
        values.append(loss.item())
        gradients.append(gradient(loss, run.model))
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert (gradients[0] - gradients[1]).norm() > 0.1 * gradients[0].norm()


def test_steps_are_those_of_verls_loss_clipping_optimizer_and_schedule(start: Any) -> None:
    """With a clipping that bites."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.torch_functional import get_cosine_schedule_with_warmup
    from verl.workers.config.optimizer import build_optimizer

    run = start("actor_rollout_ref.actor.grad_clip=0.02")
    model, optim = copy.deepcopy(run.model), run.config.actor_rollout_ref.actor.optim
    before = copy.deepcopy(run.model)
    optimizer = build_optimizer(list(model.parameters()), omega_conf_to_dataclass(optim))
    schedule = get_cosine_schedule_with_warmup(optimizer, 0, run.steps, min_lr_ratio=optim.min_lr_ratio)
    for step in range(1, 4):
        records = played(run, step)
        optimizer.zero_grad()
        verls_loss(run, model, records).backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02) > 0.02
        optimizer.step()
        schedule.step()
        run.learner.update(run._rows(records))
        run.sampler.forget()
    ours, theirs, old = (
        torch.cat([weight.detach().flatten() for weight in one.parameters()]) for one in (run.model, model, before)
    )
    assert (ours - theirs).norm() < 0.01 * (theirs - old).norm()
