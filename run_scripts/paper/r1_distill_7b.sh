#!/usr/bin/env bash
# SPIRAL's run on three games with DeepSeek-R1-Distill-Qwen-7B, on one machine with eight GPUs.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_r1_distill_7b "$@"
