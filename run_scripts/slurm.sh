#!/usr/bin/env bash
#SBATCH --job-name=spiral
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --time=48:00:00
#SBATCH --signal=B:TERM@300
# SPIRAL's run on three games as a job of SLURM: `sbatch [--nodes=N] run_scripts/slurm.sh [OVERRIDE ...]`, from the
# project's root, on a disk that all nodes see, with .venv made before. It starts Ray on each node and the run on the first.
# Submitted again, it goes on from the last checkpoint. --dry-run needs no SLURM, and starts nothing.
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '/^# SPIRAL/,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}"
nodes=${SLURM_JOB_NUM_NODES:-2}
run=(run_scripts/train.sh paper trainer.nnodes="$nodes" trainer.experiment_name=paper_slurm "$@")
[[ " $* " == *" --dry-run "* ]] && exec "${run[@]}"
if [[ -z ${SLURM_JOB_NODELIST:-} ]]; then
    echo "slurm.sh: SLURM_JOB_NODELIST is not set: this is no job of SLURM; start it by sbatch (docs/gpu.md)" >&2
    exit 2
fi

source .venv/bin/activate
export PYTHONPATH=$PWD RAY_AUTH_MODE=token
[[ -s ~/.ray/auth_token ]] || (umask 077; ray get-auth-token --generate >/dev/null)
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname -I | awk '{print $1}')
export RAY_ADDRESS=$address:6379

# Since SLURM 22.05 srun does not take this over from the job: Ray, and all that it starts, might have one core.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}
# --block: each node's Ray ends with its step of the job. --overlap: the run has the first node's cores, too.
srun --nodes=1 --ntasks=1 --overlap -w "$head" ray start --head --node-ip-address="$address" --port=6379 --block &
sleep 20
if ((nodes > 1)); then
    srun --nodes=$((nodes - 1)) --ntasks=$((nodes - 1)) --overlap --exclude="$head" ray start --address="$RAY_ADDRESS" --block &
    sleep 20
fi

# Five minutes before its end the job's shell gets SIGTERM, and passes it on: the run has these seconds to end its step
# and to save. Where they are too few, give more, and more in --signal.
export SPIRAL_SAVE_LIMIT=${SPIRAL_SAVE_LIMIT:-280}
"${run[@]}" &
pid=$! status=0
trap 'kill -TERM "$pid" 2>/dev/null || true' TERM
wait "$pid" || status=$?
# The signal ends the first wait, and not the run.
while kill -0 "$pid" 2>/dev/null; do wait "$pid" || status=$?; done
exit "$status"
