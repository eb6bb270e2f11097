#!/usr/bin/env bash
# Some steps of SmolLM2-135M-Instruct, a real pretrained model, on a CPU: minutes a step. Further arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
limit=${SPIRAL_TIME_LIMIT:-$(sed -n 's/^SPIRAL_TIME_LIMIT=//p' .env 2>/dev/null || true)}
exec timeout --foreground --verbose --kill-after=60 "${limit:-7200}" \
    python -m recipe.spiral.main_spiral +experiment=smollm2_cpu "$@"
