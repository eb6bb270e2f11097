#!/usr/bin/env bash
# Evaluates policies at games: by default the tiny model against random and perfect play, a minute on a CPU. Makes .venv if
# needed. Arguments are Hydra's overrides: run_scripts/eval.sh 'policies=[outputs/spiral/quickstart]'
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
exec python -m recipe.spiral.main_eval "$@"
