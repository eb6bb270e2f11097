"""The quick loop: it samples as the plain sampler does, updates as verl does, and plays the trainer's games."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.torch import load_file

from experiments import learning, pages, quick_runs
from experiments.composed import compose_run
from experiments.curve_points import Point
from experiments.learning import Failed, plan, train_with_quick_loop
from experiments.learning_page import WORST_PAST
from experiments.quick import _Run, check, run
from experiments.quick_sampler import CachedSampler, Distributions, play_out
from experiments.quick_update import Learner, LossSettings, Weight, rate
from experiments.result import Curve, commits_of, current_commit, weights_digest
from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.outputs.points import AT_ZERO
from recipe.spiral.lab.models.sampler import Sampler
from recipe.spiral.lab.run_progress import steps_done
from recipe.spiral.players.policy import Generation
from recipe.spiral.players.prompts import boxed
from recipe.spiral.players.records import Tokens
from recipe.spiral.processes.terminal import Follow
from tests.experiments.test_learning import config as experiment
from tests.spin.test_pairs import game

torch = pytest.importorskip("torch")
OPTIM = SimpleNamespace(
    lr=0.1,
    betas=[0.9, 0.95],
    weight_decay=0.0,
    lr_scheduler_type="cosine",
    min_lr_ratio=0.1,
    lr_warmup_steps=-1,
    lr_warmup_steps_ratio=0.0,
)
ROWS = {
    ((5, 6, 7), (8, 9)): Weight(advantage=1.5, count=3),
    ((5, 6, 7), (10,)): Weight(advantage=-2.0, count=1),
    ((5, 6), (7, 8, 11)): Weight(advantage=0.25, count=2),
}


@pytest.fixture(scope="module")
def model_folder(reader: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned nothing, as a folder."""
    folder = tmp_path_factory.mktemp("model")
    reader.model.save_pretrained(folder)
    reader.tokenizer.save_pretrained(folder)
    return folder


def kuhn_config(model_folder: Path, *overrides: str) -> Any:
    batch = ["data.train_batch_size=6", "data.max_response_length=6", "trainer.total_training_steps=4"]
    model = ["--config-dir", "config", "+experiment=kuhn", f"actor_rollout_ref.model.path={model_folder}"]
    return compose_run([*model, *batch, *overrides])


def test_what_is_remembered_is_what_would_be_computed(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the weights change in between, and when responses come again that were likely before."""
    eos = reader.tokenizer.eos_token_id
    plain, cached = Sampler(reader.model, eos, max_tokens=5), CachedSampler(reader.model, eos, max_tokens=5)
    prompts = [[5, 6, 7], [5, 6, 7], [8, 9, 10]] * 8
    for round_ in range(3):
        seeds = list(range(100 * round_, 100 * round_ + len(prompts)))
        expected, found = plain.sample(prompts, seeds), cached.sample(prompts, seeds)
        for (one, truncated), (other, _) in zip(found, expected, strict=True):
            assert (one.prompt_ids, one.response_ids) == (other.prompt_ids, other.response_ids)
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
            assert truncated == (one.response_ids[-1] != eos)
        cached.forget()
    monkeypatch.setattr("experiments.quick_sampler.USUAL", 100)
    computed = []
    look_up = cached.distributions.look_up
    cached.distributions.look_up = lambda rows: (computed.append(len(asked := list(rows))), look_up(asked))[1]  # type: ignore[func-returns-value, method-assign]
    cached.sample(prompts, seeds)
    assert computed[0] > 2 and sum(computed[1:]) == 0, "all is along responses that were given before"


def test_texts_that_begin_alike_have_the_distributions_that_each_has_alone(reader: Any) -> None:
    """In several trees, in an order of their own, and some of them known before."""
    rng = np.random.default_rng(0)
    prompts = [(5, 6, *rng.integers(20, 40, 8).tolist()) for _ in range(60)]
    rows = [(prompt, tuple(rng.integers(20, 40, 1 + i % 3).tolist())) for i, prompt in enumerate(prompts) for _ in "ab"]
    known = Distributions(reader.model, trained=False)
    known.look_up([(prompt, ()) for prompt in prompts[::7]])
    log_p, chosen, mask = known.of(rows)
    assert mask.sum(1).tolist() == [len(response) for _, response in rows] and not chosen.requires_grad
    for i, (prompt, response) in enumerate(rows):
        with torch.no_grad():
            alone = torch.log_softmax(
                reader.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1], -1
            )
        assert torch.allclose(log_p[i, : len(response)], alone, atol=1e-4)
        assert torch.equal(chosen[i, : len(response)], log_p[i].gather(1, torch.tensor(response)[:, None])[:, 0])


@pytest.mark.parametrize(("entropy", "kl"), [(0.0, None), (0.05, None), (0.0, 0.1), (0.02, 0.3)])
def test_the_loss_is_verls_over_rows_that_are_not_merged(reader: Any, entropy: float, kl: float | None) -> None:
    from verl.trainer.ppo.core_algos import agg_loss, kl_penalty

    torch.manual_seed(1)
    learner = Learner(
        Distributions(reader.model, trained=True), LossSettings(16.0, entropy, kl, "low_var_kl", 1.0), OPTIM, 10
    )
    if learner.reference is not None:
        for weight in learner.reference.model.parameters():
            weight.data += 0.05 * torch.randn_like(weight)
    log_p, entropies, reference, advantages = [], [], [], []
    for (prompt, response), weight in ROWS.items():
        for _ in range(weight.count):
            ids = torch.tensor([prompt + response])
            for model, into in ((reader.model, log_p), (learner.reference and learner.reference.model, reference)):
                if model is None:
                    continue
                values = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1], -1)
                into.append(values.gather(1, torch.tensor(response)[:, None])[:, 0].detach())
                if model is reader.model:
                    entropies.append(-(values.exp() * values).sum(-1).detach())
            advantages.append(torch.full((len(response),), weight.advantage / weight.count))

    def padded(rows: Sequence[Any]) -> Any:
        return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)

    mask = padded([torch.ones(len(row)) for row in log_p])
    how: dict[str, Any] = {"loss_mask": mask, "loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 16}
    # with a ratio of 1 PPO's loss is -A in value, and -A log p in gradient
    expected = agg_loss(loss_mat=padded(-a * p for a, p in zip(advantages, log_p, strict=True)), **how)
    expected -= entropy * agg_loss(loss_mat=padded(entropies), **how)
    if kl is not None:
        expected += kl * agg_loss(loss_mat=kl_penalty(padded(log_p), padded(reference), "low_var_kl"), **how)
    assert learner.objective(ROWS).item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("rollout_is", "ratios"),
    [(None, [[1.0, 1.0], [1.0]]), ("token", [[2.0, 0.5], [1.5]]), ("sequence", [[1.25, 1.25], [1.5]])],
)
def test_rows_of_an_older_policy_are_weighted_by_truncated_ratios(
    reader: Any, rollout_is: str | None, ratios: list[list[float]]
) -> None:
    """The first row's tokens are 2.5 and 0.5 times as likely as they were: 1.25 together, and 2.5 counts as 2."""
    prompt, times = (5, 6, 7), {(8, 9): (2.5, 0.5), (10,): (1.5,)}
    learner = Learner(
        Distributions(reader.model, trained=True),
        LossSettings(16.0, 0.0, None, "k3", 1.0, rollout_is=rollout_is),
        OPTIM,
        10,
    )
    rows, expected = {}, 0.0
    for (response, older), weights, advantage in zip(times.items(), ratios, (1.5, -2.0), strict=True):
        values = torch.log_softmax(reader.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1], -1)
        now = values.gather(1, torch.tensor(response)[:, None])[:, 0]
        before = [value - np.log(ratio) for value, ratio in zip(now.tolist(), older, strict=True)]
        rows[prompt, response] = Weight(advantage, 1, tuple(before))
        expected = expected - advantage * (torch.tensor(weights) * now).sum() / 16 / 2
    ours, parameters = learner.objective(rows), list(reader.model.parameters())
    found, wanted = torch.autograd.grad(ours, parameters), torch.autograd.grad(expected, parameters)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_batches_that_are_played_ahead_are_trained_so_many_steps_later(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    plays, rows = _Run._play, _Run._rows

    def noted(self: _Run, records: Any) -> Any:
        seen.append(("train", records[0].key.step))
        return rows(self, records)

    monkeypatch.setattr(_Run, "_play", lambda self, step: (seen.append(("play", step)), plays(self, step))[1])
    monkeypatch.setattr(_Run, "_rows", noted)
    ahead = ["trainer.v1.trainer_mode=separate_async", "trainer.v1.separate_async.num_warmup_batches=2"]
    corrected = ["algorithm.rollout_correction.bypass_mode=false", "algorithm.rollout_correction.rollout_is=sequence"]
    run(kuhn_config(model_folder, *ahead, *corrected, "trainer.total_training_steps=2"), 2, tmp_path / "end")
    assert seen == [("play", 1), ("play", 2), ("play", 3), ("train", 1), ("play", 4), ("train", 2)]


def test_the_loss_of_pairs_is_the_trainers(reader: Any) -> None:
    """Its gradient too: through verl's loss function, with the recipe's loss in its registry."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.losses import ppo_loss

    from recipe.spiral.spin.dpo import DpoSettings, PairLoss

    torch.manual_seed(1)
    settings = DpoSettings(0.7)
    learner = Learner(
        Distributions(reader.model, trained=True), LossSettings(16.0, 0.0, 0.3, "k3", 1.0, settings), OPTIM, 10
    )
    for weight in learner.reference.model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    pairs = [(((5, 6, 7), (8, 9)), ((5, 6, 7), (10,))), (((5, 6), (7, 8, 11)), ((5, 6), (9, 4)))]
    pairs += [(rejected, chosen) for chosen, rejected in pairs[:1]] + pairs[1:]  # equal rows go through the model once

    def log_probs(model: Any, prompt: tuple[int, ...], response: tuple[int, ...]) -> Any:
        values = torch.log_softmax(model(torch.tensor([prompt + response])).logits[0, :-1], -1)
        return values.gather(1, torch.tensor((prompt + response)[1:])[:, None])[:, 0]

    rows = [row for pair in pairs for row in pair]
    samples = []
    for place, (prompt, response) in enumerate(rows):
        with torch.no_grad():
            reference = log_probs(learner.reference.model, prompt, response)[len(prompt) - 1 :]
        ones = torch.ones(len(response))
        samples.append(
            {
                "prompts": torch.tensor(prompt),
                "responses": torch.tensor(response),
                "response_mask": ones,
                "old_log_probs": ones,
                "ref_log_prob": reference,
                "advantages": ones if place % 2 == 0 else -ones,
            }
        )
    data: TensorDict = tu.list_of_dict_to_tensordict(samples)
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=len(rows), **settings.batch_info)
    # verl's models give a value for the last token, too, which nothing follows
    flat = [torch.cat([log_probs(reader.model, *row), torch.zeros(1)]) for row in rows]
    actor = ActorConfig(
        global_batch_info={},
        loss_scale_factor=16,
        loss_agg_mode="seq-mean-token-sum-norm",
        policy_loss={"loss_mode": "dpo"},
        use_kl_loss=True,
        kl_loss_type="k3",
        kl_loss_coef=0.3,
    )
    output = {"log_probs": torch.nested.as_nested_tensor(flat, layout=torch.jagged)}
    expected, _ = PairLoss(partial(ppo_loss, config=actor))(model_output=output, data=data)
    ours = learner.pairs_objective(pairs)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-5)
    weights = list(reader.model.parameters())
    for one, other in zip(torch.autograd.grad(ours, weights), torch.autograd.grad(expected, weights), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


class ActorConfig(SimpleNamespace):
    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


def test_pairs_come_from_games_that_start_alike(model_folder: Path, tmp_path: Path) -> None:
    """A whole run with DPO's loss; without games that start alike it is refused."""
    dpo = ["loss=dpo", "data.train_batch_size=8", "ref_update_freq=2"]
    with pytest.raises(ValueError, match=r"dpo with data\.games_per_start=1 and branching\.states=0: the quick loop"):
        check(kuhn_config(model_folder, *dpo))
    curve = run(kuhn_config(model_folder, *dpo, "data.games_per_start=8"), 4, tmp_path / "last")
    assert [point.step for point in curve.points] == [0, 4]
    before, after = (load_file(folder / "model.safetensors") for folder in (model_folder, tmp_path / "last"))
    assert all(torch.equal(before[name], after[name]) for name in before), "it never answers: all games end alike"
    records = [game(0, 10, 1.0), game(1, 11, -1.0), game(2, 10, 1.0)]
    assert _Run._pairs(records) == [(((1,), (10,)), ((1,), (11,)))]


def test_branches_go_on_from_states_of_their_games_and_count(model_folder: Path, tmp_path: Path) -> None:
    """With the cards of the game, which both players' prompts show; and each is a game."""
    branching = ["loss=dpo", "branching.states=1", "branching.continuations=3", f"run_dir={tmp_path}"]
    with pytest.raises(ValueError, match=r"adv_estimator=rae with .* branching\.states=1"):
        check(kuhn_config(model_folder, *branching[1:]))
    trained = _Run(kuhn_config(model_folder, *branching), "KuhnPoker")
    legal = {True: ("[call]", "[fold]"), False: ("[check]", "[bet]")}

    async def generate(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        asked = trained.decode(tuple(prompt_ids))
        action = legal["[call]" in asked][sampling["seed"] % 2]
        ids = [*trained.tokenizer.encode(boxed(action), add_special_tokens=False), trained.tokenizer.eos_token_id]
        return Generation(Tokens(prompt_ids, ids, [-0.5] * len(ids), None), False)

    trained.sampler.generate = generate  # type: ignore[method-assign]
    records = [record for step in range(1, 9) for record in trained._play(step)]
    games = {record.key: record for record in records if not record.key.retry}
    branches = [record for record in records if record.key.retry]
    assert (len(games), len(branches)) == (8 * 6, 8 * 6 * 3)
    assert {len(branch.past) for branch in branches} == {0, 1, 2}
    for branch in branches:
        whole = games[branch.key.first_try()]
        assert branch.past == [turn.action for turn in whole.turns[: len(branch.past)]]
        seen = make("KuhnPoker", whole.key.game_seed())
        for action in branch.past:
            seen.step(action)
        assert branch.turns[0].observation == seen.observation(branch.turns[0].player)
        assert all(turn.verdict == "legal" for turn in branch.turns)
    assert {branch.rewards for branch in branches} > {(1.0, -1.0), (-1.0, 1.0)}, "some bets were called"
    assert len(_Run._pairs(records)) > 8


def test_the_games_of_a_curve_include_branches(model_folder: Path, tmp_path: Path) -> None:
    branching = ["loss=dpo", "branching.states=1", "branching.continuations=2"]
    curve = run(kuhn_config(model_folder, *branching), 2, tmp_path / "last")
    assert [(point.step, point.games) for point in curve.points] == [(0, 0), (2, 2 * 6 * 3), (4, 4 * 6 * 3)]


def test_the_learning_rate_is_verls() -> None:
    from verl.utils.torch_functional import get_cosine_schedule_with_warmup

    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, 0, 10, min_lr_ratio=0.1)
    factor = rate(OPTIM, 10)
    for step in range(11):
        assert factor(step) == pytest.approx(optimizer.param_groups[0]["lr"]), step
        optimizer.step()
        schedule.step()
    with pytest.raises(ValueError, match="warm-up"):
        rate(SimpleNamespace(**{**vars(OPTIM), "lr_warmup_steps": 5}), 10)
    with pytest.raises(ValueError, match="lr_scheduler_type=linear"):
        rate(SimpleNamespace(**{**vars(OPTIM), "lr_scheduler_type": "linear"}), 10)


def test_an_update_makes_what_paid_likelier(reader: Any) -> None:
    import copy

    model = copy.deepcopy(reader.model)
    learner = Learner(
        Distributions(model, trained=True),
        LossSettings(1.0, 0.0, None, "low_var_kl", 1.0),
        SimpleNamespace(**{**vars(OPTIM), "lr": 1e-3}),
        10,
    )
    good, bad = {((5, 6), (7, 8)): Weight(1.0, 1)}, {((5, 6), (9,)): Weight(1.0, 1)}

    def likely(rows: Mapping[Any, Weight]) -> float:
        return -learner.objective(rows).item()

    before = likely(good), likely(bad)
    for _ in range(5):
        learner.update({**good, ((5, 6), (9,)): Weight(-1.0, 1)})
    assert likely(good) > before[0] and likely(bad) < before[1]


@pytest.mark.parametrize(("clip", "moves"), [(1.0, True), (1e-12, False)])
def test_the_gradient_is_clipped_to_the_configs_norm(
    model_folder: Path, tmp_path: Path, clip: float, moves: bool
) -> None:
    """A gradient so small counts for nothing beside AdamW's epsilon."""
    run(kuhn_config(model_folder, f"actor_rollout_ref.actor.grad_clip={clip}"), 4, tmp_path / "end")
    start, end = (load_file(folder / "model.safetensors") for folder in (model_folder, tmp_path / "end"))
    moved = max(float((end[name] - start[name]).abs().max()) for name in start)
    assert moved > 1e-4 if moves else moved < 1e-6


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["ref_update_freq=2", "fsp.enabled=true", "fsp.size=2", "fsp.update_interval=1", "fsp.sample=hard"],
        ["actor_rollout_ref.actor.use_kl_loss=false", "actor_rollout_ref.actor.entropy_coeff=0.01"],
    ],
)
def test_a_run_is_measured_and_the_same_seed_is_the_same_run(
    model_folder: Path, tmp_path: Path, overrides: list[str]
) -> None:
    curve = run(kuhn_config(model_folder, *overrides), 2, tmp_path / "first")
    assert [(point.step, point.games) for point in curve.points] == [(0, 0), (2, 12), (4, 24)]
    assert curve.points[0].measures["illegal"] > 0.5, "it has learned nothing"
    assert curve.points[0] != curve.points[1] and curve.model == weights_digest(model_folder) != ""
    assert curve.average.keys() == {"KuhnPoker"} and WORST_PAST in curve.last
    assert curve == run(kuhn_config(model_folder, *overrides), 2, tmp_path / "again")
    assert curve != run(kuhn_config(model_folder, *overrides, "seed=1"), 2, tmp_path / "other")
    assert Curve.from_dict(json.loads(json.dumps(asdict(curve)))) == curve


def test_the_policy_of_the_end_is_kept_as_a_model_and_where_the_game_is_small_as_a_table(
    model_folder: Path, tmp_path: Path
) -> None:
    """From the table NashConv comes out as it was measured, and from the weights, answer by answer, the table."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
    from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
    from recipe.spiral.players.prompts import boxed, encoder

    config = kuhn_config(model_folder)
    curve = run(config, 4, tmp_path / "end")
    tree, measured = game_tree("KuhnPoker"), curve.points[-1].measures["NashConv"]
    table = np.array([list(actions.values()) for actions in curve.policy.values()])
    assert next(iter(curve.policy)).endswith(" after nothing") and table.shape == (12, 2)
    assert nash_conv(tree, table / table.sum(axis=1, keepdims=True)) == pytest.approx(measured, abs=1e-6)

    model, tokenizer = (kind.from_pretrained(tmp_path / "end") for kind in (AutoModelForCausalLM, AutoTokenizer))
    for row, one in enumerate(tree.information_sets):
        asked = encoder(tokenizer, config.prompt.template, config.prompt.style)(one.observation, ())
        for column, action in enumerate(one.actions):
            likely = 0.0
            for said in {action, action.strip("[]")}:
                answer = [*tokenizer.encode(boxed(said), add_special_tokens=False), tokenizer.eos_token_id]
                with torch.no_grad():
                    values = torch.log_softmax(model(torch.tensor([asked + answer])).logits[0].double(), -1)
                likely += float(sum(values[len(asked) - 1 + i, token] for i, token in enumerate(answer)).exp())
            assert likely == pytest.approx(table[row, column], rel=1e-4), (one.observation, action)


def test_where_nothing_is_hidden_games_against_both_are_computed(model_folder: Path, tmp_path: Path) -> None:
    curve = run(kuhn_config(model_folder, "games=[TicTacToe]"), 4, tmp_path / "end")
    measures = curve.points[0].measures
    assert len(measures) == 20 and not curve.average and not curve.policy and WORST_PAST in curve.last
    assert measures["TicTacToe, player 0, perfect: loss"] > 0.5, "it has learned nothing"
    for place in {name.split(":")[0] for name in measures}:
        assert sum(measures[f"{place}: {end}"] for end in ("win", "draw", "loss")) == pytest.approx(1)
        assert 0 < measures[f"{place}: invalid"] <= measures[f"{place}: loss"]
    # one action everywhere: perfect play, of whose moves one is drawn, wins or draws by what it draws
    assert 0.5 < curve.points[-1].measures[f"TicTacToe, player 0, perfect: loss{AT_ZERO}"] <= 1


def test_the_games_are_those_of_the_trainer(model_folder: Path, tmp_path: Path) -> None:
    from experiments.quick import _Run
    from recipe.spiral.players.seeds import GameKey
    from recipe.spiral.rollouts.schedule import parse_games, training_row

    config = kuhn_config(model_folder, "seed=7")
    config.run_dir = str(tmp_path)
    records = _Run(config, "KuhnPoker")._play(step=3)
    rows = [training_row(parse_games(["KuhnPoker"]), 7, 6, 12 + index) for index in range(6)]
    assert [record.key for record in records] == [GameKey(**row["key"]) for row in rows]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["actor_rollout_ref.actor.ppo_epochs=2"], "ppo_epochs=2"),
        (["games=[KuhnPoker,TicTacToe]"], "games="),
        (["games=[KuhnPoker-5]"], "games="),
        (["games=[ConnectFour]"], "plays one of .*TicTacToe"),
        (["games=[{id: KuhnPoker, template: qwen3}]"], "the template and style of prompt"),
        (["prompt.style=dialogue"], "prompt.style=dialogue"),
        (["algorithm.adv_estimator=gae"], "adv_estimator=gae"),
        (["opponents=[{kind: random, share: 0.1}]"], "opponents="),
        (["actor_rollout_ref.model.lora_rank=8"], "lora_rank=8"),
        (["trainer.v1.trainer_mode=colocate_async"], "trainer_mode=colocate_async.*bypass_mode=false"),
        (["+quick.kl_end=0.1", "actor_rollout_ref.actor.kl_loss_coef=0"], r"quick\.kl_end=0\.1: .*above 0"),
        (["+quick.kl_end=0"], r"quick\.kl_end=0: .*above 0"),
        (["+quick.regularise=rewards"], r"regularise=rewards: .* set ref_update_freq"),
        (["loss=dpo", "data.games_per_start=2", "+quick.kl_end=0.1"], "adv_estimator=dpo: what .quick names"),
        (["loss=dpo", "data.games_per_start=2", "actor_rollout_ref.actor.entropy_coeff=0.1"], "entropy_coeff=0.1"),
        (["actor_rollout_ref.actor.policy_loss.loss_mode=gpg"], "loss_mode=gpg: with rae .* only vanilla"),
        (["actor_rollout_ref.actor.optim.optimizer=Adam"], "optimizer=Adam: .* only AdamW"),
        (["actor_rollout_ref.actor.optim.num_cycles=1"], "num_cycles=1"),
        (["algorithm.rollout_correction.rollout_rs=token_k1"], "rollout_rs=token_k1"),
        (["algorithm.rollout_correction.rollout_is_batch_normalize=true"], "rollout_is_batch_normalize=True"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(kuhn_config(tmp_path, *overrides))


@pytest.mark.e2e
def test_runs_end_with_who_started_them(model_folder: Path, tmp_path: Path) -> None:
    overrides = ["loop=quick", "seeds=[0]", "steps=100000", "every=100000", f"work={tmp_path / 'work'}"]
    config = ["--config-dir", "config", "+experiment=kuhn", f"actor_rollout_ref.model.path={model_folder}"]
    overrides.append(f"overrides={config}")
    program = [sys.executable, "-m", "experiments.learning", "--config-name", "kuhn", *overrides]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        parent = psutil.Process(started.pid)
        children: list[psutil.Process] = []
        try:
            end = time.monotonic() + 100
            while not any(one.cpu_times().user > 3 for one in children):
                assert time.monotonic() < end, "it plays in a process of its own"
                time.sleep(0.2)
                children = parent.children()
        finally:
            parent.kill()
    _, left = psutil.wait_procs(children, timeout=20)  # reaps those that fell to this process
    for one in left:
        one.kill()
    assert not left


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def instead(arguments: list[str], every: int, folder: Path) -> dict[str, Any]:
        assert folder.name.endswith("-quick")
        (seed,) = [argument for argument in arguments if argument.startswith("seed=")]
        done.append(seed)
        measures = {"NashConv": 0.5, "NashConv as judged": 0.5, "illegal": 0.3, "illegal, worst": 0.3}
        points = [Point(step, step * 128, measures) for step in (0, 10, 20)]
        last = {"against its past": 0.1, "against its past, least": -0.2}
        return asdict(Curve(points, last, {"KuhnPoker": 0.4}, 60.0))

    class Here:
        """In place of the processes."""

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

        def __enter__(self) -> Here:
            return self

        def __exit__(self, *args: Any) -> None: ...

        def submit(self, function: Any, *args: Any) -> Any:
            from concurrent.futures import Future

            future: Future[Any] = Future()
            future.set_result(function(*args))
            return future

    monkeypatch.setattr(quick_runs, "_run", instead)
    monkeypatch.setattr(quick_runs, "ProcessPoolExecutor", Here)
    monkeypatch.setattr("recipe.spiral.main_spiral.provide_model", lambda config: None)
    config = experiment(tmp_path, loop="quick", overrides=["--config-dir", "config", "+experiment=kuhn"], steps=20)
    runs = plan(config)
    folders = [planned.quick_folder for planned in runs]
    for folder in folders:
        folder.mkdir(parents=True)  # by a process that left a model there
    curves = train_with_quick_loop(runs, config)
    assert commits_of(folders) == [current_commit()]
    again = train_with_quick_loop(runs, config)
    assert [len(curve.points) for curve in again] == [3, 3] and done == ["seed=0", "seed=1"]
    result = learning.gather(runs, curves, config, "python -m it", ["0123"])
    docs = tmp_path / "docs"
    result.write(docs)
    pages.regenerate(docs, plots=False)
    text = (docs / "kuhn.md").read_text()
    assert "seeds 0, 1; 5,120 games" in text
    assert "| 0.500, 0.500 reached earlier; run too short |" in text and "-0.200" in text
    with pytest.raises(ValueError, match="ppo_epochs"):
        train_with_quick_loop(plan({**config, "arms": {"a": ["actor_rollout_ref.actor.ppo_epochs=2"]}}), config)
    monkeypatch.setattr(quick_runs, "_run", died)
    with pytest.raises(Failed, match="died"):
        train_with_quick_loop(plan({**config, "seeds": [5]}), config)
    with pytest.raises(ValueError, match="the same game"):
        plan({**config, "arms": {"a": [], "b": ["games=[TicTacToe]"]}})
    with pytest.raises(ValueError, match="loop='fast'"):
        plan({**config, "loop": "fast"})


def test_a_run_writes_a_line_for_each_measurement_and_they_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(config: Any, every: int, model: Path, on_point: Any) -> Curve:
        points = [Point(step, step * 128, {"NashConv": 0.5}) for step in (0, 10, 20)]
        for point in points:
            on_point(point)
        return Curve(points, {}, {}, 0.0)

    monkeypatch.setattr("experiments.quick.run", measured)
    with Follow(tmp_path, partial(quick_runs._show, "self-play, seed 0")):
        quick_runs._run(["trainer.total_training_steps=20"], 10, tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        f"[self-play, seed 0] step {step}/20, {games:,} games: NashConv 0.500"
        for step, games in ((0, 0), (10, 1280), (20, 2560))
    ]
    assert steps_done(tmp_path) == 20


def died(arguments: list[str], every: int, folder: Path) -> None:
    raise BrokenProcessPool("a process of the pool was ended")


def test_sampling_is_asked_for_by_games(reader: Any) -> None:
    """``generate``, as players call it."""
    sampler = CachedSampler(reader.model, reader.tokenizer.eos_token_id, max_tokens=4)

    async def ask(seed: int, times: int) -> list[Any]:
        return [await sampler.generate([5, 6, 7], {"seed": seed + i}) for i in range(times)]

    first, second, third = play_out([ask(1, 3), ask(2, 1), ask(1, 2)])
    assert first[:2] == third and second == first[1:2] and len(first) == 3
    assert all(len(one.tokens.response_ids) <= 4 for one in first)
