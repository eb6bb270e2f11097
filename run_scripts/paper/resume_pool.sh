#!/usr/bin/env bash
# Goes on with the run of pool.sh from its last checkpoint: weights, optimizer, pool, ratings, baselines and seeds. The same as
# pool.sh, but it refuses to begin anew where there is no checkpoint. Arguments: [--dry-run] [OVERRIDE ...]; those of
# pool.sh must be given again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# Where the checkpoints are follows from these (config/spiral_trainer.yaml).
project=spiral name=paper_pool run_dir='' checkpoints=''
for argument in "$@"; do
    case $argument in
        trainer.project_name=*) project=${argument#*=} ;;
        trainer.experiment_name=*) name=${argument#*=} ;;
        run_dir=*) run_dir=${argument#*=} ;;
        trainer.default_local_dir=*) checkpoints=${argument#*=} ;;
    esac
done
run_dir=${run_dir:-outputs/$project/$name}
if [[ ! -s ${checkpoints:-$run_dir/checkpoints}/latest_checkpointed_iteration.txt && ! " $* " =~ " "(-h|--help)" " ]]; then
    echo "resume_pool.sh: $run_dir has no checkpoint; begin with run_scripts/paper/pool.sh" >&2
    exit 2
fi
exec run_scripts/train.sh paper_pool "$@"
