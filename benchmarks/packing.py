"""Measures how long rows take into TransferQueue and back, by its own storage and by the recipe's (``packed_rows``).

    python benchmarks/packing.py [--rows 640] [--tokens 4] [--prompt 90] [--json FILE]

For each of the two a Ray and a TransferQueue of their own are started. The rows have the fields of a turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from recipe.spiral.processes.arguments import Arguments, new_file, within  # noqa: E402

#: What verl's trainer reads, or writes, in one call.
READ = {
    "2 fields": ["rollout_log_probs", "response_mask"],
    "6 fields": ["prompts", "responses", "response_mask", "rm_scores", "rollout_log_probs", "num_turns"],
}
WRITTEN = {"1 field": ["rollout_log_probs"], "2 fields": ["rollout_log_probs", "rm_scores"]}


def rows(number: int, tokens: int, prompt: int) -> Any:
    """Turns whose lengths differ by a few tokens."""
    import torch
    from tensordict import TensorDict
    from tensordict.tensorclass import NonTensorStack

    prompts = [prompt + i % 13 for i in range(number)]
    responses = [max(1, tokens - i % 2) for i in range(number)]
    both = [p + r for p, r in zip(prompts, responses, strict=True)]

    def field(lengths: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.arange(n).to(dtype) for n in lengths], layout=torch.jagged)

    return TensorDict(
        {
            "prompts": field(prompts),
            "responses": field(responses),
            "input_ids": field(both),
            "position_ids": field(both),
            "response_mask": field(responses),
            "loss_mask": field(responses),
            "rm_scores": field(responses, torch.float32),
            "rollout_log_probs": field(responses, torch.float32),
            "num_turns": torch.ones(number, dtype=torch.int32),
            "extra_fields": NonTensorStack(*[{"key": {"step": 1, "index": i}, "player": 0} for i in range(number)]),
        },
        batch_size=number,
    )


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    call()
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begin))
    return median(taken)


def measure(storage: str, made: Any, repeats: int) -> dict[str, float]:
    """Milliseconds of each call, median."""
    import ray
    import transfer_queue as tq
    from omegaconf import OmegaConf

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    backend = {"storage_backend": storage, "SimpleStorage": {"num_data_storage_units": 1}, "PackedStorage": {}}
    tq.init(OmegaConf.create({"backend": backend}))
    keys = [f"row_{i}" for i in range(len(made))]
    try:
        taken = {"put all": milliseconds(lambda: tq.kv_batch_put(keys, "train", fields=made), repeats)}
        for name, fields in WRITTEN.items():
            some = made.select(*fields)
            taken[f"put {name}"] = milliseconds(lambda: tq.kv_batch_put(keys, "train", fields=some), repeats)  # noqa: B023
        for name, fields in {**READ, "all": list(made.keys())}.items():
            taken[f"get {name}"] = milliseconds(lambda: tq.kv_batch_get(keys, "train", fields), repeats)  # noqa: B023
    finally:
        tq.close()
        ray.shutdown()
    return taken


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=within(int, 1), default=640, help="in a call: the turns of a step")
    parser.add_argument("--tokens", type=within(int, 1), default=4, help="of a response")
    parser.add_argument("--prompt", type=within(int, 1), default=90, help="tokens of a prompt")
    parser.add_argument("--repeats", type=within(int, 1), default=15, help="of each call; the median counts")
    parser.add_argument("--json", type=new_file, help="a file for the figures")
    arguments = parser.parse_args()
    from recipe.spiral.runtime import packed_storage as packed_rows

    made = rows(arguments.rows, arguments.tokens, arguments.prompt)
    figures = {name: measure(name, made, arguments.repeats) for name in ("SimpleStorage", packed_rows.NAME)}
    theirs, ours = figures.values()
    print(f"ms a call of {arguments.rows} rows, median of {arguments.repeats}\n")
    print(f"{'call':<14}{'SimpleStorage':>15}{'PackedStorage':>15}{'times as fast':>15}")
    for call in theirs:
        print(f"{call:<14}{theirs[call]:>15.1f}{ours[call]:>15.1f}{theirs[call] / ours[call]:>15.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
