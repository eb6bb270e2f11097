"""Measures the update of a run against plain torch on the same turns.

    python benchmarks/update.py RUN_DIR [--step N]

Plain torch is the model of transformers, AdamW and one loss, -advantage * log p of the answers' tokens, with the turns
of one step's records, ordered by length and packed into micro-batches of as many tokens as the run's: nothing of
verl's. Both numbers are tokens of prompts and answers for each second of the clock, so that nothing else may run
meanwhile. The target is 0.8 of plain torch's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.runs import seconds_of, steps_of
from recipe.spiral.lab.record_folder import RecordFolder

#: A turn's prompt and answer.
Turn = tuple[list[int], list[int]]


def turns_of(run_dir: Path, step: int) -> list[Turn]:
    """The turns of a step that were trained."""
    records = RecordFolder(run_dir / "games").read("train", step, step)
    turns = [turn for record in records if record.discarded is None for turn in record.trainable_turns()]
    return [(turn.tokens.prompt_ids, turn.tokens.response_ids) for turn in turns if turn.tokens is not None]


def packed(turns: list[Turn], most: int) -> Iterator[list[Turn]]:
    """Micro-batches of turns of nearly one length, of at most so many positions."""
    batch: list[Turn] = []
    for turn in sorted(turns, key=lambda turn: len(turn[0]) + len(turn[1])):
        if batch and (len(batch) + 1) * (len(turn[0]) + len(turn[1])) > most:
            yield batch
            batch = []
        batch.append(turn)
    yield batch


def plain_torch(model: Any, optimizer: Any, turns: list[Turn], most: int) -> float:
    """Seconds of one optimizer step over all turns."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    begin = time.perf_counter()
    for batch in packed(turns, most):
        ids = pad_sequence([torch.tensor(prompt + answer) for prompt, answer in batch], batch_first=True)
        begins, ends = torch.tensor([(len(prompt), len(prompt) + len(answer)) for prompt, answer in batch]).T[..., None]
        places = torch.arange(ids.shape[1])
        mask, answers = (places < ends).long(), (places >= begins) & (places < ends)
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        log_probs = -torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        (-(log_probs * answers[:, 1:]).sum() / len(turns)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path, help="a run with records of training games")
    parser.add_argument("--step", type=int, help="which step's games; otherwise the last one's")
    given = parser.parse_args()

    import torch
    from omegaconf import OmegaConf
    from transformers import AutoModelForCausalLM

    config = OmegaConf.load(given.run_dir / "config.yaml")
    updates = {step.step: seconds_of(step)["update_actor"] for step in steps_of(given.run_dir)}
    step = given.step or max(updates)
    turns, actor = turns_of(given.run_dir, step), config.actor_rollout_ref.actor
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    model = AutoModelForCausalLM.from_pretrained(config.actor_rollout_ref.model.path, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    tokens = sum(len(prompt) + len(answer) for prompt, answer in turns)
    fastest = min(plain_torch(model, optimizer, turns, int(actor.ppo_max_token_len_per_gpu)) for _ in range(3))
    passes, seconds = int(actor.ppo_epochs), updates[step]
    print(f"step {step}: {len(turns)} turns, {tokens:,} tokens")
    print(f"plain torch: {tokens / fastest:,.0f} tokens/s (the fastest of three)")
    print(f"the run's update: {passes * tokens / seconds:,.0f} tokens/s ({passes} passes in {seconds:.2f} s)")
    print(f"ratio: {passes * fastest / seconds:.2f}")


if __name__ == "__main__":
    main()
