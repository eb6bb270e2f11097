#!/usr/bin/env bash
# From a fresh clone to a trained model in one command: makes .venv if needed, then trains by self-play with
# +experiment=quickstart. Arguments are Hydra's overrides: key=value.
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
exec python -m recipe.spiral.main_spiral +experiment=quickstart "$@"
