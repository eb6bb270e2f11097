"""Games, policies and engines of an evaluation, made for tests."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.engines import Served
from recipe.spiral.lab.evaluation.evaluation import Evaluation
from recipe.spiral.lab.evaluation.matches import GameId, MatchUp, games_of
from recipe.spiral.lab.evaluation.ratings import ELO, Outcomes
from recipe.spiral.lab.evaluation.settings import EngineSettings, Randomness, Settings
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Generate, Generation, RandomPlayer
from recipe.spiral.players.records import GameRecord, Result, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.processes.composing import RECIPE
from tests.made import turn

REWARDS: dict[Result, tuple[float, float]] = {"win": (1.0, -1.0), "draw": (0.0, 0.0), "loss": (-1.0, 1.0)}


def manifest(*names: str, **settings: object) -> dict[str, Any]:
    policies = {name: {"kind": "random"} for name in names}
    return {"seed": 0, "randomness": "shared", "policies": policies, "settings": settings}


def plan(n: int = 2, *match_ups: MatchUp) -> list[GameId]:
    return games_of(match_ups or (("a", "random", "TicTacToe"), ("b", "random", "TicTacToe")), n)


def key_of(game: GameId, seed: int = 0, randomness: Randomness = Randomness.shared) -> GameKey:
    return game.key(seed, randomness)


def game_of(game: GameId, outcome: Result = "win", **more: object) -> GameRecord:
    """How a planned game ended for the policy."""
    rewards = REWARDS[outcome] if game.role == 0 else REWARDS[outcome][::-1]
    turns, key = [turn(0, 0), turn(1, 0)], key_of(game)
    return GameRecord(key, game.game, game.players, (game.role,), turns, rewards=rewards, **more)  # type: ignore[arg-type]


def at_random(game: GameId) -> GameRecord:
    """A planned game, played by random players of those names."""
    players = []
    for name in game.players:
        player = RandomPlayer()
        player.name = name
        players.append(player)
    key = key_of(game)
    return asyncio.run(play(key, game.game, make(game.game, key.game_seed()), players, (game.role,), Rules()))


def losing(game: GameId) -> GameRecord:
    """A planned game that the policy ends with a turn that is not legal."""
    mine, theirs = turn(game.role, 0, "illegal"), turn(0, 0)
    turns = [mine] if game.role == 0 else [theirs, mine]
    rewards = (-1.5, 0.5) if game.role == 0 else (0.5, -1.5)
    return GameRecord(key_of(game), game.game, game.players, (game.role,), turns, "illegal", rewards)


def planted(
    strengths: Mapping[str, float],
    n: int,
    seed: int = 0,
    games: Sequence[tuple[str, float, float]] = (("TicTacToe", 0.0, -20.0),),
) -> Outcomes:
    """A round robin by Davidson's model.

    Args:
        strengths: in Elo.
        n: games of each pair, seating and game.
        seed: of the results.
        games: (id, first-player advantage in Elo, inclination to draws).
    """
    rng, found = random.Random(seed), {}
    for one, two in combinations(strengths, 2):
        for first, second in ((one, two), (two, one)):
            for game, advantage, inclination in games:
                d = strengths[first] - strengths[second] + advantage
                weights = [math.exp(log_odds) for log_odds in (d / ELO / 2, inclination, -d / ELO / 2)]
                drawn = Counter(rng.choices((0, 1, 2), weights, k=n))
                found[first, second, game] = (drawn[0], drawn[1], drawn[2])
    return found


# -- models, tokenizers and engines without vLLM: the model is its prompt's text and the seed --------------------------

END = 0


def tensors(file: Path, value: int = 1) -> None:
    """A safetensors file of one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes([value]) * 64)


def model(folder: Path, value: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    tensors(folder / "model.safetensors", value)
    return folder


def adapter(folder: Path, base: object = None, value: int = 1, rank: int = 8) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"r": rank, "base_model_name_or_path": None if base is None else str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors(folder / "adapter_model.safetensors", value)
    return folder


class Characters:
    """A tokenizer whose tokens are characters."""

    eos_token_id = END

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    def apply_chat_template(self, conversation: Sequence[dict[str, str]], **kwargs: Any) -> list[int]:
        return self.encode("\n".join(message["content"] for message in conversation))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(token) for token in ids if token != END)


class Fakes:
    """Starts engines, and keeps what happens to them.

    Args:
        fail_after: responses after which ``error`` is raised; None: never.
        fitting: whether an engine can become another model.
    """

    def __init__(self, fail_after: int | None = None, error: BaseException | None = None, fitting: bool = True) -> None:
        self.fail_after, self.error, self.fitting = fail_after, error, fitting
        self.events: list[tuple[str, str]] = []
        self.running: list[FakeEngine] = []
        self.most = self.responses = 0
        self.shares: set[int] = set()

    def __call__(self, served: Served, engines: int) -> FakeEngine:
        self.events.append(("start", served.model.name))
        self.shares.add(engines)
        engine = FakeEngine(self, served.model, served.adapters)
        self.running.append(engine)
        self.most = max(self.most, len(self.running))
        return engine


class FakeEngine:
    """Answers any prompt with one of the actions that it finds there, drawn by the seed."""

    def __init__(self, fakes: Fakes, model: Path, adapters: tuple[Path, ...]) -> None:
        self.fakes, self.model, self.adapters = fakes, model, adapters
        self.asked: list[tuple[str, Path | None]] = []

    def generate_as(self, name: str, adapter: Path | None = None) -> Generate:
        assert adapter is None or adapter in self.adapters
        of = self.model

        async def generate(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
            assert self in self.fakes.running and self.model == of, "another model answers"
            self.fakes.responses += 1
            if self.fakes.fail_after is not None and self.fakes.responses > self.fakes.fail_after:
                assert self.fakes.error is not None
                raise self.fakes.error
            prompt = "".join(map(chr, prompt_ids))
            actions = re.findall(r"\[(?:[0-8]|bet|check|call|fold)\]", prompt) or ["[0]"]
            text = f"\\boxed{{{random.Random(sampling['seed']).choice(actions)}}}"
            return Generation(Tokens(prompt_ids, [*map(ord, text), END], None, None, name), False)

        return generate

    def fits(self, other: Served) -> bool:
        return self.fakes.fitting and not self.adapters and not other.adapters

    async def become(self, other: Served) -> None:
        self.fakes.events.append(("load", other.model.name))
        self.model = other.model

    def close(self) -> None:
        self.fakes.events.append(("close", self.model.name))
        self.fakes.running.remove(self)


def composed(*overrides: str) -> DictConfig:
    """The config of an evaluation, as the entry composes it."""
    with initialize_config_dir(str(RECIPE / "config"), version_base=None):
        return compose("eval", [*overrides, "engine=cpu"])


def engine_settings(**more: Any) -> EngineSettings:
    """As on a CPU, but for these."""
    made = cast(EngineSettings, OmegaConf.to_object(composed().engine))
    return replace(made, **{"dtype": "auto", "modules": [], "vllm": {}, **more})


def settings(folder: Path, *overrides: str) -> Settings:
    """Few games of policies without weights, unless overrides say otherwise."""
    few = ["games_per_role=3", "exploitability.games=[]", "optimality.games=[]", "games=[TicTacToe]"]
    return Settings.from_config(composed(f"eval_dir={folder}/evaluation", *few, *overrides))


def evaluation(folder: Path, fakes: Fakes, *overrides: str) -> Evaluation:
    made = Evaluation(settings(folder, *overrides), lambda line: None)
    made.start_engine = fakes  # type: ignore[assignment]
    return made
