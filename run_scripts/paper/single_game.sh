#!/usr/bin/env bash
# SPIRAL's run on one game, Kuhn poker ('games=[TicTacToe]' for another): Qwen3-4B-Base on one machine with eight GPUs.
# Arguments: [--dry-run] [OVERRIDE ...]. Not run by us yet.
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_kuhn "$@"
