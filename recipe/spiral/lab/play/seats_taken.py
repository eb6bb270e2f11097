"""Whom a person plays: a model that comes with the recipe, a folder of weights, a run, or a player without weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from ...games import make
from ...match import Rules
from ...opponents.model_files import is_hub_id
from ...players.player import Player
from ...players.policy import Generate, PolicyPlayer
from ...players.prompts import encoder
from ...storage.checkpoints import folder_of, latest, steps
from ...storage.run_config import setting
from ..evaluation.policies.evaluated_policy import Asked, Policy
from ..evaluation.policies.policy_entries import parse
from ..evaluation.policies.policy_weights import configs_of, read_tokenizer
from ..models import EMBEDDED, MADE_FOR
from ..opponents.elsewhere import form_of, members_of
from ..opponents.more_kinds import KINDS, check, make_player

#: Players without weights, by name. (An endpoint needs settings.)
FIXED = tuple(kind for kind in KINDS if kind != "api")
#: The keys of a run's config that its policy samples with.
_SAMPLING = {key: f"actor_rollout_ref.rollout.{key}" for key in ("temperature", "top_p", "top_k")}


@dataclass(frozen=True)
class Wish:
    """How a model is to play, where that is not its run's way. None: as its run has it, or the usual.

    Attributes:
        cache: the folder for exported checkpoints.
        temperature: of its sampling; 0 takes the likeliest token.
    """

    cache: Path
    template: str | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Opponent:
    """An opponent that has been found, and can be made.

    Attributes:
        name: in records, and for the person.
        make: the player; takes seconds with a model. ``make(progress)`` tells the number of tokens of a response while
            it is written, from another thread.
        note: what the person should know; "".
    """

    name: str
    make: Callable[[Callable[[int], None]], Player]
    rules: Rules = field(default_factory=Rules)
    note: str = ""


def find(game: str, model: str | None, wish: Wish) -> Opponent:
    """The opponent of a name or path.

    Args:
        model: "random", "perfect", "alphabeta"; "tiny" or another of the recipe's models; the folder of a model, an
            adapter or a checkpoint; a run's folder, for its latest checkpoint, or ``RUN@STEP``; or a hub's id. None:
            "tiny" in the games that it is made for, else "random".

    Raises:
        ValueError: there is none, it is damaged, or does not play this game.
        ImportError: a package is not installed.
    """
    if model is None:
        model = "tiny" if game in MADE_FOR["tiny"] else "random"
    if model in FIXED:
        if wish != Wish(wish.cache):
            raise ValueError(f"--template, --temperature: are for models; {model} has no weights")
        check(model, None, [game])
        player = make_player(model)
        return Opponent(player.name, lambda progress: player)
    run = None if model in EMBEDDED else _run(_split(model)[0])
    [policy] = parse([_entry(model)], wish.cache, "MODEL", Asked(wish.template))
    loading = _Loading(game, policy, wish, run)
    note = ""
    if model in MADE_FOR and game not in MADE_FOR[model]:
        note = f"{model} has only learned to read {' and '.join(MADE_FOR[model])}: expect illegal answers in {game}."
    return Opponent(policy.name, loading.make, _rules(run), note)


def _split(model: str) -> tuple[Path, int | None]:
    """A path and the step after its "@"."""
    path, at, step = model.rpartition("@")
    if not at or Path(model).expanduser().exists():
        return Path(model).expanduser(), None
    if not step.isdecimal():
        raise ValueError(f"MODEL={model}: a step is a number: {path}@40")
    return Path(path).expanduser(), int(step)


def _entry(model: str) -> Any:
    """What an evaluation's list of policies has for such an opponent."""
    if model in EMBEDDED:
        return model
    path, step = _split(model)
    entry: dict[str, Any] = {"path": str(path)}
    if not path.exists():
        _refuse_mistyped(model, path, step)
        return {**entry, "path": model}
    if not path.is_dir():
        raise ValueError(f"MODEL={model}: is no folder")
    if form_of(path) is None and (step is not None or (step := _latest(path)) is not None):
        entry["step"] = step
    elif step is not None:
        raise ValueError(f"MODEL={model}: {path} is no run; leave the step out")
    return entry


def _latest(run: Path) -> int | None:
    """The step of a run's latest checkpoint, or of its pool's last member; None: nothing can be played there."""
    checkpoints = folder_of(run)
    if checkpoints.is_dir() and steps(checkpoints):
        return latest(checkpoints)
    return members_of(run, setting="MODEL")[-1][0]


def _refuse_mistyped(model: str, path: Path, step: int | None) -> None:
    """See that what is no folder may at least be a model of the hub, which is asked for it then."""
    inside = "/" in model and path.parent.is_dir()
    if inside or step is not None or not is_hub_id(model):
        names = ", ".join((*FIXED, *EMBEDDED))
        raise ValueError(f"MODEL={model}: there is no such folder, and no opponent of that name ({names})")


def _run(path: Path) -> DictConfig | None:
    """The config of the run that a path is, or belongs to."""
    return next((config for _, config in configs_of(path.absolute())), None) if path.is_dir() else None


def _rules(run: DictConfig | None) -> Rules:
    """A run's rules; the usual ones without a run."""
    chosen = {key: value for key in asdict(Rules()) if (value := setting(run, f"rules.{key}")) is not None}
    return Rules.from_config(OmegaConf.create({**asdict(Rules()), **chosen}))


def _sampling(run: DictConfig | None, wish: Wish) -> dict[str, Any]:
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
    sampling |= {key: value for key, name in _SAMPLING.items() if isinstance(value := setting(run, name), int | float)}
    return sampling if wish.temperature is None else {**sampling, "temperature": wish.temperature}


@dataclass
class _Loading:
    """Makes a model's player."""

    game: str
    policy: Policy
    wish: Wish
    run: DictConfig | None

    def make(self, progress: Callable[[int], None]) -> Player:
        """Raises ValueError: the model, or its tokenizer, cannot be used."""
        policy = self.policy
        tokenizer = read_tokenizer(policy.tokenizer)
        kwargs: Mapping[str, Any] = setting(self.run, "data.apply_chat_template_kwargs") or {}
        try:  # a game of its own, to see that prompts can be made
            encode = encoder(tokenizer, *policy.prompt(self.game), **kwargs)
            encode(make(self.game, 0).observation(0), ())
        except Exception as error:  # chat templates are programs
            raise ValueError(
                f"{policy.tokenizer}: makes no prompt with the template {policy.prompt(self.game)[0]!r} "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); try another --template"
            ) from error
        prompt_length, response_length = policy.lengths
        player = PolicyPlayer(
            generate=self._generate(progress, tokenizer.eos_token_id),
            encode=encode,
            decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)),
            sampling={**_sampling(self.run, self.wish), "max_tokens": response_length},
            prompt_length=prompt_length,
            name=policy.name,
        )
        return cast(Player, player)

    def _generate(self, progress: Callable[[int], None], eos: int | None) -> Generate:
        from ...rollouts.end_tokens import end_tokens
        from .sampling import Transformers  # imports torch

        policy = self.policy
        assert policy.model is not None
        ends = end_tokens(policy.texts or policy.model, eos)
        return Transformers(policy.model, policy.adapter, ends, policy.name, progress).generate
