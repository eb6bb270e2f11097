#!/usr/bin/env bash
# Qwen3-4B-Base on one machine with eight GPUs, with the settings of the SPIRAL paper (Table 7). We have not run it on GPUs yet.
# Run it from the root of a verl checkout that has recipe/spiral. Arguments are overrides, for example
#   actor_rollout_ref.model.path=/models/Qwen3-8B-Base    another model: a folder or a name on the hub
#   trainer.n_gpus_per_node=4                             another number of GPUs
#   dry_run=true                                          starts nothing: prints settings, memory, downloads
#   trainer.nnodes=2                                      several machines: start a Ray cluster and set RAY_ADDRESS first
set -euo pipefail

exec python -m recipe.spiral.main_spiral +experiment=qwen3_4b "$@"
