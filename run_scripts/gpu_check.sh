#!/usr/bin/env bash
# Tries this project on this machine's GPUs, in stages of some minutes, and writes a report that can be sent to others.
# gpu_check.sh --help lists the options; what they do is in benchmarks/gpu_check.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=gpu words=" $* "
[[ $words == *" --device cpu "* || $words == *" --device=cpu "* ]] && kind=cpu
# Help needs nothing installed.
if [[ $words == *" -h "* || $words == *" --help "* ]]; then
    exec "${PYTHON:-python3}" -m benchmarks.gpu_check "$@"
fi
# Not an environment for GPUs, which took long, in place of one for a CPU, or the other way round.
made=$(cat .venv/.spiral/kind 2>/dev/null || echo "$kind")
if [[ $made != "$kind" ]]; then
    echo "gpu_check: .venv is for --$made: use another checkout, or make it anew by run_scripts/setup.sh --$kind" >&2
    exit 2
fi
# Once .venv is there and up to date, this asks for nothing over the network.
run_scripts/setup.sh "--$kind"
export PATH="$PWD/.venv/bin:$PATH"
exec python -m benchmarks.gpu_check "$@"
