#!/usr/bin/env bash
# A tiny model learns TicTacToe and Kuhn poker by self-play, on a CPU: about ten minutes on two cores.
# Run it from the root of a verl checkout that has recipe/spiral. Arguments are overrides: seed=1, run_dir=outputs/mine, ...
set -euo pipefail

# hardware=cpu, also where a GPU is found: this is the same run on every machine.
exec python -m recipe.spiral.main_spiral +experiment=quickstart hardware=cpu "$@"
