#!/usr/bin/env bash
# SPIRAL's run on one game, Kuhn poker: Qwen3-4B-Base on one machine with eight GPUs. For another game, in a folder of its own:
# 'games=[TicTacToe]' trainer.experiment_name=paper_tictactoe.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_kuhn "$@"
