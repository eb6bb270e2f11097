"""The command ``python -m recipe.spiral.export CHECKPOINT TARGET``: its options and exit statuses."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from ..processes.interrupts import interrupt_on_signals
from ..processes.terminal import fail, run_command, visible
from .writing import DTYPES, Different, export


def main(arguments: Sequence[str] | None = None) -> int:
    """Export; returns the exit status: 0, 1 (failed) or 2 (refused)."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.spiral.export",
        description="Make a Hugging Face folder of a checkpoint, for transformers and vLLM. A checkpoint of LoRA "
        "becomes a PEFT adapter.",
    )
    parser.add_argument("checkpoint", type=Path, help="a folder global_step_N, or a run's: its latest one")
    parser.add_argument("target", type=Path, help="the folder to make")
    parser.add_argument("--dtype", choices=DTYPES, help="type of the weights; otherwise the checkpoint's")
    parser.add_argument("--merge", action="store_true", help="LoRA: the whole model, with the adapter merged into it")
    parser.add_argument("--reference", action="store_true", help="the reference policy instead (ref_update_freq)")
    parser.add_argument("--verify", action="store_true", help="load the result, and compare every tensor")
    options = parser.parse_args(arguments)
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)  # it warns those who go on training
    try:
        print(visible(export(**vars(options))), flush=True)
    except (ValueError, PermissionError) as error:
        return fail(error, status=2)
    except (Different, OSError) as error:
        return fail(error, status=1)
    return 0


if __name__ == "__main__":
    interrupt_on_signals()
    run_command(main, "; nothing was written")
