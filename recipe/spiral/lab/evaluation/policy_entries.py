"""The config's ``policies`` and ``opponents``, made into a list of ``Policy``.

An entry is a kind, a path, or ``{kind, name, path, ...}``; a run is one policy for each of its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...games import resolve
from ...opponents.fixed_opponents import entry_of
from ...opponents.model_files import is_hub_id
from ...players.prompts import check_style, get_template
from ...processes.terminal import visible
from ..models import EMBEDDED, embedded
from ..opponents import more_kinds
from ..opponents.api.endpoint_settings import OF_ASKING
from ..opponents.elsewhere import form_of, members_of
from ..opponents.more_kinds import API
from .policies import Asked, Policy
from .policy_weights import (
    Run,
    adapter_base,
    exported,
    run_of,
    run_of_embedded,
    weights_identity,
    whole_model,
)

#: Kinds with weights; for "auto", what is at the path decides.
MODELS = ("auto", "run", "model", "adapter", *EMBEDDED)
KINDS = (*MODELS, *more_kinds.KINDS)
_OWN = frozenset({"kind", "name", "games"})
#: What an entry with weights may have besides; fixed players check their settings themselves.
_KEYS = {"path", "base", "step", "start", "interval", "size", "template", "style"}


def parse(entries: Iterable[Any], cache: Path, setting: str = "policies", asked: Asked | None = None) -> list[Policy]:
    """A config's list of policies; ``setting`` is its name, and checkpoints are exported into ``cache``, once.

    Raises:
        ValueError: a bad entry, nothing at a path, or a name twice.
        BrokenCheckpoint, ExportError: a checkpoint that cannot be exported.
        ImportError: a package is not installed.
    """
    policies = []
    for entry in entries:
        with entry_of(setting, entry):
            policies += _parse(entry, cache, setting, asked or Asked())
    # A folder's name may have any bytes.
    policies = [replace(policy, name=visible(policy.name, most_lines=1)) for policy in policies]
    check_names(policies, setting)
    return policies


def check_names(policies: Sequence[Policy], setting: str) -> None:
    """See that each has a name of its own; ValueError: two have the same."""
    names = [policy.name for policy in policies]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{setting}: {', '.join(twice)} is there twice: give each its own name: {{name: ..., ...}}")


def _parse(entry: Any, cache: Path, setting: str, asked: Asked) -> list[Policy]:
    if isinstance(entry, str):
        entry = {"kind": entry} if entry in KINDS and entry not in ("auto", "run") else {"path": entry}
    if not isinstance(entry, Mapping):
        raise ValueError("must be a kind, a path, or {kind: ..., path: ..., name: ...}")
    given = {str(key): value for key, value in entry.items()}
    kind = str(given.get("kind") or "auto")
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: unknown; known kinds: {', '.join(KINDS)}")
    games = None if given.get("games") is None else tuple(resolve(str(game)) for game in given["games"])
    settings = {key: value for key, value in given.items() if key not in _OWN}
    name = str(given["name"]) if given.get("name") else None
    if kind in more_kinds.KINDS:
        return [_fixed(kind, name, settings, games)]
    if unknown := sorted(settings.keys() - _KEYS):
        raise ValueError(f"{', '.join(unknown)}: unknown for kind {kind!r}; known: {', '.join(sorted(_OWN | _KEYS))}")
    if (template := settings.get("template")) is not None:
        get_template(template, "template")
    if (style := settings.get("style")) is not None:
        check_style(style, "style")
    if kind in EMBEDDED:
        run = run_of_embedded(kind)
        folder = embedded(kind).resolve()
        policies = [_policy(name or kind, folder, None, settings, asked, run, {})]
    else:
        policies = _with_weights(kind, name, settings, cache, setting, asked)
    return [replace(policy, games=games) for policy in policies]


def _fixed(kind: str, name: str | None, settings: dict[str, Any], games: tuple[str, ...] | None) -> Policy:
    more_kinds.check(kind, settings, games or ())
    if name is None:
        name = more_kinds.make_player(kind, settings).name if kind == "alphabeta" else str(settings.get("model", kind))
    decide = {key: value for key, value in settings.items() if kind != API or key not in OF_ASKING}
    identity = {"kind": kind, **({"settings": decide} if decide else {})}
    return Policy(name, kind, identity, games=games, settings=settings)


def _with_weights(
    kind: str, name: str | None, settings: dict[str, Any], cache: Path, setting: str, asked: Asked
) -> list[Policy]:
    """The policies of an entry with a path."""
    if not settings.get("path"):
        raise ValueError(f"an entry of kind {kind!r} needs a path")
    given = str(settings["path"])
    path = Path(given).expanduser()
    if not path.exists():
        if kind in ("run", "adapter") or not is_hub_id(given):
            raise ValueError("there is no such folder")
        folder = whole_model(given, setting)  # from the hub
        return [_policy(name or given, folder, None, settings, asked, Run(given), {"hub": given})]
    path = path.resolve()
    form = form_of(path)
    if form in ("hf", "adapter") and kind != "run":
        if kind in ("model", "adapter") and form != {"model": "hf", "adapter": "adapter"}[kind]:
            raise ValueError(f"is a {'model' if form == 'hf' else 'LoRA adapter'}, no {kind}")
        members_of(path, setting=f"{setting}: path")  # raises if it is not whole
        base = adapter_base(path, settings.get("base"), setting) if form == "adapter" else None
        model, adapter = (path, None) if base is None else (base, path)
        return [_policy(name or path.name, model, adapter, settings, asked, run_of(path), {"path": str(path)})]
    if kind in ("model", "adapter"):
        raise ValueError(f"holds no {kind} with its config and *.safetensors")
    return _snapshots(path, name, settings, cache, setting, asked)


def _snapshots(
    path: Path, name: str | None, settings: dict[str, Any], cache: Path, setting: str, asked: Asked
) -> list[Policy]:
    """One policy for each snapshot of a run that is taken."""
    step = settings.get("step")
    spread = {key: settings[key] for key in ("start", "interval", "size") if settings.get(key) is not None}
    if step is not None:
        if spread:
            raise ValueError("give either step, or start, interval and size")
        spread = {"start": step, "size": 1}
    members = members_of(path, **spread, setting=f"{setting}: path")
    if step is not None and members[0][0] != step:
        raise ValueError(f"step={step}: there is none; the next is of step {members[0][0]}")
    run = run_of(path)
    if run.asked.template is None:  # a folder of exports: each has what it takes of its run's config
        run = replace(run_of(members[-1][1]), name=run.name)
    run_name = name or run.name
    policies = []
    for number, folder, form in members:
        origin: dict[str, Any] = {"path": str(folder), "step": number}
        model, adapter = exported(folder, cache) if form == "checkpoint" else folder, None
        if form_of(model) == "adapter":
            model, adapter = adapter_base(model, settings.get("base") or run.model, setting), model
        policy = _policy(f"{run_name}/step_{number:06d}", model, adapter, settings, asked, run, origin)
        policies.append(replace(policy, run=run_name))
    return policies


def _policy(
    name: str,
    model: Path,
    adapter: Path | None,
    settings: Mapping[str, Any],
    evaluation: Asked,
    run: Run,
    origin: Mapping[str, Any],
) -> Policy:
    """A policy with weights. Of its run is what neither its entry nor the evaluation says."""
    asked = Asked(settings.get("template"), settings.get("style")).over(evaluation).over(run.asked)
    how = {name: value for name, value in vars(asked).items() if name != "lengths"}
    identity = {**weights_identity(model, adapter), **origin, **how}
    policy = Policy(name, "model" if adapter is None else "adapter", identity, model, adapter, asked)
    # A pool's members have none of their own.
    texts = Path(run.model) if run.model and not (policy.tokenizer / "tokenizer_config.json").is_file() else None
    return replace(policy, texts=texts)
