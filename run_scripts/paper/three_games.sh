#!/usr/bin/env bash
# SPIRAL's run on TicTacToe, Kuhn poker and Negotiation: Qwen3-4B-Base on one machine with eight GPUs.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper "$@"
