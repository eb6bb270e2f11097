#!/usr/bin/env bash
# SPIRAL's run on three games with LoRA of rank 64 at 4e-5, on one GPU of 80 GB.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_lora "$@"
