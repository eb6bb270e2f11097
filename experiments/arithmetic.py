"""Questions of arithmetic, and a tiny model that knows some of the answers, for ``+experiment=spin_arithmetic``.

``python -m experiments.arithmetic FOLDER`` writes ``train.jsonl`` and ``test.jsonl`` (sums of two digits, in GSM8K's
form; none is in both) and ``model/``. The model has seen all sums: first with the right answers, and then with random
ones in all but ``RIGHT`` of the cases. So it gives the right one about as often, as a large model does before it is
trained.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipe.spiral.lab.models.tiny import POSITIONS, Spec, new_model, prompt_texts, train_tokenizer
from recipe.spiral.players.prompts import boxed, general_template
from recipe.spiral.players.seeds import derive_seed

TEMPLATE = "chat"
#: Both numbers are below this.
BELOW = 10
#: Questions of ``test.jsonl``; all others are in ``train.jsonl``.
HELD_OUT = 30
#: The share of right answers that the model learns from.
RIGHT = 0.4
#: Steps with the right answers, and then with random ones among them.
STEPS, RANDOM_STEPS = 30, 50
#: AdamW's, for embeddings, norms and the output layer; and Muon's, for the matrices between them.
LEARNING_RATE, MATRIX_LEARNING_RATE = 2e-3, 4e-3


def sums(seed: int) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The rows to train on, and those held out."""
    pairs = [(a, b) for a in range(BELOW) for b in range(BELOW)]
    random.Random(derive_seed(seed, "held-out sums")).shuffle(pairs)
    rows = [
        {"data_source": "sums", "question": f"What is {a} + {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}
        for a, b in pairs
    ]
    return rows[HELD_OUT:], rows[:HELD_OUT]


def make(folder: Path, seed: int = 0) -> None:
    """Write the questions and the model; a model that is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    train, held_out = sums(seed)
    for name, rows in (("train", train), ("test", held_out)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    if not (folder / "model" / "config.json").is_file():
        model, tokenizer = warm_start([*train, *held_out], seed)
        tokenizer.save_pretrained(folder / "model")
        model.save_pretrained(folder / "model")


def warm_start(rows: Sequence[dict[str, str]], seed: int) -> tuple[Any, Any]:
    """A tiny model that answers these questions in the right form, and in ``RIGHT`` of the cases with the right number.

    Returns:
        The model and its tokenizer.
    """
    import torch

    template, largest = general_template(TEMPLATE), 2 * (BELOW - 1)
    texts = {text for row in rows for text in prompt_texts(template, row["question"])}
    tokenizer = train_tokenizer([*texts, *(boxed(str(number)) for number in range(largest + 1))], POSITIONS)
    torch.manual_seed(derive_seed(seed, "arithmetic") % 2**31)
    model = new_model(Spec(()), tokenizer)
    prompts = [template.encode(tokenizer, row["question"]) for row in rows]
    right = [int(row["answer"].rsplit("####", 1)[1]) for row in rows]
    said = [tokenizer.encode(boxed(str(number)), add_special_tokens=False) for number in range(largest + 1)]
    rng = random.Random(derive_seed(seed, "warm start on arithmetic"))
    optimizers = _optimizers(model)
    for step in range(STEPS + RANDOM_STEPS):
        known = 1.0 if step < STEPS else RIGHT
        given = [number if rng.random() < known else rng.randint(0, largest) for number in right]
        answers = [[*said[number], tokenizer.eos_token_id] for number in given]
        ids, labels = _padded(prompts, answers, tokenizer.pad_token_id)
        factor = min(1.0, (step + 1) / 10, 2 * (STEPS + RANDOM_STEPS - step) / RANDOM_STEPS)
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, highest in optimizers:
            optimizer.param_groups[0]["lr"] = factor * highest
            optimizer.step()
    return model.eval(), tokenizer


def _optimizers(model: Any) -> list[tuple[Any, float]]:
    """Each with its highest learning rate."""
    import torch

    named = list(model.named_parameters())
    matrices = [weight for name, weight in named if weight.ndim == 2 and ".layers." in name]
    others = [weight for name, weight in named if weight.ndim != 2 or ".layers." not in name]
    return [
        (torch.optim.AdamW(others, betas=(0.9, 0.98)), LEARNING_RATE),
        (torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw"), MATRIX_LEARNING_RATE),
    ]


def _padded(prompts: Sequence[list[int]], answers: Sequence[list[int]], pad: int) -> tuple[Any, Any]:
    """Token ids and labels, of which only answers count; both [rows, longest]."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = [torch.tensor([*prompt, *answer]) for prompt, answer in zip(prompts, answers, strict=True)]
    labels = [torch.tensor([-100] * len(prompt) + answer) for prompt, answer in zip(prompts, answers, strict=True)]
    return pad_sequence(ids, True, pad), pad_sequence(labels, True, -100)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.arithmetic", description=__doc__)
    parser.add_argument("folder", type=Path)
    make(parser.parse_args(arguments).folder)


if __name__ == "__main__":
    main()
