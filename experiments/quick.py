"""The quick loop: self-play with the trainer's games, prompts, baselines and loss, in plain torch on one core.

``python -m experiments.quick +experiment=equilibrium run_dir=FOLDER`` takes the command line of ``main_spiral``. It
counts settings over many seeds: a step of the whole stack takes seconds on two cores, mostly for messages between
processes, which a small game and a model of a million parameters do not need. Turns are sampled from the model itself,
not by vLLM, and the update is ``quick_update``. What decides what is learned is otherwise the trainer's own code.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from experiments.quick_sampler import CachedSampler, Row, play_out
from experiments.quick_update import Learner, Weight
from recipe.spiral.checks.settle import settle
from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.exploitability.exploitability_metrics import validation_metrics
from recipe.spiral.lab.evaluation.exploitability.information_sets import ENUMERATED, EXPLOITABILITY_GAMES, game_tree
from recipe.spiral.lab.evaluation.exploitability.policy_table import read_scores
from recipe.spiral.lab.evaluation.policy_weights import Scorer, of_model
from recipe.spiral.match import Rules, play, random_opening
from recipe.spiral.players.player import PolicyPlayer
from recipe.spiral.players.prompts import encoder
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.processes.composing import RECIPE
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.storage.run_files import METRICS, MetricsFile, read_metrics

#: Keys of the config, and the only values that the quick loop knows for them.
FIXED: dict[str, Any] = {
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.0,
    "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
    "actor_rollout_ref.actor.ppo_epochs": 1,
    "actor_rollout_ref.model.lora_rank": 0,
    "algorithm.adv_estimator": "rae",
    "algorithm.filter_draws": False,
    "algorithm.filter_zero_advantages": False,
    "algorithm.use_kl_in_reward": False,
    "batch_unit": "games",
    "draw_retry.enabled": False,
    "fsp.enabled": False,
    "num_mini_batches": 1,
    "opponents": [],
    "prompt.style": "state",
    "trainer.v1.trainer_mode": "sync",
}


def compose_run(arguments: Sequence[str]) -> DictConfig:
    """The config that ``main_spiral`` composes from these arguments on a machine without a GPU."""
    with initialize_config_dir(str(RECIPE / "config"), version_base=None):
        config = compose("spiral_trainer", overrides=["hardware=cpu", *arguments])
    settle(config)
    return config


def check(config: DictConfig) -> None:
    """Refuse what this loop would leave out.

    Raises:
        ValueError: the config asks for it; the message names the setting.
    """
    for key, value in FIXED.items():
        if (given := OmegaConf.select(config, key)) != value:
            raise ValueError(f"{key}={given}: the quick loop knows only {value}")
    if config.actor_rollout_ref.actor.optim.lr_scheduler_type not in ("constant", "cosine"):
        raise ValueError("actor_rollout_ref.actor.optim.lr_scheduler_type: the quick loop knows constant and cosine")
    if [share.id for share in parse_games(config.games)] not in [[game] for game in ENUMERATED]:
        raise ValueError(f"games={config.games}: the quick loop plays one of {', '.join(ENUMERATED)}")


class QuickRun:
    """One training run.

    Args:
        config: of ``main_spiral``.
    """

    def __init__(self, config: DictConfig) -> None:
        check(config)
        self.config, path = config, config.actor_rollout_ref.model.path
        self.shares = parse_games(config.games)
        self.game = self.shares[0].id
        self.rules = Rules.from_config(config.rules)
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(path)
        # a game with few texts asks for the same texts again and again
        chat = config.data.apply_chat_template_kwargs
        self.encode = cache(encoder(self.tokenizer, config.prompt.template, config.prompt.style, **chat))
        self.decode = cache(lambda ids: str(self.tokenizer.decode(ids, skip_special_tokens=True)))
        self.sampler = CachedSampler(
            self.model,
            int(self.tokenizer.eos_token_id),
            int(config.data.max_response_length),
            trained=True,
            temperature=float(config.actor_rollout_ref.rollout.temperature),
        )
        self.player = PolicyPlayer(
            generate=self.sampler.generate,
            encode=self.encode,
            decode=lambda ids: self.decode(tuple(ids)),
            sampling={},
            prompt_length=int(config.data.max_prompt_length),
            name="policy",
        )
        self.steps = int(config.trainer.total_training_steps)
        self.learner = Learner(self.sampler.distributions, config.actor_rollout_ref.actor, self.steps)
        rae = config.algorithm.rae
        self.baselines = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline, rae.by_opponent)

    def train(self) -> None:
        """Train, and validate before the first step and then every ``trainer.test_freq`` steps, into metrics.jsonl."""
        config, folder = self.config, Path(self.config.run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if any(logged.step == self.steps for logged, _ in read_metrics(folder / METRICS)):
            print(f"{folder}: the run is done", flush=True)
            return
        (folder / METRICS).unlink(missing_ok=True)  # of a run that was stopped: it begins anew
        metrics = MetricsFile(folder)
        self._validate(metrics, 0)
        gc.freeze()  # a third of a step would go into looking for garbage among all that was imported
        for step in range(1, self.steps + 1):
            records = self.played(step)
            self.learner.update(self.rows(records))
            self.sampler.forget()
            if config.ref_update_freq and step % config.ref_update_freq == 0:
                self.learner.move_reference(float(config.ref_update_rate))
            metrics.log({"games/count": len(records)}, step)
            if step % config.trainer.test_freq == 0 or step == self.steps:
                self._validate(metrics, step)
        for part in (self.model, self.tokenizer):
            part.save_pretrained(folder / "model")

    def played(self, step: int) -> list[GameRecord]:
        """A step's games, with the baselines that they are compared with; the baselines move on."""
        batch, seed = int(self.config.data.train_batch_size), int(self.config.seed)
        rows = [training_row(self.shares, seed, batch, (step - 1) * batch + i, 1) for i in range(batch)]
        games = play_out([self._game(GameKey(**row["key"])) for row in rows])
        records = [replace(record, baselines=self.baselines.of(record)) for record in sorted(games, key=_key)]
        self.baselines.update(records)
        return records

    async def _game(self, key: GameKey) -> GameRecord:
        game = make(self.game, key.game_seed())
        past = random_opening(key, game, self.shares[0].random_opening)
        return await play(key, self.game, game, (self.player, self.player), (0, 1), self.rules, past=past)

    def rows(self, records: Sequence[GameRecord]) -> dict[Row, Weight]:
        """The turns with their advantages; turns with the same texts are one row."""
        algorithm = self.config.algorithm
        rows: defaultdict[Row, Weight] = defaultdict(Weight)
        for record in records:
            for player in record.trainable:
                turns, baseline = record.turns_of(player), record.baselines[player]
                assert baseline is not None
                advantage = float(algorithm.reward_scale) * (record.rewards[player] - baseline)
                for later, turn in zip(reversed(range(len(turns))), turns, strict=True):
                    assert turn.tokens is not None
                    row = rows[tuple(turn.tokens.prompt_ids), tuple(turn.tokens.response_ids)]
                    row.advantage += float(algorithm.gamma) ** later * advantage
                    row.count += 1
        return dict(rows)

    def _validate(self, metrics: MetricsFile, step: int) -> None:
        found = self._strength(self.model)
        reference = self.learner.reference
        if self.config.ref_update_freq and reference is not None and self.game in EXPLOITABILITY_GAMES:
            core = f"val-core/{self.game}/"
            of_reference = self._strength(reference.model)
            measures = ("nash_conv", "value", "illegal")
            found |= {f"{core}reference/{name}": of_reference[core + name] for name in measures}
        metrics.log(found, step)
        headline = ("nash_conv", "lost_to_perfect")
        shown = [f"{name.partition('/')[2]} {value:.3f}" for name, value in found.items() if name.endswith(headline)]
        print(f"[{Path(self.config.run_dir).name}] step {step}/{self.steps}  {'  '.join(shown)}", flush=True)

    def _strength(self, model: PreTrainedModel) -> dict[str, float]:
        """The exact measures of the trainer's validation."""
        scores = of_model(model, [self.sampler.eos], 1.0, int(self.config.data.max_response_length))
        table = read_scores(game_tree(self.game), Scorer(self.tokenizer, self.encode, scores))
        return validation_metrics(table, self.rules)


def _key(record: GameRecord) -> GameKey:
    return record.key


def main() -> int:
    started = time.monotonic()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # threads of so small a model only wait for each other
    try:
        run = QuickRun(compose_run(sys.argv[1:]))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    run.train()
    print(f"[{Path(run.config.run_dir).name}] {time.monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
