#!/usr/bin/env bash
# How far from an equilibrium self-play gets at one-round Kuhn poker: about half an hour on two cores, without a GPU.
# Stopped, it goes on where it was. Writes docs/experiments/kuhn.json and the pages. Further arguments are overrides, as
# steps=1000 or seeds=[0,1,2].
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
exec timeout --foreground --verbose --kill-after=60 "${SPIRAL_TIME_LIMIT:-43200}" \
    python -m recipe.spiral.experiments.learning --config-name kuhn "$@"
