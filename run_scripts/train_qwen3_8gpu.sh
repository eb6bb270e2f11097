#!/usr/bin/env bash
# Qwen3-4B-Base on one machine with eight GPUs, with the paper's settings. Not run by us yet. Further arguments are overrides,
# for example actor_rollout_ref.model.path=/models/Qwen3-8B-Base trainer.nnodes=2 (on a Ray cluster: RAY_ADDRESS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh --gpu
export PATH="$PWD/.venv/bin:$PATH"
exec python -m recipe.spiral.main_spiral +experiment=qwen3_4b "$@"
