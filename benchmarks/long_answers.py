"""Makes a model whose answers are as long as one likes and end anywhere, for measurements of how games are played.

A tiny model answers with its action alone, in four tokens. This one has the form and the tokenizer of the embedded one
and random weights, with which all tokens are nearly equally likely. One in so many of them is an action of Pig in its
box, and ends the answer. So the games go on, and the answers' lengths are geometrically distributed. Pig is played for
six turns; few games end earlier, by an answer that is cut off or ends without an action. ``make`` takes another form of
model, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GAME, ACTIONS, TURNS = "PigDice", ("[roll]", "[hold]"), 6
#: Room for a prompt of Pig, in tokens; and for an answer, in means: one in four hundred is cut off, and ends its game.
PROMPT, LONGEST = 256, 6


def make(folder: Path, tokens: int, form: Mapping[str, Any] | None = None, device: str = "cpu") -> None:
    """Write the model into a folder; its answers have so many tokens in the mean, 2 to a fifth of its vocabulary.

    Args:
        form: the fields of its config, instead of the tiny model's.
        device: where it is made; on a GPU in bfloat16.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    from recipe.spiral.lab.models import embedded

    tiny = embedded("tiny")
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    known = len(tokenizer)
    if form is None:
        own = json.loads((tiny / "config.json").read_text(encoding="utf-8"))
        form = own | {"vocab_size": known + round(known / (tokens - 1))}
    vocabulary = form["vocab_size"]
    ends = range(known, known + round(vocabulary / tokens))
    # an action in its box is read without the spaces before it
    names = {rf"\boxed{{{' ' * (i // 2)}{ACTIONS[i % 2]}}}": token for i, token in enumerate(ends)}
    names |= {f"~{token:x}": token for token in range(ends.stop, vocabulary)}
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    # as plain entries: tokens that are added to a tokenizer make it slow
    content["model"]["vocab"] |= {token["content"]: token["id"] for token in content["added_tokens"]} | names
    file.write_text(json.dumps(content), encoding="utf-8")
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = AutoConfig.for_model(**{**form, **special})
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if device == "cpu" else torch.bfloat16)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.1)  # otherwise a wide model repeats its last token
    model.generation_config = GenerationConfig(**special | {"eos_token_id": [tokenizer.eos_token_id, *ends]})
    model.save_pretrained(folder)
    if device != "cpu":  # torch would keep the model's memory for this process
        del model
        torch.cuda.empty_cache()


def overrides(folder: Path, tokens: int, longest: int = LONGEST, turns: int = TURNS, prompt: int = PROMPT) -> list[str]:
    """For a run that plays with the model and leaves it as it is; the ``longest`` answer is in means."""
    return [
        f"actor_rollout_ref.model.path={folder}",
        f"games=[{GAME}]",
        f"rules.turn_cap={turns}",
        f"data.max_prompt_length={prompt}",
        f"data.max_response_length={longest * tokens}",
        f"actor_rollout_ref.rollout.max_model_len={prompt + longest * tokens}",
        "actor_rollout_ref.actor.optim.lr=1e-9",
        "actor_rollout_ref.actor.use_kl_loss=false",
        "num_mini_batches=1",
        "validation.exploitability=[]",
        "validation.optimality=[]",
    ]
