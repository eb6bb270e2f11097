"""The config of an evaluation, read and checked: what is wrong is told before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from omegaconf import DictConfig, OmegaConf

from ..games import resolve
from ..match import Rules
from ..play.prompts import check_style, get_template
from .benchmarks.asked import general_template
from .benchmarks.catalog import PAPER_AVERAGES, SAMPLING, get_benchmark
from .exploitability.information_sets import game_tree
from .play.matchups import Chance
from .policies.engine import EngineSettings

By = Literal["scores", "samples"]
_SAMPLING = ("temperature", "top_p", "top_k", "min_p")


class Refused(ValueError):
    """What is asked for cannot be done; the message says what is wrong with it."""


#: For one policy in one game, by samples.
MOST_ANSWERS = 200_000


@dataclass(frozen=True)
class Yardstick:
    """An exact yardstick: for which games, and how policies are read.

    Attributes:
        games: ids; none: it is left out.
        by: "scores", log-probabilities of answers that carry no reasoning; or "samples".
        samples: answers for each information set.
    """

    games: tuple[str, ...] = ()
    by: By = "scores"
    samples: int = 200

    @classmethod
    def parse(cls, section: Mapping[str, Any], setting: str, known: Iterable[str]) -> Yardstick:
        """From a config's section; ``known`` are the games that it is for."""
        _only(section, ("games", "by", "samples"), setting)
        games = tuple(resolve(str(game)) for game in _listed(section.get("games"), f"{setting}.games"))
        if strangers := [game for game in games if game not in known]:
            raise ValueError(f"{setting}.games: {', '.join(strangers)}: only for {', '.join(known)}")
        by = str(section.get("by", "scores"))
        if by not in get_args(By):
            raise ValueError(f"{setting}.by={by!r}: must be one of {', '.join(get_args(By))}")
        return cls(games, by, _whole(section.get("samples", 200), f"{setting}.samples"))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Benchmarks:
    """The reasoning benchmarks that are run; see docs/reasoning_benchmarks.md."""

    names: tuple[str, ...] = ()
    path: Path | None = None
    limit: int | None = None
    samples: int = 1
    template: str | None = None
    max_prompt_length: int = 2048
    max_response_length: int = 4096
    sampling: Mapping[str, Any] = field(default_factory=lambda: dict(SAMPLING))
    paper_model: str | None = None

    @classmethod
    def parse(cls, section: Mapping[str, Any]) -> Benchmarks:
        _only(section, cls.__dataclass_fields__, "benchmarks")
        names = tuple(get_benchmark(str(name)).id for name in _listed(section.get("names"), "benchmarks.names"))
        for name in ("samples", "max_prompt_length", "max_response_length"):
            _whole(section[name], f"benchmarks.{name}")
        if section["limit"] is not None:
            _whole(section["limit"], "benchmarks.limit")
        if section["template"] is not None:
            general_template(str(section["template"]))
        if (paper := section["paper_model"]) is not None and paper not in PAPER_AVERAGES:
            raise ValueError(f"benchmarks.paper_model={paper!r}: must be one of {', '.join(PAPER_AVERAGES)}")
        path = None if section["path"] is None else Path(str(section["path"])).expanduser().absolute()
        sampling = _sampling(section["sampling"], "benchmarks.sampling")
        return cls(**{**section, "names": tuple(dict.fromkeys(names)), "path": path, "sampling": sampling})


@dataclass(frozen=True)
class Settings:
    """All of the config. What is not described here is in ``config/eval.yaml``."""

    folder: Path
    cache: Path
    seed: int
    chance: Chance
    policies: Any
    opponents: Any
    match_ups: tuple[str, ...]
    games: tuple[str, ...]
    games_per_role: int
    lag: int
    follow: float | None
    anchor: str | None
    rules: Rules
    template: str | None
    style: str | None
    chat_template_kwargs: Mapping[str, Any]
    lengths: tuple[int | None, int | None]
    sampling: Mapping[str, Any]
    concurrency: int
    void_retries: int
    set_aside: bool
    exploitability: Yardstick
    optimality: Yardstick
    benchmarks: Benchmarks
    engine: EngineSettings
    #: In tokens; what ``with_lengths`` makes of ``lengths``.
    max_prompt_length: int = 0
    max_response_length: int = 0

    def with_lengths(self, known: Iterable[tuple[int, int]]) -> Settings:
        """With the lengths that the config leaves to the policies: the longest of theirs."""
        longest = [max(lengths, default=1) for lengths in zip(*known, strict=True)] or [1, 1]
        prompt, response = (told or own for told, own in zip(self.lengths, longest, strict=True))
        return replace(self, max_prompt_length=prompt, max_response_length=response)

    @classmethod
    def from_config(cls, config: DictConfig) -> Settings:
        """Read a config.

        Raises:
            ValueError: a setting is wrong; the message says which, and what it must be.
        """
        told: dict[str, Any] = OmegaConf.to_container(config, resolve=True)
        prompt, data = told["prompt"], told["data"]
        if prompt["template"] is not None:
            get_template(str(prompt["template"]))
        if prompt["style"] is not None:
            check_style(prompt["style"])
        if told["randomness"] not in get_args(Chance):
            raise ValueError(f"randomness={told['randomness']!r}: must be one of {', '.join(get_args(Chance))}")
        if isinstance(told["seed"], bool) or not isinstance(told["seed"], int):
            raise ValueError(f"seed={told['seed']!r}: must be a whole number")
        folder = Path(str(told["eval_dir"])).expanduser().absolute()
        cache = told["cache_dir"]
        settings = cls(
            folder=folder,
            cache=folder.with_name(f"{folder.name}-weights")
            if cache is None
            else Path(str(cache)).expanduser().absolute(),
            seed=told["seed"],
            chance=told["randomness"],
            policies=told["policies"],
            opponents=told["opponents"],
            match_ups=tuple(_listed(told["match_ups"], "match_ups")),
            games=tuple(resolve(str(game)) for game in _listed(told["games"], "games")),
            games_per_role=_whole(told["games_per_role"], "games_per_role"),
            lag=_whole(told["lag"], "lag"),
            follow=_seconds(told["follow"], "follow"),
            anchor=told["anchor"],
            rules=Rules.from_config(config.rules),
            template=prompt["template"],
            style=prompt["style"],
            chat_template_kwargs=data["apply_chat_template_kwargs"] or {},
            lengths=(_length(data, "max_prompt_length"), _length(data, "max_response_length")),
            sampling=_sampling(told["sampling"], "sampling"),
            concurrency=_whole(told["concurrency"], "concurrency"),
            void_retries=_whole(told["void_retries"], "void_retries", least=0),
            set_aside=bool(told["set_aside"]),
            exploitability=Yardstick.parse(told["exploitability"], "exploitability", ("KuhnPoker", "LiarsDice-1")),
            optimality=Yardstick.parse(told["optimality"], "optimality", ("TicTacToe", "Nim")),
            benchmarks=Benchmarks.parse(told["benchmarks"]),
            engine=EngineSettings.from_config(told["engine"]),
        )
        settings.check()
        return settings

    def check(self) -> None:
        """What does not go together.

        Raises:
            ValueError: such settings.
        """
        for name, yardstick in (("exploitability", self.exploitability), ("optimality", self.optimality)):
            for game in yardstick.games if yardstick.by == "samples" else ():
                sets = len(game_tree(game).information_sets)
                if sets * yardstick.samples > MOST_ANSWERS:
                    raise ValueError(
                        f"{name}.samples={yardstick.samples}: at {game}'s {sets} information sets that makes more than "
                        f"{MOST_ANSWERS} answers: take fewer, {name}.by=scores, or leave {game} out of {name}.games"
                    )
        scored = [
            name
            for name, yardstick in (("exploitability", self.exploitability), ("optimality", self.optimality))
            if yardstick.games and yardstick.by == "scores"
        ]
        cut = self.sampling["top_p"] != 1 or self.sampling["top_k"] > 0 or self.sampling.get("min_p", 0)
        if scored and (cut or not self.sampling["temperature"] > 0):
            raise ValueError(
                f"{scored[0]}.by=scores: log-probabilities are those of the whole distribution: set "
                "sampling.temperature above 0, sampling.top_p=1, sampling.top_k=-1 and sampling.min_p=0, or "
                f"{scored[0]}.by=samples"
            )

    @property
    def max_model_len(self) -> int:
        """Of prompt and response together, in tokens."""
        longest = self.max_prompt_length + self.max_response_length
        if self.benchmarks.names:
            longest = max(longest, self.benchmarks.max_prompt_length + self.benchmarks.max_response_length)
        return longest

    def for_manifest(self) -> dict[str, Any]:
        """What decides how games go, besides policies and seed; not how long prompts may be: those so far did fit."""
        return {
            "rules": {
                "illegal_rewards": list(self.rules.illegal_rewards),
                "truncated": self.rules.truncated,
                "turn_cap": self.rules.turn_cap,
            },
            "sampling": dict(self.sampling),
            "max_response_length": self.max_response_length,
            "apply_chat_template_kwargs": dict(self.chat_template_kwargs),
            "dtype": self.engine.dtype,
        }


def _only(section: Any, known: Iterable[str], setting: str) -> None:
    if not isinstance(section, Mapping):
        raise ValueError(f"{setting}={section!r}: must be a mapping with {', '.join(known)}")
    if unknown := sorted(section.keys() - set(known)):
        raise ValueError(f"{setting}: {', '.join(unknown)}: unknown; known: {', '.join(known)}")


def _listed(value: Any, setting: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"{setting}={value!r}: must be a list: {setting}=[{value}]")
    return list(value)


def _whole(value: Any, setting: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{setting}={value}: must be a whole number from {least} up")
    return value


def _seconds(value: Any, setting: str) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"{setting}={value!r}: must be seconds, above 0, or null")
    return value


def _length(data: Mapping[str, Any], name: str) -> int | None:
    return None if data[name] is None else _whole(data[name], f"data.{name}")


def _sampling(section: Any, setting: str) -> dict[str, Any]:
    _only(section, _SAMPLING, setting)
    chosen = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, **section}
    for name, value in chosen.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or (value < 0 and name != "top_k"):
            raise ValueError(f"{setting}.{name}={value}: must be a number from 0 up")
    return chosen
