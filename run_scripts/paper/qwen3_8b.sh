#!/usr/bin/env bash
# SPIRAL's run on three games with Qwen3-8B-Base, on one machine with eight GPUs.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_qwen3_8b "$@"
