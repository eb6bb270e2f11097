"""Whom a person plays: a model that comes with the recipe, a folder of weights, a run, or a player without weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from ...games import make
from ...match import Rules
from ...opponents.model_files import is_hub_id
from ...players.player import Player, PolicyPlayer
from ...players.prompts import encoder
from ...storage.checkpoints import folder_of, latest, steps
from ...storage.run_config import setting
from ..evaluation.policies import Asked, Policy
from ..evaluation.policy_entries import parse
from ..evaluation.policy_weights import configs_of, read_tokenizer
from ..models import EMBEDDED, MADE_FOR
from ..opponents.elsewhere import form_of, members_of
from ..opponents.more_kinds import KINDS, check, make_player

#: Players without weights, by name. (An endpoint needs settings.)
FIXED = tuple(kind for kind in KINDS if kind != "api")
#: The keys of a run's config that its policy samples with.
_SAMPLING = {key: f"actor_rollout_ref.rollout.{key}" for key in ("temperature", "top_p", "top_k")}


@dataclass(frozen=True)
class Opponent:
    """An opponent that has been found, and can be made.

    Attributes:
        name: in records, and for the person.
        make: the player; takes seconds with a model.
        note: what the person should know; "".
    """

    name: str
    make: Callable[[], Player]
    rules: Rules = field(default_factory=Rules)
    note: str = ""


def find(
    game: str, model: str | None, cache: Path, template: str | None = None, temperature: float | None = None
) -> Opponent:
    """The opponent of a name or path.

    Args:
        model: "random", "perfect", "alphabeta"; "tiny" or another of the recipe's models; the folder of a model, an
            adapter or a checkpoint; a run's folder, for its latest checkpoint, or ``RUN@STEP``; or a hub's id. None:
            "tiny" in the games that it is made for, else "random".
        cache: the folder for exported checkpoints.
        template: of a model's prompts; None: as its run has it, or the usual.
        temperature: of a model's sampling; None: alike.

    Raises:
        ValueError: there is none, it is damaged, or does not play this game.
        ImportError: a package is not installed.
    """
    if model is None:
        model = "tiny" if game in MADE_FOR["tiny"] else "random"
    if model in FIXED:
        if (template, temperature) != (None, None):
            raise ValueError(f"--template, --temperature: are for models; {model} has no weights")
        check(model, None, [game])
        player = make_player(model)
        return Opponent(player.name, lambda: player)
    run = None if model in EMBEDDED else _run(_split(model)[0])
    [policy] = parse([_entry(model)], cache, "MODEL", Asked(template))
    sampling = _sampling(run) if temperature is None else {**_sampling(run), "temperature": temperature}
    note = ""
    if model in MADE_FOR and game not in MADE_FOR[model]:
        note = f"{model} has only learned to read {' and '.join(MADE_FOR[model])}: expect illegal answers in {game}."
    return Opponent(policy.name, partial(_load, game, policy, run, sampling), _rules(run), note)


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
    if not path.exists():  # then it may be a model of the hub, which is asked for it
        if ("/" in model and path.parent.is_dir()) or step is not None or not is_hub_id(model):
            names = ", ".join((*FIXED, *EMBEDDED))
            raise ValueError(f"MODEL={model}: there is no such folder, and no opponent of that name ({names})")
        return {"path": model}
    if not path.is_dir():
        raise ValueError(f"MODEL={model}: is no folder")
    if form_of(path) is not None and step is not None:
        raise ValueError(f"MODEL={model}: {path} is no run; leave the step out")
    if form_of(path) is None and step is None:
        step = _latest(path)
    return {"path": str(path), **({} if step is None else {"step": step})}


def _latest(run: Path) -> int | None:
    """The step of a run's latest checkpoint, or of its pool's last member; None: nothing can be played there."""
    checkpoints = folder_of(run)
    if checkpoints.is_dir() and steps(checkpoints):
        return latest(checkpoints)
    return members_of(run, setting="MODEL")[-1][0]


def _run(path: Path) -> DictConfig | None:
    """The config of the run that a path is, or belongs to."""
    return next((config for _, config in configs_of(path.absolute())), None) if path.is_dir() else None


def _rules(run: DictConfig | None) -> Rules:
    """A run's rules; the usual ones without a run."""
    chosen = {key: value for key in asdict(Rules()) if (value := setting(run, f"rules.{key}")) is not None}
    return Rules.from_config(OmegaConf.create({**asdict(Rules()), **chosen}))


def _sampling(run: DictConfig | None) -> dict[str, Any]:
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
    return sampling | {
        key: value for key, name in _SAMPLING.items() if isinstance(value := setting(run, name), int | float)
    }


def _load(game: str, policy: Policy, run: DictConfig | None, sampling: Mapping[str, Any]) -> Player:
    """Make a model's player. Raises ValueError: the model, or its tokenizer, cannot be used."""
    from ...rollouts.end_tokens import end_tokens
    from .sampling import Transformers  # imports torch

    tokenizer = read_tokenizer(policy.tokenizer)
    kwargs: Mapping[str, Any] = setting(run, "data.apply_chat_template_kwargs") or {}
    try:  # a game of its own, to see that prompts can be made
        encode = encoder(tokenizer, *policy.prompt(game), **kwargs)
        encode(make(game, 0).observation(0), ())
    except Exception as error:  # chat templates are programs
        raise ValueError(
            f"{policy.tokenizer}: makes no prompt with the template {policy.prompt(game)[0]!r} "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); try another --template"
        ) from error
    assert policy.model is not None
    ends = end_tokens(policy.texts or policy.model, tokenizer.eos_token_id)
    prompt_length, response_length = policy.lengths
    player = PolicyPlayer(
        generate=Transformers(policy.model, policy.adapter, ends, policy.name).generate,
        encode=encode,
        decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)),
        sampling={**sampling, "max_tokens": response_length},
        prompt_length=prompt_length,
        name=policy.name,
    )
    return cast(Player, player)
