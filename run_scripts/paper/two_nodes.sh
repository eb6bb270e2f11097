#!/usr/bin/env bash
# SPIRAL's run on three games on two machines with eight GPUs each: docs/cluster.md. RAY_ADDRESS names the Ray cluster, and
# run_dir=FOLDER must be one that both see. Arguments: [--dry-run] [OVERRIDE ...].
set -euo pipefail
if [[ -z ${RAY_ADDRESS:-} && ! " $* " =~ " "(-h|--help|--dry-run)" " ]]; then
    echo "two_nodes.sh: RAY_ADDRESS is not set: start Ray on both machines first (docs/cluster.md)" >&2
    exit 2
fi
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper trainer.nnodes=2 trainer.experiment_name=paper_two_nodes "$@"
