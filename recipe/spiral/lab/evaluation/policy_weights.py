"""Folders of weights that vLLM and transformers load: where they come from, what identifies them, and what transformers
reads from them. Checkpoints are exported into such folders, once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...opponents.model_files import check_unchanged, check_whole, local, missing_files
from ...players.player import PlayerMisconfigured
from ...players.prompts import Encode, Tokenizer, check_words
from ...players.seeds import derive_seed
from ...processes.terminal import visible
from ...storage.disk import read_json
from ...storage.manifest import changed_files
from ..models.answer_scores import Question, Scores, in_order, score_answers
from ..opponents.elsewhere import form_of

#: Further files that decide what a policy answers.
_CONFIGS = ("config.json", "adapter_config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja")
#: How many pieces of a large file are hashed, and their size in bytes.
_PIECES, _PIECE = 1024, 4096
_HUB = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.txt", "*.model"]


def exported(checkpoint: Path, cache: Path) -> Path:
    """Export a checkpoint below ``cache`` as a Hugging Face model, or a LoRA adapter, unless that was done already.

    It is exported again if the checkpoint has changed. Returns the folder.

    Raises:
        ValueError: it cannot be exported.
    """
    from transformers.utils import logging as transformers_logging

    from ...export.writing import export  # imports torch

    # Progress bars, and a warning that concerns only those who train with what they load.
    transformers_logging.disable_progress_bar()
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)
    weights = [(file.name, file.stat()) for file in sorted((checkpoint / "actor").glob("*.pt"))]
    state = json.dumps([str(checkpoint), *([name, stat.st_size, stat.st_mtime_ns] for name, stat in weights)])
    target = cache / f"{checkpoint.parents[1].name}-{derive_seed('export', state):016x}" / checkpoint.name
    if missing_files(target) or changed_files(target):
        print(visible(f"exporting {checkpoint}"), flush=True)
        shutil.rmtree(target, ignore_errors=True)
        export(checkpoint, target)
    return target


def adapter_base(adapter: Path, given: object) -> Path:
    """The folder of the model that an adapter belongs to: the given one, or the one that the adapter's config names.

    Raises:
        ValueError: neither is there, or one of them is damaged.
    """
    check_unchanged(adapter, "path")
    base = given or read_json(adapter / "adapter_config.json").get("base_model_name_or_path")
    if not base:
        raise ValueError(
            f"{adapter}: its config names no base model; give it: {{path: ..., base: ...}}, or export the checkpoint "
            "with --merge and evaluate that"
        )
    return whole_model(str(base), "base")


def whole_model(path: str, setting: str) -> Path:
    """A model's folder: the one at ``path``, or the hub's of that id, downloaded unless it is there already.

    Raises:
        ValueError: there is none, it is not whole, or it is damaged.
    """
    folder = local(path, _HUB, f"{setting}: ").resolve()
    if form_of(folder) != "hf":
        raise ValueError(f"{setting}: {folder}: is no whole model: must be a folder with config.json and *.safetensors")
    check_whole(folder, setting)
    check_unchanged(folder, setting)
    return folder


def weights_identity(model: Path, adapter: Path | None) -> dict[str, Any]:
    """What identifies a model, and the adapter on it, so that continuing an evaluation with other weights is noticed.

    Of a file it is the size, and a hash of so many pieces spread evenly over it: to hash files of some GiB whole would
    take minutes. Small files are hashed whole.
    """
    identity: dict[str, Any] = {"kind": "model" if adapter is None else "adapter"}
    for part, folder in (("model", model), ("adapter", adapter)):
        if folder is not None:
            files = [*sorted(folder.glob("*.safetensors")), *(folder / name for name in _CONFIGS)]
            identity[part] = {file.name: _digest(file) for file in files if file.is_file()}
    return identity


def _digest(file: Path) -> str:
    size, digest = file.stat().st_size, hashlib.blake2b(digest_size=16)
    step = max(_PIECE, size // _PIECES)
    with file.open("rb") as content:
        for place in (*range(0, size, step), max(0, size - _PIECE)):
            content.seek(place)
            digest.update(content.read(_PIECE))
    return f"{size} {digest.hexdigest()}"


# -- by transformers ---------------------------------------------------------------------------------------------------


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder.

    Raises:
        ValueError: transformers cannot read it, or there is none.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # a damaged file can raise anything, also plain Exceptions
        raise ValueError(f"{folder}: transformers reads no tokenizer there: {str(error)[:300]}") from error
    check_words(tokenizer, str(folder))
    return tokenizer


def computed_in(model: Path, dtype: str) -> str:
    """``engine.dtype`` as it is for this model, for vLLM and transformers alike.

    vLLM's auto computes in 16 bits on a GPU where weights are in float32, and transformers' does not: a table of
    probabilities would be of another policy than the one that plays.
    """
    import torch

    if dtype != "auto" or not torch.cuda.is_available():
        return dtype
    config = read_json(model / "config.json")
    stored = config.get("dtype") or config.get("torch_dtype")  # its earlier name
    return "bfloat16" if stored != "float16" and torch.cuda.get_device_capability() >= (8, 0) else "float16"


def load(model: Path, adapter: Path | None = None, dtype: str = "auto") -> Any:
    """A model of transformers, on a GPU if there is one.

    Raises:
        PlayerMisconfigured: the model's weights have other shapes than its config says.
    """
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=computed_in(model, dtype), trust_remote_code=False)
    except RuntimeError as error:
        raise PlayerMisconfigured(f"{model}: its weights are not of the shapes that its config.json says") from error
    if adapter is not None:
        from peft import PeftModel

        loaded = PeftModel.from_pretrained(loaded, adapter)
    return loaded.to(device).eval()


def of_model(
    model: Any, ends: Sequence[int], temperature: float, max_tokens: int
) -> Callable[[Sequence[Question]], Scores]:
    """Scores questions by a model of transformers, at a temperature above 0.

    An answer that has more than ``max_tokens`` tokens, with its end token, has probability 0.
    """
    return lambda questions: score_answers(model, questions, ends, temperature, max_tokens, model.device)


class Scorer:
    """Scores the answers to observations; a ``Score`` of ``exploitability.policy_table``.

    The scores are exact up to rounding: each answer goes through the model, none is sampled. vLLM has other kernels and
    rounding. ``score`` scores questions by the policy's model, here or by workers in a training.
    """

    def __init__(self, tokenizer: Tokenizer, encode: Encode, score: Callable[[Sequence[Question]], Scores]) -> None:
        self.encode, self.score = encode, score
        self._tokens = cache(lambda text: tokenizer.encode(text, add_special_tokens=False))

    def __call__(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        """The log-probability of each answer followed by an end token, for each observation with its answers."""
        asked = [Question(self.encode(seen, ()), [self._tokens(text) for text in texts]) for seen, texts in questions]
        return in_order(asked, self.score(asked))
