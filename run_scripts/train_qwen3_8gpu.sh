#!/usr/bin/env bash
# Qwen3-4B-Base on one machine with eight GPUs, with the paper's hyperparameters on two games. Not run yet.
# Arguments: [--dry-run] [OVERRIDE ...], for example actor_rollout_ref.model.path=/models/Qwen3-8B-Base trainer.nnodes=2 (on a
# Ray cluster: RAY_ADDRESS). run_scripts/paper has the paper's runs.
exec "$(dirname "${BASH_SOURCE[0]}")/train.sh" qwen3_4b "$@"
