#!/usr/bin/env bash
# Trains one-round Kuhn poker in each of verl's trainer modes, one after the other: about seven minutes in all on two cores,
# without a GPU. Nothing else should run meanwhile. Stopped and started again, it goes on with the modes that are not finished.
# It writes docs/experiments/modes.json and the pages. Further arguments are overrides; with them the result goes to
# outputs/experiments/modes/docs, or to output=FOLDER.
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source run_scripts/limit.sh 7200
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
exec timeout --foreground --verbose --kill-after=60 "$limit" \
    python -m experiments.modes "$@"
