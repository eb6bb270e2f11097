#!/usr/bin/env bash
# Learns Kuhn poker with a handicap under several baselines: 20 to 40 seconds for each of 120 runs on one core, without a GPU, and
# some minutes for each of three tiny models that are made first. Stopped and started again, it goes on with the runs that are not
# finished. It writes docs/experiments/handicap.json and the pages. Further arguments are overrides; with them the result goes to
# outputs/experiments/handicap/docs, or to output=FOLDER.
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source run_scripts/limit.sh 21600
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
# One thread: the model is so small that several threads only wait for each other.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec timeout --foreground --verbose --kill-after=60 "$limit" \
    python -m experiments.handicap "$@"
