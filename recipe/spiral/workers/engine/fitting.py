"""Whether a folder's weights fit the policy's model: where some are missing, vLLM itself would keep the old ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...opponents.model_files import missing_files, weight_files

Shapes = dict[str, tuple[int, ...]]

#: Keys of a config that do not change what the model computes; so do those that begin with "_".
_IRRELEVANT = {
    *("architectures", "attention_dropout", "dtype", "initializer_range", "max_position_embeddings", "torch_dtype"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "use_cache"),
}
#: The output layer, which may be there or not where it is the embedding; and what old checkpoints hold besides weights.
HEAD = "lm_head.weight"
_COMPUTED = "rotary_emb.inv_freq"


class UnfitWeights(ValueError):
    """A folder does not hold the weights of the model that they are to be loaded into."""


def check_fits(folder: Path, model: Path) -> None:
    """That a Hugging Face folder's weights are all there, of the model's shapes, and computed with in the same way.

    Raises:
        UnfitWeights: they are not; the message says where they differ.
    """
    config, expected = _config(folder), _config(model)
    if differing := sorted(key for key in config.keys() | expected.keys() if config.get(key) != expected.get(key)):
        key = differing[0]
        raise UnfitWeights(
            f"{folder}: {key} is {config.get(key)!r} where {expected.get(key)!r} is needed, as in {model}"
        )
    tied = bool(expected.get("tie_word_embeddings"))
    shapes, needed = _needed(weight_shapes(folder), tied), _needed(weight_shapes(model), tied)
    faults = [f"{name} is missing" for name in sorted(needed.keys() - shapes.keys())]
    faults += [f"{name} is unknown" for name in sorted(shapes.keys() - needed.keys())]
    faults += [
        f"{name} is {shapes[name]} where {shape} is needed"
        for name, shape in needed.items()
        if shapes.get(name, shape) != shape
    ]
    if faults:
        raise UnfitWeights(f"{folder}: its weights are not those of {model}: {', '.join(faults[:3])}")


def weight_shapes(folder: Path) -> Shapes:
    """The shapes of weights in a folder, from its files' headers only; UnfitWeights: files are missing or cut short."""
    from safetensors import safe_open

    if missing := missing_files(folder):
        raise UnfitWeights(f"{folder}: missing or cut short: {', '.join(missing)}; weights must be safetensors")
    shapes: Shapes = {}
    for file in weight_files(folder, "hf"):
        with safe_open(folder / file, "pt") as weights:
            shapes |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    return shapes


def _needed(shapes: Shapes, tied: bool) -> Shapes:
    return {name: shape for name, shape in shapes.items() if not (name.endswith(_COMPUTED) or (tied and name == HEAD))}


def _config(folder: Path) -> dict[str, Any]:
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise UnfitWeights(f"{folder}: holds no config.json, so it is no Hugging Face model")
    config: dict[str, Any] = AutoConfig.from_pretrained(folder, trust_remote_code=False).to_dict()
    return {key: value for key, value in config.items() if key not in _IRRELEVANT and not key.startswith("_")}
