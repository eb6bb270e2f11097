"""Makes a Hugging Face folder of a checkpoint: ``python -m recipe.spiral.export CHECKPOINT TARGET``.

The shards of all ranks are joined, as ``verl.model_merger`` does. Its merger is not used: it turns every weight into
bfloat16, and it unpickles the shards, which runs whatever code is in them. Here weights keep their type, and nothing
but tensors is read. Neither verl nor a process group is needed, only memory for the weights.
"""

from __future__ import annotations

import argparse
import json
import logging
import pickle
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

# Importing it is what allows torch.load(weights_only=True) to read DTensors.
from torch.distributed.tensor import DTensor, Shard

from .checkpoints import TRACKER, BrokenCheckpoint, missing_parts, read_state, steps
from .launch import interrupt_on_sigterm

HUGGINGFACE = "actor/huggingface"
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
CARD = "README.md"
#: What PEFT puts before the names of the model that it wraps.
_WRAPPED = "base_model.model."
#: A LoRA weight's name: the module's, the matrix, and the adapter's name, which PEFT leaves out of its files.
_LORA = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?:embedding_)?(?P<matrix>[AB])\.default(?:\.weight)?")
#: Tokenizer, chat template, generation config; no weights, and no code.
_COPIED = (".json", ".jinja", ".txt", ".model")
_NOT_COPIED = ("/config.json", ".index.json")
#: Of the continuation that ``--verify`` shows.
_NEW_TOKENS = 64

Weights = dict[str, torch.Tensor]


class ExportError(ValueError):
    """The checkpoint cannot be exported as asked; the message says why and what to do. Nothing was written."""


class Different(RuntimeError):
    """What transformers reads from the new folder is not what the checkpoint holds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status: 0, 1 (failed), 2 (refused) or 130 (interrupted)."""
    options = _parser().parse_args(arguments)
    interrupt_on_sigterm()
    _quiet()
    try:
        print(export(**vars(options)), flush=True)
    except (BrokenCheckpoint, ExportError) as error:
        return _fail(error, status=2)
    except Different as error:
        return _fail(error, status=1)
    except KeyboardInterrupt as interrupt:
        return _fail(f"interrupted by {str(interrupt) or 'Ctrl-C'}; nothing was written", status=130)
    except Exception as error:
        traceback.print_exc()
        return _fail(f"{type(error).__name__}: {error}", status=1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipe.spiral.export",
        description="Make a Hugging Face folder of a checkpoint, for transformers and vLLM. A checkpoint of LoRA "
        "becomes a PEFT adapter.",
    )
    parser.add_argument("checkpoint", type=Path, help="a folder global_step_N, or a run's: then its latest whole one")
    parser.add_argument("target", type=Path, help="the folder to make")
    parser.add_argument("--step", type=int, help="which step of the run's checkpoints")
    parser.add_argument("--dtype", choices=DTYPES, help="type of the weights; otherwise the checkpoint's")
    parser.add_argument("--merge", action="store_true", help="LoRA: the whole model, with the adapter merged into it")
    parser.add_argument("--force", action="store_true", help="replace TARGET if it is there")
    parser.add_argument(
        "--verify", action="store_true", help="load the result, compare every tensor, and let it answer one prompt"
    )
    return parser


def _quiet() -> None:
    """Leave out progress bars, and a warning that is for those who go on to train with what they load."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)


def _fail(error: object, status: int) -> int:
    sys.stdout.flush()
    print(f"spiral: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return status


def export(
    checkpoint: Path,
    target: Path,
    step: int | None = None,
    dtype: str | None = None,
    merge: bool = False,
    force: bool = False,
    verify: bool = False,
) -> str:
    """Make the folder ``target``, whole or not at all.

    Returns:
        What was done, in a line.

    Raises:
        BrokenCheckpoint: the checkpoint is not whole; the message names what is missing.
        ExportError: it cannot be exported as asked.
        Different: with ``verify``, if the result is not what the checkpoint holds.
    """
    source = Source.find(checkpoint, step)
    target = target.expanduser().resolve()
    check_target(target, source.folder, force)
    weights = read_weights(source.folder / "actor", source.ranks)
    adapter = Adapter.of(weights, source)
    if merge and adapter is None:
        raise ExportError(f"--merge: {source.folder} holds no LoRA weights; leave it out")

    def build(new: Path) -> str:
        copy_texts(source.huggingface, new)
        if adapter is not None and not merge:
            return write_adapter(new, source, weights, adapter, dtype, verify)
        model = whole_model(source.huggingface, weights) if adapter is None else adapter.merged(source, weights)
        return write_model(new, source, model, dtype, verify)

    what = put(target, build, force)
    return f"exported step {source.step}{', verified' * verify}: {what}: {target}"


def write_model(new: Path, source: Source, model: Any, dtype: str | None, verify: bool) -> str:
    """Write a whole model into a folder that holds its texts; returns what it is, in a few words."""
    if dtype is not None:
        model.to(DTYPES[dtype])
    check_finite(dict(model.named_parameters()), dtype)
    generation = new / "generation_config.json"
    original = generation.read_bytes() if generation.is_file() else None
    model.save_pretrained(new, max_shard_size="5GB")
    if original is not None:
        generation.write_bytes(original)
    what = f"{model.num_parameters():,} parameters, {_name(model.dtype)}"
    (new / CARD).write_text(card(source, what, is_adapter=False), encoding="utf-8")
    if verify:
        print(continuation(verify_model(new, model), new, source))
    return what


def write_adapter(
    new: Path, source: Source, weights: Weights, adapter: Adapter, dtype: str | None, verify: bool
) -> str:
    """Write an adapter into a folder that holds the tokenizer; returns what it is, in a few words."""
    adapter.convert(dtype)
    adapter.write(new)
    what = f"LoRA of rank {adapter.config.r}, {adapter.size:,} parameters, {_name(adapter.dtype)}"
    (new / CARD).write_text(card(source, what, is_adapter=True), encoding="utf-8")
    if verify:
        model = adapter.verify(new, source, weights)
        print("no continuation: no base model here" if model is None else continuation(model, new, source))
    return what


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Source:
    """A whole checkpoint, and what is known of its run.

    Attributes:
        folder: ``global_step_N``.
        step: N.
        ranks: how many wrote it.
        run: the run's name.
        config: the run's config, as it was composed; empty if it is not there.
    """

    folder: Path
    step: int
    ranks: int
    run: str
    config: DictConfig

    @classmethod
    def find(cls, path: Path, step: int | None = None) -> Source:
        """The checkpoint at ``path``, or the latest whole one of the run there.

        Raises:
            ExportError: there is none.
            BrokenCheckpoint: it is not whole.
        """
        path = path.expanduser().resolve()
        if not path.is_dir():
            raise ExportError(f"{path}: there is no such folder")
        folder = path if path.name.startswith("global_step_") else _of_run(path, step)
        number = folder.name.removeprefix("global_step_")
        if not number.isdecimal() or step not in (None, int(number)):
            raise ExportError(f"{folder}: must be a checkpoint's folder, global_step_{'<n>' if step is None else step}")
        if missing := _missing(folder):
            raise BrokenCheckpoint(
                f"checkpoint {folder} is not whole ({_ranks(folder)} rank(s)): missing {', '.join(missing)}"
            )
        home = folder.parents[1]
        file = home / ".hydra" / "config.yaml"
        config = OmegaConf.load(file) if file.is_file() else OmegaConf.create()
        if not isinstance(config, DictConfig):
            raise ExportError(f"{file}: is not a config; restore it, or remove it to export without it")
        return cls(folder, int(number), _ranks(folder), home.name, config)

    @property
    def huggingface(self) -> Path:
        return self.folder / HUGGINGFACE

    def setting(self, key: str) -> Any:
        """A value of the run's config; None where it is not known."""
        try:
            value = OmegaConf.select(self.config, key)
        except OmegaConfBaseException:  # by a resolver that is the training's
            return None
        return OmegaConf.to_container(value) if isinstance(value, DictConfig | ListConfig) else value

    def games(self) -> list[str]:
        """The games' ids, from the run's config or from the baselines."""
        if games := self.setting("games"):
            return [game["id"] if isinstance(game, dict) else str(game) for game in games]
        values = read_state(self.folder).get("baselines", {}).get("values", [])
        return sorted({str(game) for game, *_ in values})

    def hub_id(self) -> str | None:
        """What the training began from, if that has a name that others can look up."""
        path = self.setting("actor_rollout_ref.model.path")
        is_id = path is not None and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) and not Path(path).exists()
        return path if is_id else None


def _of_run(run: Path, step: int | None) -> Path:
    checkpoints = run / "checkpoints" if (run / "checkpoints").is_dir() else run
    if step is not None:
        folder = checkpoints / f"global_step_{step}"
        if not folder.is_dir():
            known = ", ".join(map(str, steps(checkpoints))) or "none"
            raise ExportError(
                f"--step {step}: there is no checkpoint of that step in {checkpoints}; there are: {known}"
            )
        return folder
    tracker = checkpoints / TRACKER
    named = tracker.read_text(encoding="utf-8").strip() if tracker.is_file() else ""
    # a later one is there when a save was interrupted, and may hold half a file
    saved = [s for s in steps(checkpoints) if not named.isdecimal() or s <= int(named)]
    if not saved:
        raise ExportError(f"{run}: neither a checkpoint (global_step_<n>) nor a run with checkpoints")
    folders = [checkpoints / f"global_step_{s}" for s in reversed(saved)]
    whole = next((folder for folder in folders if not _missing(folder)), folders[0])
    if whole != folders[0]:
        print(f"{folders[0].name} is not whole: taking {whole.name}", file=sys.stderr)
    return whole


def _ranks(folder: Path) -> int:
    """How many ranks wrote a checkpoint, by what verl noted, or else by the files' names."""
    try:
        noted = json.loads((folder / "actor" / "fsdp_config.json").read_text(encoding="utf-8"))
        return max(1, int(noted["world_size"]))
    except (OSError, ValueError, KeyError, TypeError):
        names = (re.search(r"_world_size_(\d+)_rank_", file.name) for file in folder.glob("actor/*.pt"))
        return max((int(name[1]) for name in names if name), default=1)


def _missing(folder: Path) -> list[str]:
    texts = [f"{HUGGINGFACE}/{name}" for name in ("config.json", "tokenizer_config.json")]
    return missing_parts(folder, _ranks(folder)) + [name for name in texts if not (folder / name).is_file()]


# -- weights -----------------------------------------------------------------------------------------------------------


def read_weights(actor: Path, ranks: int) -> Weights:
    """The weights of a checkpoint's ``actor`` folder, each whole, as they were saved.

    Raises:
        ExportError: a shard is damaged, holds anything but tensors, or does not fit the others.
    """
    shards = [_read_shard(actor / f"model_world_size_{ranks}_rank_{rank}.pt") for rank in range(ranks)]
    for rank, shard in enumerate(shards):
        if shard.keys() != shards[0].keys():
            raise ExportError(f"{actor}: the weights of rank {rank} have other names than those of rank 0")
    return {name: join(name, [shard[name] for shard in shards]) for name in shards[0]}


def _read_shard(file: Path) -> Weights:
    try:
        # a checkpoint may come from anyone: unpickled without weights_only, it could run anything
        shard = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "GLOBAL" in line), "it is no file of weights")
        raise ExportError(f"{file}: refused, because it holds more than tensors: {reason}") from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ExportError(f"{file}: damaged, or not written by torch.save: {str(error).splitlines()[0]}") from error
    if not isinstance(shard, dict) or not all(isinstance(weight, torch.Tensor) for weight in shard.values()):
        raise ExportError(f"{file}: holds something else than tensors by name")
    return shard


def join(name: str, shards: Sequence[torch.Tensor]) -> torch.Tensor:
    """One weight from what each rank has of it.

    Raises:
        ExportError: the parts do not make a whole, or are spread in a way that FSDP does not.
    """
    first = shards[0]
    if not isinstance(first, DTensor):
        if not all(torch.equal(first, shard) for shard in shards[1:]):
            raise ExportError(f"{name}: not sharded, and yet not the same on every rank")
        return first
    spread = [(axis, kind) for axis, kind in enumerate(first.placements) if not kind.is_replicate()]
    if not spread:
        return first.to_local()
    (axis, kind), *more = spread
    if more or type(kind) is not Shard:
        raise ExportError(f"{name}: sharded as {first.placements}; only FSDP's way, along one axis, is supported")
    # with replicas (HSDP) the mesh has a second axis, along which all ranks have the same
    mesh = first.device_mesh.mesh
    ranks = mesh.movedim(axis, 0).reshape(mesh.shape[axis], -1)[:, 0].tolist()
    if max(ranks) >= len(shards):
        raise ExportError(f"{name}: spread over {mesh.numel()} ranks, and there are {len(shards)}")
    parts = [shards[rank].to_local() for rank in ranks]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=kind.dim)
    if whole.shape != first.shape:
        raise ExportError(f"{name}: the ranks' parts make {tuple(whole.shape)}, not {tuple(first.shape)}")
    return whole


def check_finite(weights: Mapping[str, torch.Tensor], dtype: str | None) -> None:
    """Raises ExportError if a weight is infinite or not a number."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            mend = "try --dtype bfloat16" if dtype == "float16" else "the training diverged; take an earlier step"
            raise ExportError(f"{name}: has values that are no finite {dtype or 'numbers'}; {mend}")


# -- whole models ------------------------------------------------------------------------------------------------------


def empty_model(huggingface: Path) -> Any:
    """The model without its weights."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        # "eager": the training's attention may need a package that is not installed here
        config = AutoConfig.from_pretrained(huggingface, trust_remote_code=False, attn_implementation="eager")
        with init_empty_weights():
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except ValueError as error:
        raise ExportError(f"{huggingface / 'config.json'}: {error}") from error


def whole_model(huggingface: Path, weights: Weights) -> Any:
    """The model with its weights, all of them and no others.

    Raises:
        ExportError: they do not fit.
    """
    model = empty_model(huggingface)
    model.tie_weights()
    names: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(id(parameter), name)) != name:
            tied[name] = first
    own: Weights = {}
    for name, weight in weights.items():
        first = tied.get(name, name)
        other = own.setdefault(first, weight)
        if other is not weight and not torch.equal(other, weight):
            raise ExportError(f"{first} and {name} are one in the model and differ in the checkpoint")
    try:
        keys = model.load_state_dict(own, strict=False, assign=True)
    except RuntimeError as error:  # shapes
        raise ExportError(f"the weights do not fit {huggingface / 'config.json'}: {error}") from error
    missing = [name for name in keys.missing_keys if name not in tied]
    if missing or keys.unexpected_keys:
        wrong = [f"{name} is missing" for name in missing] + [f"{name} is unknown" for name in keys.unexpected_keys]
        raise ExportError(f"the weights do not fit {huggingface / 'config.json'}: {', '.join(wrong[:5])}")
    model.tie_weights()
    return model.eval()


def copy_texts(huggingface: Path, new: Path) -> None:
    """Tokenizer, chat template and generation config, to the byte; the config is the model's to write."""
    for file in sorted(huggingface.rglob("*")):
        name = file.relative_to(huggingface)
        if file.is_file() and file.suffix in _COPIED and not str(file).endswith(_NOT_COPIED):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, new / name)


def verify_model(folder: Path, model: Any) -> Any:
    """The model as transformers reads it from ``folder``, which must be ``model`` to the bit.

    Raises:
        Different: it is not.
    """
    from transformers import AutoModelForCausalLM

    loaded, found = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, trust_remote_code=False)
    if wrong := [f"{kind}: {names}" for kind, names in found.items() if names]:
        raise Different(f"transformers does not read it as it is: {'; '.join(wrong)}")
    _same(loaded.state_dict(), model.state_dict())
    return loaded


def _same(loaded: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    if loaded.keys() != expected.keys():
        raise Different(f"other weights than expected: {', '.join(sorted(loaded.keys() ^ expected.keys())[:5])}")
    for name, weight in expected.items():
        if loaded[name].dtype != weight.dtype or not torch.equal(loaded[name], weight):
            raise Different(f"{name} is not what the checkpoint holds")


# -- LoRA --------------------------------------------------------------------------------------------------------------


@dataclass
class Adapter:
    """LoRA weights under the names that PEFT's files have, and PEFT's config for them."""

    weights: Weights
    config: Any

    @classmethod
    def of(cls, weights: Weights, source: Source) -> Adapter | None:
        """The adapter among a checkpoint's weights; None if there is none.

        Raises:
            ExportError: it is of a kind that verl does not make from its settings, or its settings are not known.
        """
        lora = {name: weight for name, weight in weights.items() if "lora_" in name}
        if not lora:
            return None
        for key in ("lora_adapter_path", "target_parameters"):
            if source.setting(f"actor_rollout_ref.model.{key}"):
                raise ExportError(f"actor_rollout_ref.model.{key} was set for this run: not supported by the export")
        matches = {name: _LORA.fullmatch(name) for name in lora}
        modules, ranks, renamed = set(), set(), {}
        for name, match in matches.items():
            if match is None:
                raise ExportError(f"{name}: no weight of a plain LoRA, which is all that is supported")
            modules.add(match["module"])
            if match["matrix"] == "A":
                ranks.add(lora[name].shape[0])
            renamed[name.replace(".default", "")] = lora[name]
        if len(ranks) != 1:
            raise ExportError(f"the LoRA weights have ranks {sorted(ranks)}: must have one")
        rank, alpha = ranks.pop(), _alpha(source)
        config = _peft().LoraConfig(
            r=rank,
            lora_alpha=alpha,
            target_modules=_targets(modules, source.huggingface),
            bias="none",
            task_type="CAUSAL_LM",
            inference_mode=True,
            base_model_name_or_path=source.hub_id(),
        )
        return cls(renamed, config)

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.weights.values())).dtype

    def convert(self, dtype: str | None) -> None:
        """Give the weights another type; raises ExportError if they do not fit into it."""
        if dtype is not None:
            self.weights = {name: weight.to(DTYPES[dtype]) for name, weight in self.weights.items()}
        check_finite(self.weights, dtype)

    @property
    def size(self) -> int:
        return sum(weight.numel() for weight in self.weights.values())

    def write(self, folder: Path) -> None:
        from safetensors.torch import save_file

        self.config.save_pretrained(folder)
        weights = {name: weight.contiguous() for name, weight in self.weights.items()}
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})

    def base(self, source: Source, weights: Weights) -> Any | None:
        """The model that the adapter belongs to; None if the checkpoint holds the adapter alone."""
        own = {
            name.removeprefix(_WRAPPED).replace(".base_layer.", "."): weight
            for name, weight in weights.items()
            if "lora_" not in name
        }
        return whole_model(source.huggingface, own) if own else None

    def merged(self, source: Source, weights: Weights) -> Any:
        """The model with the adapter added to its weights.

        Raises:
            ExportError: the checkpoint holds the adapter alone.
        """
        peft = _peft()
        model = self.base(source, weights)
        if model is None:
            raise ExportError(
                f"--merge: {source.folder} holds the adapter alone, without the model's own weights; leave it out, and "
                "merge the adapter into the base model with peft"
            )
        with_adapter = peft.get_peft_model(model, self.config, autocast_adapter_dtype=False)
        expected = _names_of_files(with_adapter)
        if expected.keys() != self.weights.keys():
            wrong = sorted(expected.keys() ^ self.weights.keys())
            raise ExportError(f"the LoRA weights do not fit the model: {', '.join(wrong[:5])}")
        peft.set_peft_model_state_dict(with_adapter, self.weights)
        return with_adapter.merge_and_unload(safe_merge=True)

    def verify(self, folder: Path, source: Source, weights: Weights) -> Any | None:
        """The model with the adapter as PEFT reads it from ``folder``; None if there is no base model to run it with.

        Raises:
            Different: it is not what the checkpoint holds.
        """
        peft = _peft()
        base = self.base(source, weights)
        some = base if base is not None else empty_model(source.huggingface).to_empty(device="cpu")
        model = peft.PeftModel.from_pretrained(some, folder, autocast_adapter_dtype=False)
        _same(_names_of_files(model), self.weights)
        return model if base is not None else None


def _names_of_files(model: Any) -> Weights:
    """A PEFT model's adapter under the names that PEFT's files have."""
    # unless told otherwise, it asks the hub whether the base model's embeddings were resized
    state: Weights = _peft().get_peft_model_state_dict(model, save_embedding_layers=False)
    return state


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ExportError("the checkpoint holds LoRA weights, and peft is not installed: pip install peft") from error
    return peft


def _alpha(source: Source) -> int:
    noted = source.folder / "actor" / "lora_train_meta.json"
    try:
        return int(json.loads(noted.read_text(encoding="utf-8"))["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError):
        alpha = source.setting("actor_rollout_ref.model.lora_alpha")
    if alpha is None:
        raise ExportError(f"LoRA's alpha is not known: neither {noted} nor .hydra/config.yaml of the run names it")
    return int(alpha)


def _targets(modules: set[str], huggingface: Path) -> list[str]:
    """The modules' last names, or their whole names where those would mean other modules too."""
    names = [name for name, _ in empty_model(huggingface).named_modules()]
    if unknown := modules - set(names):
        raise ExportError(f"{min(unknown)}: has LoRA weights, and is no module of the model")
    last = {name.rsplit(".", 1)[-1] for name in modules}
    meant = {name for name in names if name.rsplit(".", 1)[-1] in last}
    return sorted(last if meant == modules else modules)


# -- what a person reads -----------------------------------------------------------------------------------------------


def continuation(model: Any, folder: Path, source: Source) -> str:
    """What the model says to the first position of the run's first game, at temperature 0."""
    from transformers import AutoTokenizer

    from .games import make
    from .prompts import get_template

    template, games = source.setting("prompt.template"), source.games()
    if template is None or not games:
        return "no continuation: the run's config names no prompt template"
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    try:
        game = make(games[0], 0)
        kwargs = source.setting("data.apply_chat_template_kwargs") or {}
        prompt = get_template(template).encode(tokenizer, game.observation(game.current_player), **kwargs)
    except (ValueError, ImportError) as error:
        return f"no continuation: {error}"
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        said = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=_NEW_TOKENS
        )[0, len(prompt) :]
    return f"{games[0]}, temperature 0: {tokenizer.decode(said)!r}"


def card(source: Source, what: str, is_adapter: bool) -> str:
    """The folder's model card: where it comes from, without paths of this machine."""
    state = read_state(source.folder)
    name = Path(str(source.setting("trainer.experiment_name") or source.run)).name
    project = source.setting("trainer.project_name")
    path = source.setting("actor_rollout_ref.model.path")
    embedded = source.setting("embedded_model")
    base = source.hub_id() or (Path(path).name if path else f"the embedded model `{embedded}`" if embedded else None)
    facts = {
        "run": f"{Path(str(project)).name}/{name}" if project else name,
        "step": state.get("step", source.step),
        "seed": state.get("seed", source.setting("seed")),
        "games": ", ".join(source.games()),
        "trained from": base,
        "prompt template": source.setting("prompt.template"),
        "weights": what,
    }
    head = ["library_name: " + ("peft" if is_adapter else "transformers"), "pipeline_tag: text-generation"]
    head += [f"base_model: {source.hub_id()}"] if source.hub_id() else []
    head += ["tags: [spiral, verl, self-play, reinforcement-learning]"]
    table = [f"| {key} | {value} |" for key, value in facts.items() if value not in (None, "")]
    load = (
        'model = PeftModel.from_pretrained(base_model, "FOLDER")'
        if is_adapter
        else 'model = AutoModelForCausalLM.from_pretrained("FOLDER")'
    )
    imports = ["from peft import PeftModel", "from transformers import AutoTokenizer"]
    lines = [
        *("---", *head, "---", ""),
        *(f"# {name}, step {source.step}", ""),
        "Trained by self-play on two-player zero-sum text games: [SPIRAL](https://arxiv.org/abs/2506.24119), on verl.",
        *("", "| | |", "| --- | --- |", *table, ""),
        "```python",
        *(imports if is_adapter else ["from transformers import AutoModelForCausalLM, AutoTokenizer"]),
        *("", load, 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")'),
        "```",
    ]
    return "\n".join(lines) + "\n"


# -- the folder --------------------------------------------------------------------------------------------------------


def check_target(target: Path, checkpoint: Path, force: bool) -> None:
    """Raises ExportError if ``target`` may not be written."""
    if target.is_relative_to(checkpoint) or checkpoint.is_relative_to(target):
        raise ExportError(f"{target}: must neither hold the checkpoint nor lie in it")
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target}: is a file")
    if not force and target.is_dir() and any(target.iterdir()):
        raise ExportError(f"{target}: is not empty; name another folder, or replace it with --force")


def put(target: Path, build: Callable[[Path], str], force: bool) -> str:
    """Have ``build`` fill a folder beside ``target`` and move it there when it is complete; returns what it returns.

    Raises:
        Exception: whatever ``build`` raises; then ``target`` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        new, old = unfinished / "new", unfinished / "old"
        new.mkdir()
        result = build(new)
        for file in new.rglob("*"):
            file.chmod(file.stat().st_mode | (new.stat().st_mode & 0o444))  # safetensors writes for the owner alone
        if target.exists():
            if not force:
                target.rmdir()  # fails if something was put there meanwhile
            else:
                target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
