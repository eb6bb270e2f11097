"""Folders with the form of a published model and a tokenizer that stands in for its own; no weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from recipe.spiral import main_spiral
from recipe.spiral.lab.models.published import PUBLISHED

SHIPPED = next((Path(main_spiral.__file__).parent / "shipped").glob("tiny-*"))
#: With every role that a template uses, and all of what an assistant said.
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def made_model(folder: Path, name: str) -> Path:
    """A folder with the config of the model of this name on the hub.

    Its tokenizer is the tiny model's, of 383 tokens: prompts are longer in it than in the model's own.
    """
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(PUBLISHED[name])))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / file, folder / file)
    (folder / "chat_template.jinja").write_text(CHAT)
    without_weights(folder / "model.safetensors")
    return folder


def without_weights(file: Path) -> None:
    """A whole file of safetensors that has none."""
    file.write_bytes((2).to_bytes(8, "little") + b"{}")
