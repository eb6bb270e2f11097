"""The settings of an evaluation: the type of each, and the range of those that have one.

Hydra merges ``Settings`` into the config before ``config/eval.yaml``, which has the defaults and says what each setting
does. So Hydra refuses a value of another type, and a name that is not there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from ...config import Rules as RulesSection
from ...config import Style, out_of_range, within
from ...games import resolve
from ...match import Rules
from ...players.prompts import get_template
from ...storage.run_files import config_file
from ..opponents.api_settings import refuse_environment
from .benchmark_questions import get_benchmark
from .exploitability.information_sets import check_whole_distribution, measured_games

#: A number that is above 0.
_POSITIVE = 1e-9

# Words of which one is chosen.
Randomness = StrEnum("Randomness", "shared own")
MatchUps = StrEnum("MatchUps", "cross round_robin")
ReadBy = StrEnum("ReadBy", "scores samples")


class Refused(ValueError):
    """An evaluation cannot be done as its config says; the message says why."""


@dataclass
class Prompt:
    template: str | None
    style: Style | None


@dataclass
class Data:
    apply_chat_template_kwargs: dict[str, Any]
    max_prompt_length: int | None = within(1)
    max_response_length: int | None = within(1)


@dataclass
class Sampling:
    temperature: float = within(0, 2)
    top_p: float = within(_POSITIVE, 1)
    top_k: int = within(-1)


@dataclass
class ExactMetric:
    games: list[str]
    by: ReadBy
    samples: int = within(1)


@dataclass
class Benchmarks:
    names: list[str]
    path: str | None
    sampling: Sampling
    limit: int | None = within(1)
    samples: int = within(1)
    max_prompt_length: int = within(1)
    max_response_length: int = within(1)


@dataclass
class EngineSettings:
    """vLLM's; what the keys mean stands in ``config/eval.yaml`` and ``config/engine``."""

    dtype: str
    enforce_eager: bool
    modules: list[str]
    vllm: dict[str, Any]
    tensor_parallel_size: int = within(1)
    gpu_memory_utilization: float = within(_POSITIVE, 1)
    max_num_seqs: int = within(1)
    seconds: float = within(_POSITIVE)


@dataclass
class Settings:
    environment: dict[str, Any]
    policies: list[Any]
    opponents: list[Any]
    match_ups: list[MatchUps]
    games: list[str]
    randomness: Randomness
    eval_dir: str
    cache_dir: str | None
    rules: RulesSection
    prompt: Prompt
    data: Data
    sampling: Sampling
    exploitability: ExactMetric
    optimality: ExactMetric
    benchmarks: Benchmarks
    engine: EngineSettings
    seed: int = within(0)
    games_per_role: int = within(1)
    concurrency: int = within(1)
    void_retries: int = within(0)

    @classmethod
    def from_config(cls, config: DictConfig) -> Settings:
        """Read a config.

        Raises:
            ValueError: something is wrong that its types do not say; the message names the setting.
        """
        for entries in ("policies", "opponents"):
            refuse_environment(config, entries)
        for wrong in out_of_range(config):
            raise ValueError(wrong)
        return cast(Settings, OmegaConf.to_object(config))

    def __post_init__(self) -> None:
        if config_file(self.folder).is_file():
            raise ValueError(f"eval_dir={self.folder}: is a run's folder; give another, such as {self.folder}-eval")
        self.games = [resolve(game) for game in self.games]
        for name, metric in self.exact_metrics.items():
            metric.games = measured_games(name, metric.games, f"{name}.games")
            if metric.games and metric.by is ReadBy.scores:
                check_whole_distribution(self.sampling, f"{name}.by=scores", "sampling", f"{name}.by=samples")
        self.benchmarks.names = [get_benchmark(name).id for name in self.benchmarks.names]
        if self.prompt.template is not None:
            get_template(self.prompt.template)
        _ = self.match_rules

    @property
    def match_rules(self) -> Rules:
        """Raises ValueError: they are no rules."""
        return Rules.from_config(self.rules)

    @property
    def exact_metrics(self) -> dict[str, ExactMetric]:
        """Those that a policy's table of probabilities gives, by their settings."""
        return {"exploitability": self.exploitability, "optimality": self.optimality}

    @property
    def folder(self) -> Path:
        """The evaluation's."""
        return Path(self.eval_dir).expanduser().absolute()

    @property
    def cache(self) -> Path:
        """Where checkpoints are exported to."""
        return Path(self.cache_dir) if self.cache_dir else self.folder.with_name(f"{self.folder.name}-weights")

    def take_lengths(self, lengths: Collection[tuple[int, int]]) -> None:
        """Take the longest of the policies' lengths, in tokens, where the config leaves a length to them."""
        prompts, responses = zip(*lengths, strict=True) if lengths else ((1,), (1,))
        self.data.max_prompt_length = self.data.max_prompt_length or max(prompts)
        self.data.max_response_length = self.data.max_response_length or max(responses)

    # In tokens, once they are taken:

    @property
    def max_prompt_length(self) -> int:
        return self.data.max_prompt_length or 0

    @property
    def max_response_length(self) -> int:
        return self.data.max_response_length or 0

    @property
    def max_model_len(self) -> int:
        longest, asked = self.max_prompt_length + self.max_response_length, self.benchmarks
        return max(longest, asked.max_prompt_length + asked.max_response_length) if asked.names else longest

    def decisive(self) -> dict[str, Any]:
        """What decides how games go, besides policies and seed.

        Not the longest prompt: the prompts of the games that were played did fit. Nor the longest response where nobody
        plays or is measured: benchmarks have one of their own.
        """
        answers = (self.games and self.match_ups) or self.exploitability.games or self.optimality.games
        return {
            "rules": asdict(self.match_rules),
            "sampling": asdict(self.sampling),
            "max_response_length": self.max_response_length if answers else None,
            "apply_chat_template_kwargs": self.data.apply_chat_template_kwargs,
            "dtype": self.engine.dtype,
        }


ConfigStore.instance().store(name="evaluation_schema", node=Settings)
