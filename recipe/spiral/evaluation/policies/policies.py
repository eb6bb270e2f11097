"""Who is evaluated, and against whom: the config's ``policies`` and ``opponents``, made into a list of ``Policy``.

An entry is a kind, a path, or ``{kind, name, path, ...}``; a run is one policy for each of its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...games import resolve
from ...models import EMBEDDED, MADE_FOR, embedded
from ...opponents.pool_sources import form_of, members_of
from ...play.players import fixed
from ...play.prompts import check_style, get_template
from .identity import fixed_identity, weights_identity
from .weights import Run, adapter_base, of_the_run, positions, put_out, whole_model

#: Kinds with weights: "auto" finds out which of the others a path is.
MODELS = ("auto", "run", "model", "adapter", *EMBEDDED)
KINDS = (*MODELS, *fixed.KINDS)
#: Tokens of the longest prompt and response: SPIRAL's, and those of the embedded models.
LENGTHS = (2048, 4096)
EMBEDDED_LENGTHS = {"tiny": (480, 16), "tiny_lines": (480, 16), "smollm2_135m": (1024, 128)}
_OWN = frozenset({"kind", "name", "games"})
_PROMPT = frozenset({"template", "style"})
#: What an entry of a kind may have besides; fixed players check their settings themselves.
_KEYS = {
    "auto": _PROMPT | {"path", "base", "step", "start", "interval", "size"},
    "run": _PROMPT | {"path", "base", "step", "start", "interval", "size"},
    "model": _PROMPT | {"path"},
    "adapter": _PROMPT | {"path", "base"},
    **{kind: _PROMPT | {"made_for"} for kind in EMBEDDED},
}


@dataclass(frozen=True)
class Policy:
    """Somebody who plays.

    Attributes:
        name: in records and tables.
        kind: "model", "adapter", or a fixed player's.
        identity: for the manifest: what must be the same when the evaluation goes on.
        model: the folder of the model that an engine must serve; None for those without weights.
        adapter: the LoRA adapter that goes with it, if there is one.
        template, style: of its prompts.
        by_game: a game's, where they are others.
        games: the ids of those that it plays; None: all that it can.
        settings: a fixed player's.
        lengths: its longest prompt and response, in tokens, where the evaluation does not say it.
        run, step: whose snapshot it is, and of which step; None: it is none.
    """

    name: str
    kind: str
    identity: Mapping[str, Any]
    model: Path | None = None
    adapter: Path | None = None
    template: str = "chat"
    style: str = "state"
    by_game: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    games: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[int, int] = LENGTHS
    run: str | None = None
    step: int | None = None

    @property
    def tokenizer(self) -> Path:
        """The folder of its tokenizer."""
        assert self.model is not None
        own = self.adapter is not None and (self.adapter / "tokenizer_config.json").is_file()
        return self.adapter if own and self.adapter is not None else self.model

    def prompt(self, game: str) -> tuple[str, str]:
        """Template and style in a game."""
        own = self.by_game.get(game, {})
        return own.get("template", self.template), own.get("style", self.style)

    def unable(self, game: str) -> str | None:
        """Why it does not play a game; None: it does."""
        if self.games is not None and game not in self.games:
            return f"{self.name} is not to play {game}"
        if self.model is None:
            try:
                fixed.check(self.kind, self.settings, [game])
            except ValueError as error:
                return str(error)
        return None


@dataclass(frozen=True)
class Prompts:
    """What prompts are like where an entry does not say it; None: as a run has them, or "chat" and "state"."""

    template: str | None = None
    style: str | None = None

    def of(self, settings: Mapping[str, Any], run: Run | None = None) -> dict[str, str]:
        """An entry's."""
        template = settings.get("template") or self.template or (run and run.template) or "chat"
        style = settings.get("style") or self.style or (run and run.style) or "state"
        return {"template": str(template), "style": str(style)}

    def by_game(self, settings: Mapping[str, Any], run: Run) -> dict[str, dict[str, str]]:
        """What a run has for single games, as far as neither the entry nor the evaluation says it for all."""
        told = {"template": settings.get("template") or self.template, "style": settings.get("style") or self.style}
        own = {
            game: {key: value for key, value in prompt.items() if not told[key]} for game, prompt in run.by_game.items()
        }
        return {game: prompt for game, prompt in own.items() if prompt}


def parse(entries: Any, cache: Path, setting: str = "policies", prompts: Prompts | None = None) -> list[Policy]:
    """A config's list of policies.

    Args:
        entries: the list.
        cache: where checkpoints are exported to, once.
        setting: what the list is called, for messages.
        prompts: the evaluation's.

    Raises:
        ValueError: a bad entry, nothing at a path, or a name twice.
        BrokenCheckpoint, ExportError: a checkpoint that cannot be exported.
        ImportError: a package is not installed.
    """
    if isinstance(entries, str | Mapping) or not isinstance(entries, Iterable):
        raise ValueError(f"{setting}={entries!r}: must be a list: {setting}=[tiny, {{path: outputs/spiral/default}}]")
    found = [policy for entry in entries for policy in _parse(entry, cache, setting, prompts or Prompts())]
    check_names(found, setting)
    return found


def check_names(policies: Sequence[Policy], setting: str) -> None:
    """Raises: ValueError: two have one name."""
    names = [policy.name for policy in policies]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{setting}: {', '.join(twice)} is there twice: give each its own name: {{name: ..., ...}}")


def _parse(entry: Any, cache: Path, setting: str, prompts: Prompts) -> list[Policy]:
    if isinstance(entry, str):
        entry = {"kind": entry} if entry in KINDS and entry not in ("auto", "run") else {"path": entry}
    if not isinstance(entry, Mapping):
        raise ValueError(f"{setting}: {entry!r}: must be a kind, a path, or {{kind: ..., path: ..., name: ...}}")
    given = {str(key): value for key, value in entry.items()}
    kind = str(given.get("kind") or "auto")
    if kind not in KINDS:
        raise ValueError(f"{setting}: kind={kind!r}: unknown; known kinds: {', '.join(KINDS)}")
    games = _games(given.get("games"), setting)
    settings = {key: value for key, value in given.items() if key not in _OWN}
    name = given.get("name")
    if kind in fixed.KINDS:
        return [_fixed(kind, name, settings, games, setting)]
    if unknown := sorted(settings.keys() - _KEYS[kind]):
        raise ValueError(
            f"{setting}: {', '.join(unknown)}: unknown for kind {kind!r}; it has "
            f"{', '.join(sorted(_OWN | _KEYS[kind]))}"
        )
    if (template := settings.get("template")) is not None:
        get_template(template)
    if (style := settings.get("style")) is not None:
        check_style(style, f"{setting}: style")
    if kind in EMBEDDED:
        made_for = settings.get("made_for") or MADE_FOR.get(kind, ())
        folder = embedded(kind, games=list(made_for), template=prompts.of(settings)["template"]).resolve()
        made = _one(str(name or kind), folder, None, prompts.of(settings), {})
        policies = [replace(made, lengths=EMBEDDED_LENGTHS[kind])]
    else:
        policies = _with_weights(kind, name, settings, cache, setting, prompts)
    return [
        replace(policy, games=games, identity={**weights_identity(policy.model, policy.adapter), **policy.identity})
        for policy in policies
    ]


def _games(games: Any, setting: str) -> tuple[str, ...] | None:
    if games is None:
        return None
    if isinstance(games, str | Mapping) or not isinstance(games, Iterable):
        raise ValueError(f"{setting}: games={games!r}: must be a list of games")
    return tuple(resolve(str(game)) for game in games)


def _fixed(kind: str, name: Any, settings: dict[str, Any], games: tuple[str, ...] | None, setting: str) -> Policy:
    try:
        fixed.check(kind, settings, games or ())
    except ValueError as error:
        raise ValueError(f"{setting}: {kind}: {error}") from error
    if name is None:
        name = fixed.make_player(kind, settings).name if kind == "alphabeta" else settings.get("model", kind)
    return Policy(str(name), kind, fixed_identity(kind, settings), games=games, settings=settings)


def _with_weights(
    kind: str, name: Any, settings: dict[str, Any], cache: Path, setting: str, prompts: Prompts
) -> list[Policy]:
    """The policies of an entry with a path."""
    if not settings.get("path"):
        raise ValueError(f"{setting}: an entry of kind {kind!r} needs a path")
    told = str(settings["path"])
    path = Path(told).expanduser()
    if not path.exists():
        if kind in ("run", "adapter") or path.is_absolute() or told.startswith((".", "~")):
            raise ValueError(f"{setting}: path={told}: there is no such folder")
        folder = whole_model(told, setting)  # from the hub
        return [_one(str(name or told), folder, None, prompts.of(settings), {"hub": told})]
    path = path.resolve()
    form = form_of(path)
    if (form in ("hf", "adapter")) and kind != "run":
        if kind in ("model", "adapter") and form != {"model": "hf", "adapter": "adapter"}[kind]:
            raise ValueError(f"{setting}: path={told}: is a {'model' if form == 'hf' else 'LoRA adapter'}, no {kind}")
        members_of(path, setting=f"{setting}: path")  # that it is whole
        base = adapter_base(path, settings.get("base"), setting) if form == "adapter" else None
        model, adapter = (path, None) if base is None else (base, path)
        return [_one(str(name or path.name), model, adapter, prompts.of(settings), {"path": str(path)})]
    if kind in ("model", "adapter"):
        raise ValueError(f"{setting}: path={told}: holds no {kind} with its config and *.safetensors")
    return _snapshots(path, str(name) if name else None, settings, cache, setting, prompts)


def _one(name: str, model: Path, adapter: Path | None, prompt: Mapping[str, str], where: dict[str, Any]) -> Policy:
    kind = "model" if adapter is None else "adapter"
    own = Policy(name, kind, {**where, **prompt}, model, adapter, prompt["template"], prompt["style"])
    return replace(own, lengths=_lengths(model))


def _lengths(model: Path) -> tuple[int, int]:
    """The usual ones, or for a model with fewer positions its half for prompts and the rest for responses."""
    most, (prompt, response) = positions(model), LENGTHS
    if most is None or most >= prompt + response:
        return LENGTHS
    prompt = min(prompt, most // 2)
    return prompt, min(response, most - prompt)


def _snapshots(
    path: Path, name: str | None, settings: dict[str, Any], cache: Path, setting: str, prompts: Prompts
) -> list[Policy]:
    """One policy for each snapshot of a run that is taken."""
    step = settings.get("step")
    spread = {key: settings[key] for key in ("start", "interval", "size") if settings.get(key) is not None}
    if step is not None:
        if spread:
            raise ValueError(f"{setting}: path={path}: give either step, or start, interval and size")
        spread = {"start": step, "size": 1}
    members = members_of(path, **spread, setting=f"{setting}: path")
    if step is not None and members[0][0] != step:
        raise ValueError(f"{setting}: path={path}: step={step}: there is none; the next is of step {members[0][0]}")
    run = of_the_run(path)
    called = name or run.name
    policies = []
    for number, folder, form in members:
        where: dict[str, Any] = {"path": str(folder), "step": number}
        out = put_out(folder, cache) if form == "checkpoint" else folder
        model, adapter = out, None
        if form_of(out) == "adapter":
            model, adapter = adapter_base(out, settings.get("base") or run.model, setting), out
        by_game = prompts.by_game(settings, run)
        if by_game:
            where["prompts"] = by_game
        policy = _one(f"{called}/step_{number:06d}", model, adapter, prompts.of(settings, run), where)
        lengths = run.lengths or policy.lengths
        policies.append(replace(policy, run=called, step=number, lengths=lengths, by_game=by_game))
    return policies
