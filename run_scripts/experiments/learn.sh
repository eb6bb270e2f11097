#!/usr/bin/env bash
# Runs an experiment on learning: trains, measures every checkpoint, and writes docs/experiments/<name>.json and the pages;
# with overrides it writes to outputs/experiments/<name>/docs. While it runs it prints a line "step n/N" for each run. Stopped
# and started again, it goes on where it was; an unfinished run of the quick loop begins anew. docs/experiments/README.md has
# the minutes of each experiment. On two cores without a GPU, a step of 128 games takes five to twenty seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

configs=experiments/config
names=$(cd "$configs" && grep -l '^  - learning$' -- *.yaml | sed 's/\.yaml$//' | paste -sd ' ')
usage() {
    echo "usage: run_scripts/experiments/learn.sh NAME [OVERRIDE ...]    for example: learn.sh kuhn steps=200 'seeds=[1,2]'"
    echo "names: $names"
    echo "The result goes to docs/experiments; with overrides to outputs/experiments/NAME/docs, or where output=FOLDER says."
}
case ${1:-} in
    -h | --help) usage && exit 0 ;;
    "" | -*) usage >&2 && exit 2 ;;
esac
name=$1 && shift
[[ " $names " == *" $name "* ]] || { usage >&2 && exit 2; }

source run_scripts/limit.sh 86400
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
exec timeout --foreground --verbose --kill-after=60 "$limit" \
    python -m experiments.learning --config-name "$name" "$@"
