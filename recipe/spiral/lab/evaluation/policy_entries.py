"""The config's ``policies`` and ``opponents``, made into a list of ``Policy``.

An entry is a kind, a path, or ``{kind, name, path, ...}``; a run is one policy for each of its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...opponents.fixed_opponents import entry_of
from ...opponents.model_files import check_whole, is_hub_id
from ...players.prompts import check_style, get_template
from ...processes.terminal import visible
from .. import opponents
from ..models import EMBEDDED, embedded
from ..opponents import API
from ..opponents.api_settings import OF_ASKING
from ..opponents.elsewhere import form_of, members_of
from .policies import Asked, Policy, Run, run_of, run_of_embedded
from .policy_weights import adapter_base, exported, weights_identity, whole_model

#: Kinds that stand for themselves, and those with a path, at which is what counts.
_NAMED = (*EMBEDDED, *opponents.KINDS)
KINDS = ("auto", "run", "model", "adapter", *_NAMED)
#: What an entry with weights may have besides; fixed players check their settings themselves.
_KEYS = {"path", "base", "step", "start", "interval", "size", "template", "style"}


def parse(entries: Iterable[Any], cache: Path, setting: str = "policies", asked: Asked | None = None) -> list[Policy]:
    """A config's list of policies; ``setting`` is its name, and checkpoints are exported into ``cache``, once.

    Raises:
        ValueError: a bad entry, nothing at a path, or a checkpoint that cannot be exported.
        ImportError: a package is not installed.
    """
    policies = []
    for entry in entries:
        with entry_of(setting, entry):
            policies += _parse(entry, cache, asked or Asked())
    # A folder's name may have any bytes.
    return [replace(policy, name=visible(policy.name, most_lines=1)) for policy in policies]


def _parse(entry: Any, cache: Path, asked: Asked) -> list[Policy]:
    if isinstance(entry, str):
        entry = {"kind" if entry in _NAMED else "path": entry}
    if not isinstance(entry, Mapping):
        raise ValueError("must be a kind, a path, or {kind: ..., path: ..., name: ...}")
    settings = {str(key): value for key, value in entry.items()}
    kind, name = str(settings.pop("kind", None) or "auto"), str(settings.pop("name", None) or "") or None
    if kind in opponents.KINDS:
        return [_fixed(kind, name, settings)]
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: unknown; known kinds: {', '.join(KINDS)}")
    if unknown := sorted(settings.keys() - _KEYS):
        raise ValueError(f"{', '.join(unknown)}: unknown for kind {kind!r}; known: {', '.join(sorted(_KEYS))}")
    if (template := settings.get("template")) is not None:
        get_template(template, "template")
    if (style := settings.get("style")) is not None:
        check_style(style, "style")
    asked = Asked(template, style).over(asked)
    if kind in EMBEDDED:
        return [_policy(name or kind, embedded(kind).resolve(), None, asked, run_of_embedded(kind), {})]
    if not settings.get("path"):
        raise ValueError(f"an entry of kind {kind!r} needs a path")
    return _at_path(str(settings["path"]), name, settings, cache, asked)


def _fixed(kind: str, name: str | None, settings: dict[str, Any]) -> Policy:
    opponents.check(kind, settings, ())
    if name is None:
        name = opponents.make_player(kind, settings).name if kind == "alphabeta" else str(settings.get("model", kind))
    decide = {key: value for key, value in settings.items() if kind != API or key not in OF_ASKING}
    identity = {"kind": kind, **({"settings": decide} if decide else {})}
    return Policy(name, kind, identity, settings=settings)


def _at_path(given: str, name: str | None, settings: dict[str, Any], cache: Path, asked: Asked) -> list[Policy]:
    """A policy with weights, or one for each snapshot of a run that is taken."""
    path = Path(given).expanduser()
    if not path.exists():
        if not is_hub_id(given):
            raise ValueError("there is no such folder")
        return [_policy(name or given, whole_model(given, "path"), None, asked, Run(given), {"hub": given})]
    path = path.resolve()
    if form_of(path) not in ("hf", "adapter"):
        return _snapshots(path, name, settings, cache, asked)
    check_whole(path, "path")
    return [_policy(name or path.name, path, settings.get("base"), asked, run_of(path), {"path": str(path)})]


def _snapshots(path: Path, name: str | None, settings: dict[str, Any], cache: Path, asked: Asked) -> list[Policy]:
    step = settings.get("step")
    spread = {key: settings[key] for key in ("start", "interval", "size") if settings.get(key) is not None}
    if step is not None:
        if spread:
            raise ValueError("give either step, or start, interval and size")
        spread = {"start": step, "size": 1}
    members = members_of(path, **spread)
    if step is not None and members[0][0] != step:
        raise ValueError(f"step={step}: there is none; the next is of step {members[0][0]}")
    run = run_of(path)
    if run.asked.template is None:  # a folder of exports: each has what it takes of its run's config
        run = replace(run_of(members[-1][1]), name=run.name)
    base = settings.get("base") or run.model
    return [
        _policy(
            f"{name or run.name}/step_{number:06d}",
            exported(folder, cache) if form == "checkpoint" else folder,
            base,
            asked,
            run,
            {"path": str(folder), "step": number},
        )
        for number, folder, form in members
    ]


def _policy(name: str, folder: Path, base: object, asked: Asked, run: Run, origin: Mapping[str, Any]) -> Policy:
    """The model or adapter in a folder. Of its run is what neither its entry nor the evaluation says."""
    model, adapter = (adapter_base(folder, base), folder) if form_of(folder) == "adapter" else (folder, None)
    asked = asked.over(run.asked)
    how = {name: value for name, value in vars(asked).items() if name != "lengths"}
    identity = {**weights_identity(model, adapter), **origin, **how}
    policy = Policy(name, "model" if adapter is None else "adapter", identity, model, adapter, asked)
    # A pool's members have none of their own.
    texts = Path(run.model) if run.model and not (policy.tokenizer / "tokenizer_config.json").is_file() else None
    return replace(policy, texts=texts)
