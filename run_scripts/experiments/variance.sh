#!/usr/bin/env bash
# Measures how much each kind of baseline lowers the variance of the policy gradient: 20 to 30 minutes on one core, without a
# GPU. Stopped and started again, it goes on where it was. It writes docs/experiments/variance.json and the pages. Further
# arguments are overrides; with them the result goes to outputs/experiments/variance/docs, or to output=FOLDER.
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source run_scripts/limit.sh 7200
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
# One thread: the model is so small that several threads only wait for each other.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec timeout --foreground --verbose --kill-after=60 "$limit" \
    python -m experiments.variance "$@"
