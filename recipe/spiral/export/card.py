"""The new folder's model card."""

from __future__ import annotations

from pathlib import Path

from ..storage.checkpoints import read_state
from .source import Source

CARD = "README.md"


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
        "prompt style": source.setting("prompt.style"),
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
