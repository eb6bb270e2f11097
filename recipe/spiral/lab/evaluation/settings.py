"""The config of an evaluation, read and checked: what is wrong with it is said before anything is loaded.

The fields have the names of the config's keys; what they mean stands above each key in ``config/eval.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from ...match import Rules
from ...players.prompts import check_style, general_template, get_template
from ...processes.as_written import refuse_environment
from ...storage.checkpoints import config_file
from ...storage.disk import unwritable
from ..opponents.more_kinds import API
from ..parsing import Count, GameName, Listed, Number, Section, Temperature, checked, parse
from .benchmarks.catalog import PAPER_AVERAGES, BenchmarkName
from .exploitability.information_sets import EXPLOITABILITY_GAMES, OPTIMALITY_GAMES, game_tree
from .matches.matchups import Randomness
from .matches.store import FILE
from .policies.evaluation_engine import EngineSettings

#: The most answers of one policy in one game that ``by=samples`` may ask for.
MOST_ANSWERS = 200_000
#: Of a match-up in each role: all planned games are in memory.
MOST_GAMES = 1_000_000
NOTHING = (
    "games, match_ups: nothing is to be evaluated; name both, games of exploitability or optimality, or "
    "benchmarks.names"
)


class Refused(ValueError):
    """An evaluation cannot be done as its config says; the message says why."""


class NothingPlayed(RuntimeError):
    """An evaluation has come to nothing: each game was void, each time; the message says why."""


def _only(known: Iterable[str]) -> AfterValidator:
    def check(name: str) -> None:
        if name not in known:
            raise ValueError(f"{name}: must be one of {', '.join(known)}")

    return checked(check)


def _not_zero(number: int) -> int:
    if number == 0:
        raise ValueError("0: must be -1 or at least 1")
    return number


Folder = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class Prompt(Section):
    template: Annotated[str, checked(get_template)] | None
    style: Annotated[str, checked(check_style)] | None


class Data(Section):
    max_prompt_length: Count | None
    max_response_length: Count | None
    apply_chat_template_kwargs: dict[str, Any]


class Sampling(Section):
    temperature: Temperature = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(strict=True, ge=-1), AfterValidator(_not_zero)] = -1
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None

    def to_dict(self) -> dict[str, Any]:
        """vLLM's settings."""
        return self.model_dump(exclude_none=True)


class ExactMetric(Section):
    """A metric that is computed from a policy's table of probabilities, which "scores" or "samples" give."""

    games: Listed[GameName] = ()
    by: Literal["scores", "samples"] = "scores"
    samples: Count = 200


class Exploitability(ExactMetric):
    games: Listed[Annotated[GameName, _only(EXPLOITABILITY_GAMES)]] = ()


class OptimalMoves(ExactMetric):
    games: Listed[Annotated[GameName, _only(OPTIMALITY_GAMES)]] = ()


class Benchmarks(Section):
    """The reasoning benchmarks that are run; see docs/reasoning_benchmarks.md."""

    names: Listed[BenchmarkName]
    path: Folder | None
    limit: Count | None
    samples: Count
    template: Annotated[str, checked(general_template)] | None
    max_prompt_length: Count
    max_response_length: Count
    sampling: Sampling
    paper_model: Annotated[str, _only(PAPER_AVERAGES)] | None


class Settings(Section):
    """All of the config but what starts the program."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

    eval_dir: Folder
    cache_dir: Folder | None
    seed: Annotated[int, Field(strict=True, ge=0)]
    randomness: Randomness
    policies: Any
    opponents: Any
    match_ups: Listed[Literal["cross", "round_robin", "own_past"]]
    games: Listed[GameName]
    games_per_role: Annotated[Count, Field(le=MOST_GAMES)]
    lag: Count
    follow: Annotated[Number, Field(gt=0)] | None
    anchor: str | None
    logger: Listed[str] | None
    rules: Annotated[Rules, BeforeValidator(lambda section: Rules.from_config(OmegaConf.create(section)))]
    prompt: Prompt
    data: Data
    sampling: Sampling
    concurrency: Count
    void_retries: Annotated[int, Field(strict=True, ge=0)]
    exploitability: Exploitability
    optimality: OptimalMoves
    benchmarks: Benchmarks
    engine: EngineSettings
    verbose: Annotated[bool, Field(strict=True)]

    @classmethod
    def from_config(cls, config: DictConfig) -> Settings:
        """Read a config.

        Raises:
            ValueError: a setting is wrong; the message says which, and what it must be.
        """
        for entries in ("policies", "opponents"):
            refuse_environment(config[entries], entries, API)
        settings = parse(cls, OmegaConf.to_container(config, resolve=True))
        settings._check_together()
        return settings

    def _check_together(self) -> None:
        for name, folder in (("eval_dir", self.eval_dir), ("cache_dir", self.cache_dir)):
            if folder is not None and (why := unwritable(folder)):
                raise ValueError(f"{name}={folder}: {why}; give another folder")
        if config_file(self.eval_dir).is_file() and not (self.eval_dir / FILE).exists():
            raise ValueError(f"eval_dir={self.eval_dir}: is a run's folder; give another, such as {self.eval_dir}-eval")
        if not (self._answers_games or self.benchmarks.names):
            raise ValueError(NOTHING)
        cut = self.sampling.top_p != 1 or self.sampling.top_k > 0 or self.sampling.min_p
        for name, metric in (("exploitability", self.exploitability), ("optimality", self.optimality)):
            for game in metric.games if metric.by == "samples" else ():
                sets = len(game_tree(game).information_sets)
                if sets * metric.samples > MOST_ANSWERS:
                    raise ValueError(
                        f"{name}.samples={metric.samples}: at {game}'s {sets} information sets that makes more than "
                        f"{MOST_ANSWERS} answers: take fewer, {name}.by=scores, or leave {game} out of {name}.games"
                    )
            if metric.games and metric.by == "scores" and (cut or not self.sampling.temperature > 0):
                raise ValueError(
                    f"{name}.by=scores: log-probabilities are those of the whole distribution: set "
                    "sampling.temperature above 0, sampling.top_p=1, sampling.top_k=-1 and sampling.min_p=0, or "
                    f"{name}.by=samples"
                )

    @property
    def cache(self) -> Path:
        """Where checkpoints are exported to."""
        return self.cache_dir or self.eval_dir.with_name(f"{self.eval_dir.name}-weights")

    @property
    def whole(self) -> Path:
        """The folder of the whole evaluation: with ``follow`` that of each checkpoint lies in it."""
        return self.eval_dir if self.follow is None else self.eval_dir.parent

    def with_lengths(self, known: Iterable[tuple[int, int]]) -> Settings:
        """With the longest of the policies' lengths, in tokens, where the config leaves a length to them."""
        prompt, response = [max(lengths, default=1) for lengths in zip(*known, strict=True)] or [1, 1]
        lengths = {
            "max_prompt_length": self.data.max_prompt_length or prompt,
            "max_response_length": self.data.max_response_length or response,
        }
        return self.model_copy(update={"data": self.data.model_copy(update=lengths)})

    # In tokens, once ``with_lengths`` has set them:

    @property
    def max_prompt_length(self) -> int:
        return self.data.max_prompt_length or 0

    @property
    def max_response_length(self) -> int:
        return self.data.max_response_length or 0

    @property
    def max_model_len(self) -> int:
        longest = self.max_prompt_length + self.max_response_length
        if self.benchmarks.names:
            longest = max(longest, self.benchmarks.max_prompt_length + self.benchmarks.max_response_length)
        return longest

    @property
    def _answers_games(self) -> bool:
        """Whether anybody plays, or is measured at a game."""
        return bool((self.games and self.match_ups) or self.exploitability.games or self.optimality.games)

    def for_manifest(self) -> dict[str, Any]:
        """What decides how games go, besides policies and seed.

        Not the longest prompt: the prompts of the games that were played did fit. Nor the longest response where
        nobody plays or is measured: benchmarks have one of their own.
        """
        return {
            "rules": asdict(self.rules),
            "sampling": self.sampling.to_dict(),
            "max_response_length": self.max_response_length if self._answers_games else None,
            "apply_chat_template_kwargs": self.data.apply_chat_template_kwargs,
            "dtype": self.engine.dtype,
        }
