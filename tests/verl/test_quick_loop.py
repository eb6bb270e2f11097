"""The quick loop's update is the trainer's: row by row, verl's loss, clipping, optimizer and schedule."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.players.records import GameRecord
from recipe.spiral.rae import rae_advantages

torch = pytest.importorskip("torch")
CLIP = 0.02  # it bites


def verls_loss(run: Any, model: Any, records: list[GameRecord]) -> Any:
    """The actor's loss as the trainer calls it; each turn is a row, and nothing is merged or kept from sampling."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.utils.losses import ppo_loss

    samples, log_probs, entropies = [], [], []
    temperature = run.config.actor_rollout_ref.rollout.temperature
    for record in records:
        for player in record.trainable:
            turns = record.turns_of(player)
            for turn in turns:
                prompt, response = turn.tokens.prompt_ids, turn.tokens.response_ids
                mask = torch.ones(len(response))
                advantages, _ = rae_advantages(
                    torch.tensor([record.rewards[player]]),
                    torch.tensor([record.baselines[player]]),
                    torch.tensor([len(turns) - 1 - turn.turn]),
                    mask[None],
                    gamma=run.config.algorithm.gamma,
                )
                values = whole(model, [*prompt, *response], temperature)
                log_probs.append(values.gather(1, torch.tensor([*prompt[1:], *response, 0])[:, None])[:, 0])
                entropies.append(-(values.exp() * values).sum(-1))
                with torch.no_grad():
                    referred = whole(run.learner.reference.model, [*prompt, *response], temperature)
                samples.append(
                    {
                        "prompts": torch.tensor(prompt),
                        "responses": torch.tensor(response),
                        "response_mask": mask,
                        "old_log_probs": torch.tensor(turn.tokens.log_probs),
                        "advantages": advantages[0],
                        "ref_log_prob": referred[len(prompt) - 1 : -1].gather(1, torch.tensor(response)[:, None])[:, 0],
                    }
                )

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


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads of so small a model only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_steps_are_those_of_verls_loss_clipping_optimizer_and_schedule(tmp_path: Path) -> None:
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.torch_functional import get_cosine_schedule_with_warmup
    from verl.workers.config.optimizer import build_optimizer

    from experiments.quick import QuickRun, compose_run

    actor = "actor_rollout_ref.actor"
    overrides = ["algorithm.gamma=0.5", f"{actor}.grad_clip={CLIP}", f"{actor}.entropy_coeff=0.05"]
    sizes = ["data.train_batch_size=24", "trainer.total_training_steps=4", f"run_dir={tmp_path}"]
    run = QuickRun(compose_run(["+experiment=kuhn", "ref_update_freq=1", "ref_update_rate=0.5", *overrides, *sizes]))
    model, before = copy.deepcopy(run.model), copy.deepcopy(run.model)
    optim = run.config.actor_rollout_ref.actor.optim
    optimizer = build_optimizer(list(model.parameters()), omega_conf_to_dataclass(optim))
    schedule = get_cosine_schedule_with_warmup(optimizer, 0, run.steps, min_lr_ratio=optim.min_lr_ratio)
    for step in range(1, 4):
        records = run.played(step)
        optimizer.zero_grad()
        verls_loss(run, model, records).backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP) > CLIP
        optimizer.step()
        schedule.step()
        run.learner.update(run.rows(records))
        run.learner.move_reference(0.5)
        run.sampler.forget()
    ours, theirs, old = (
        torch.cat([weight.detach().flatten() for weight in one.parameters()]) for one in (run.model, model, before)
    )
    assert (ours - theirs).norm() < 0.01 * (theirs - old).norm()
