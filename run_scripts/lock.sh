#!/usr/bin/env bash
# Renews the lock files of requirements/ from the extras of pyproject.toml, with uv's resolver. It installs nothing, and takes
# a minute. Run the full tests before committing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    cat <<'HELP'
usage: run_scripts/lock.sh [--upgrade | --upgrade-package NAME ...]

Writes every package with its version and the hashes of its files, for Linux on x86_64, into requirements/:
  cpu.lock            the environment of `setup.sh --cpu`, Python 3.11
  torch-cuda.lock     what PyPI's build of its torch loads besides, also where there is no GPU
  gpu.lock            the environment of `setup.sh --gpu`, Python 3.11 and 3.12
  gpu-versions.lock   what `setup.sh --gpu-versions` takes in place of lines of gpu.lock
and into recipe/spiral/extras/cpu.txt those of cpu.lock that a fork of verl needs.
Packages keep their versions unless pyproject.toml says otherwise, or --upgrade (all) or --upgrade-package (one) is given.
After an upgrade of torch, first write the hash of its CPU build into requirements/torch-cpu.txt.

PYTHON   the Python to run the resolver with, 3.11 or newer; python3.11 unless set
HELP
}
case ${1:-} in
    -h | --help) usage && exit 0 ;;
    "" | --upgrade | --upgrade-package) ;;
    *) usage >&2 && exit 2 ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3.11}" -m venv "$scratch"
"$scratch/bin/python" -m pip install -qq --disable-pip-version-check uv==0.13.9
PATH="$scratch/bin:$PATH" "$scratch/bin/python" requirements/lock.py "$@"
