#!/usr/bin/env bash
# Which of the things that the recipe relies on moved in another verl.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: run_scripts/try_verl.sh PATH [PYTEST ARGUMENT ...]

Runs the contract tests (docs/architecture.md) on a source tree of verl, and prints what moved there: names that are gone, and each
contract that no longer holds. All else is .venv's. The exit status is pytest's: 1 where something moved.
  PATH   a checkout of verl: the folder that has the package `verl` in it
HELP
}
case ${1:-} in
    -h | --help) usage && exit 0 ;;
    "") usage >&2 && exit 2 ;;
esac

tree=$(cd "$1" 2>/dev/null && pwd) || tree=$1
shift
if [[ ! -f $tree/verl/__init__.py ]]; then
    echo "try_verl.sh: $tree: no package verl is there" >&2
    exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh
version=$(cat "$tree/verl/version/version" 2>/dev/null || echo unknown)
echo "trying verl $version"
# The tree comes before the installed verl. Its version is not the one that a contract test wants, which is no news.
PYTHONPATH="$tree:$PWD:$PWD/tests" exec .venv/bin/python -m pytest -q --tb=no -r N -W ignore -p moved \
    tests/verl/test_contract.py tests/verl/test_contract_engine.py -k "not test_the_version_is_the_one_that_was_read" "$@"
