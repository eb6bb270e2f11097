#!/usr/bin/env bash
# From a fresh clone to a trained model in one command: sets up, then trains by self-play with +experiment=quickstart.
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    cat <<'HELP'
usage: run_scripts/quickstart.sh [OVERRIDE ...]

Makes .venv if needed (run_scripts/setup.sh), then runs
  python -m recipe.spiral.main_spiral +experiment=quickstart OVERRIDE ...
from the project's root. OVERRIDE is Hydra's: key=value.

SPIRAL_TIME_LIMIT   seconds after which the run is stopped, 3600 unless set; 0 for no limit
HELP
    exit 0
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source run_scripts/limit.sh 3600
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"

# A worker's error can leave a trainer waiting for ever, so every run has an end. --foreground: Ctrl-C reaches the run itself,
# also from a script or a pipe. After the limit it gets SIGTERM, and SIGKILL when it has had its time to save.
exec timeout --foreground --verbose --kill-after=$((${SPIRAL_SAVE_LIMIT:-120} + 30)) "$limit" \
    python -m recipe.spiral.main_spiral +experiment=quickstart "$@"
