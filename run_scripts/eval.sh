#!/usr/bin/env bash
# Evaluates policies at games: by default the tiny model against random and perfect play, a minute on a CPU. Arguments are overrides.
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    cat <<'HELP'
usage: run_scripts/eval.sh [OVERRIDE ...]

Makes .venv if needed (run_scripts/setup.sh), then runs
  python -m recipe.spiral.main_eval OVERRIDE ...
from the project's root. OVERRIDE is Hydra's: key=value; the keys are in recipe/spiral/config/eval.yaml.

  run_scripts/eval.sh 'policies=[outputs/spiral/quickstart]' match_ups=[round_robin]

SPIRAL_TIME_LIMIT   seconds after which it is stopped, 7200 unless set; 0 for no limit. The same command goes on.
HELP
    exit 0
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
source run_scripts/limit.sh 7200
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
exec timeout --foreground --verbose --kill-after=60 "$limit" python -m recipe.spiral.main_eval "$@"
