"""Measures the update of a run against plain torch on the same turns.

    python benchmarks/update.py RUN_DIR [--step N] [--json FILE]

Plain torch is the model of transformers, AdamW and one loss, -advantage * log p of the answers' tokens, with the turns
of one step's records, ordered by length and packed into micro-batches of as many tokens as the run's: nothing of
verl's. Both numbers are tokens of prompts and answers for each second of the clock, so that nothing else may run
meanwhile. The run's are its own metrics, and its padding is shown as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.options import run_folder  # noqa: E402
from recipe.spiral.processes.arguments import Arguments, new_file, within  # noqa: E402
from recipe.spiral.storage.metrics_file import METRICS, read_metrics  # noqa: E402
from recipe.spiral.storage.record_folder import RecordFolder  # noqa: E402

#: Tokens per second of the run's update, as a share of plain torch's; and the largest share of padding.
TARGET, PADDING_TARGET = 0.8, 0.03

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


def plain_torch(model: Any, optimizer: Any, turns: list[Turn], most: int) -> tuple[float, float]:
    """Seconds of the clock, and of the CPU, of one optimizer step over all turns."""
    import torch

    clock, cpu = time.perf_counter(), time.process_time()
    for batch in packed(turns, most):
        longest = max(len(prompt) + len(answer) for prompt, answer in batch)
        ids, mask, answers = (torch.zeros(len(batch), longest, dtype=torch.long) for _ in range(3))
        for row, (prompt, answer) in enumerate(batch):
            length = len(prompt) + len(answer)
            ids[row, :length] = torch.tensor(prompt + answer)
            mask[row, :length] = 1
            answers[row, len(prompt) : length] = 1
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        log_probs = -torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        (-(log_probs * answers[:, 1:]).sum() / len(turns)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - clock, time.process_time() - cpu


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("run_dir", type=run_folder, help="a run with records of training games")
    parser.add_argument("--step", type=within(int, 1), help="which step's games; otherwise the last one's")
    parser.add_argument(
        "--repeats", type=within(int, 1), default=3, help="of plain torch; the fastest counts, in its favour"
    )
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    arguments = parser.parse_args()

    import torch
    from omegaconf import OmegaConf
    from transformers import AutoModelForCausalLM

    config = OmegaConf.load(arguments.run_dir / "config.yaml")
    steps = {line.step: line.metrics for line, _ in read_metrics(arguments.run_dir / METRICS)}
    steps = {step: metrics for step, metrics in steps.items() if metrics.get("timing_s/update_actor")}
    step = arguments.step or max(steps, default=1)
    if step not in steps:
        parser.error(f"--step: {METRICS} has no update of step {step}")
    if not (turns := turns_of(arguments.run_dir, step)):
        parser.error(f"{arguments.run_dir}: no tokens of step {step} are recorded; the run needs records.tokens=true")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    actor = config.actor_rollout_ref.actor
    model = AutoModelForCausalLM.from_pretrained(config.actor_rollout_ref.model.path, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    tokens = sum(len(prompt) + len(answer) for prompt, answer in turns)
    measured = [
        plain_torch(model, optimizer, turns, int(actor.ppo_max_token_len_per_gpu)) for _ in range(arguments.repeats)
    ]
    clock, cpu = min(clock for clock, _ in measured), min(cpu for _, cpu in measured)
    epochs, seconds = int(actor.ppo_epochs), float(steps[step]["timing_s/update_actor"] or 0.0)
    figures = {
        "step": step,
        "turns": len(turns),
        "tokens": tokens,
        "plain_torch": {"tokens_per_second": tokens / clock, "tokens_per_cpu_second": tokens / cpu},
        "run": {"tokens_per_second": epochs * tokens / seconds, "padding": steps[step].get("perf/update/padding")},
        "ratio": epochs * tokens / seconds / (tokens / clock),
        "target": TARGET,
    }
    print(f"step {step}: {len(turns)} turns, {tokens:,} tokens")
    print(f"plain torch: {tokens / clock:,.0f} tokens/s, {tokens / cpu:,.0f} per CPU second")
    print(f"the run's update: {epochs * tokens / seconds:,.0f} tokens/s ({epochs} passes in {seconds:.2f} s)")
    print(f"ratio: {figures['ratio']:.2f} (target: {TARGET})")
    if figures["run"]["padding"] is not None:
        print(f"padding: {figures['run']['padding']:.1%} (target: {PADDING_TARGET:.0%})")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
