#!/usr/bin/env bash
# Goes on with the run of pool.sh from its last checkpoint: weights, optimizer, pool, ratings, baselines and seeds. The same as
# pool.sh, but it refuses to begin anew where there is no checkpoint. Arguments: [--dry-run] [OVERRIDE ...]; those of
# pool.sh must be given again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
run_dir=outputs/spiral/paper_pool
for argument in "$@"; do
    [[ $argument == run_dir=* ]] && run_dir=${argument#run_dir=}
done
if [[ ! -s $run_dir/checkpoints/latest_checkpointed_iteration.txt && ! " $* " =~ " "(-h|--help)" " ]]; then
    echo "resume_pool.sh: $run_dir has no checkpoint; begin with run_scripts/paper/pool.sh" >&2
    exit 2
fi
exec run_scripts/train.sh paper_pool "$@"
