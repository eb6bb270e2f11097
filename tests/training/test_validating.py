"""A whole validation without verl's workers: games through verl's batches, their channel, the metrics."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.spiral import rollout
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.watching.shown import summary
from recipe.spiral.players.player import PlayerFailure
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.rollouts.channel import Entry
from recipe.spiral.rollouts.dataset import GameDataset
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.rollouts.worker import RolloutWorker
from recipe.spiral.trainer import SpiralTrainer
from tests.fake_verl import Verl
from tests.fake_verl import trainer as made_trainer
from tests.made import unpacked
from tests.test_rollout import EOS, Engine, Tokenizer, register_loops


class Workers(RolloutWorker):
    """In the place of verl's manager and its workers: the worker itself, over agent loops by the recipe's config."""

    def __init__(self, config: Any, engine: Engine, number: int = 2, lose: str = "") -> None:
        self.config, self.llm_client, self.number, self.lose = config, engine, number, lose
        self.tokenizer, self.processor, self.hf_model_type, self.tools = Tokenizer(), None, None, []
        self.dataset_cls, self.reward_loop_worker_handles, self.distillation_enabled = GameDataset, None, False
        self._loops: dict[str, Any] = {}
        self.background_tasks: set[asyncio.Task[Any]] = set()
        register_loops(config, Path(config.actor_rollout_ref.model.path))

    def generate_sequences(self, batch: Any) -> None:
        for chunk in batch.chunk(self.number):
            asyncio.run(self._worker(pickle.loads(pickle.dumps(chunk))))

    async def _worker(self, chunk: Any) -> None:
        await super().generate_sequences(chunk)
        await asyncio.gather(*self.background_tasks)

    async def _run_prompt(self, prompt: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if prompt["data_source"] != self.lose:
            await super()._run_prompt(prompt, *args, **kwargs)
        else:
            await channel.send([Entry("val", prompt["uid"], {"status": "finished"})])


@pytest.fixture
def config(tmp_path: Path) -> Any:
    rollout._players.clear()
    end_tokens.cache_clear()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS]}))
    validation = {"games": ["TicTacToe", "LiarsDice"], "games_per_role": 2, "opponents": ["perfect", "random"]}
    return OmegaConf.create(
        {
            "games": ["KuhnPoker"],
            "run_seed": 5,
            "batch_unit": "games",
            "trainer_mode": "sync",
            "train_batch_size": 4,
            "games_per_start": 1,
            "validation": validation,
            "rules": {"illegal_rewards": [-1.5, 0.5], "truncated": "illegal", "turn_cap": None},
            "prompt": {"template": "chat", "style": "state"},
            "opponents": [],
            "data": {},
            "branching": {"states": 0, "continuations": 0},
            "draw_retry": {"enabled": False, "max_retries": 5},
            "actor_rollout_ref": {
                "model": {"path": str(tmp_path)},
                "rollout": {
                    "temperature": 1.0,
                    "top_p": 1.0,
                    "top_k": -1,
                    "calculate_log_probs": True,
                    "n": 2,
                    "prompt_length": 2000,
                    "response_length": 24,
                    "val_kwargs": {"temperature": 0.3, "top_p": 1.0, "top_k": -1, "n": 1},
                    "agent": {},
                },
            },
        }
    )


class Padding(Tokenizer):
    """Also what verl asks of a tokenizer to show what was said."""

    pad_token_id = EOS


class Judges:
    """No reward worker is asked: rows come with their rewards."""

    reward_loop_worker_handles = ()


def validate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: Any, workers: Workers) -> dict[str, float]:
    """The metrics of a validation at step 40: verl's own ``_validate`` with the recipe's hooks."""
    trainer = made_trainer(monkeypatch, tmp_path / "run", "trainer.log_val_generations=0")
    OmegaConf.update(trainer.config, "actor_rollout_ref.rollout.val_kwargs", {"n": 1}, force_add=True)
    trainer.val_dataset, trainer.global_steps, trainer.tokenizer = GameDataset("val", None, config), 40, Padding()
    size = len(trainer.val_dataset)
    trainer.val_dataloader = StatefulDataLoader(trainer.val_dataset, size, shuffle=True, collate_fn=collate_fn)
    trainer.replay_buffer = ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}), 0.001)
    trainer.reward_loop_manager = Judges()

    trainer.agent_loop_manager = workers
    metrics: dict[str, float] = PPOTrainer._validate(trainer)
    trainer.state.records.wait()
    assert not trainer.launched
    return metrics


def first_square(seed: int) -> str:
    return f"{'so ' * (seed % 3)}\\boxed{{[{seed % 9}]}}"


def answer(seed: int) -> str:
    """No square of a board."""
    return f"{'so ' * (seed % 3)}\\boxed{{1}}"


def test_games_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: Any) -> None:
    engine = Engine(answer)
    metrics = validate(monkeypatch, tmp_path, config, Workers(config, engine))
    games = {name: value for name, value in metrics.items() if name.endswith("/games")}
    assert games == {
        **{
            f"val-core/{opponent}/TicTacToe/p{role}/games": 2.0 for opponent in ("perfect", "random") for role in (0, 1)
        },
        **{f"val-core/random/LiarsDice/p{role}/games": 2.0 for role in (0, 1)},
        **{f"val-core/{game}/p{role}/games": 2.0 for game in ("TicTacToe", "LiarsDice") for role in (0, 1)},
    }
    assert metrics["val-core/perfect/TicTacToe/p0/invalid"] == metrics["val-core/TicTacToe/p0/invalid"] == 1.0
    assert {call["temperature"] for call in engine.calls} == {0.3}
    written = unpacked(tmp_path / "run/games/val_step_000040.jsonl.gz").splitlines()
    assert len(written) == 12
    log = (tmp_path / "run/train.log").read_text()
    assert "validation at step 40: perfect/TicTacToe/p0" in log
    table = "\n".join(summary(tmp_path / "run", tmp_path / "run/checkpoints", "LiarsDice"))
    assert "\nrandom/LiarsDice/p1 " in table and table.endswith(f" -m recipe.spiral.report {tmp_path}/run")


def test_void_games_are_counted_and_in_no_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: Any) -> None:
    """Where the first opponent's games are all void, the second's do not take their name."""
    from recipe.spiral.lab.opponents.perfect import PerfectPlayer

    async def down(self: Any, position: Any) -> Any:
        raise PlayerFailure("down")

    monkeypatch.setattr(PerfectPlayer, "respond", down)
    metrics = validate(monkeypatch, tmp_path, config, Workers(config, Engine(first_square)))
    assert metrics["val-aux/perfect/TicTacToe/p1/void"] == 2.0 * (1 + rollout.MAX_VOIDS)
    assert not any(name.startswith(("val-core/perfect/TicTacToe/p1", "val-core/TicTacToe/p1")) for name in metrics)
    assert metrics["val-core/random/TicTacToe/p1/games"] == 2.0
    assert (tmp_path / "run/games/val_step_000040.jsonl.gz").exists()


# -- no game counts ----------------------------------------------------------------------------------------------------

KEYS = [GameKey("val", 0, 0, index) for index in range(3)]
VALIDATE = SpiralTrainer._validate


class WithoutRows(Verl):
    """As verl where no game gave a row."""

    def _validate(self) -> dict[str, float]:
        raise ValueError("keys or partition were not found!")


def void(key: GameKey) -> GameRecord:
    return GameRecord(key, "TicTacToe", ("policy", "gpt"), (0,), discarded="void", opponent="gpt", reason="HTTP 500")


def test_a_validation_of_void_games_is_told_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_trainer(monkeypatch, tmp_path, verl=WithoutRows, global_steps=7)
    for key in KEYS:
        asyncio.run(channel.put(key, channel.Report([void(key)])))
    made.val_dataset = [{"key": key.to_dict()} for key in KEYS]
    assert VALIDATE(made)["val-aux/discarded/void"] == 3.0
    line = "validation at step 7: gpt: 3 of its 3 games were void, the first: HTTP 500\n"
    assert line in (tmp_path / "train.log").read_text()
    made.state.records.wait()
    kept = list(RecordFolder(tmp_path / "games").read_step("val", 7))
    assert {record.key.step for record in kept} == {7}
