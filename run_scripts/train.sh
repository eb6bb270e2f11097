#!/usr/bin/env bash
# Trains with a preset on GPUs, or shows what that would be: run_scripts/train.sh paper --dry-run
set -euo pipefail

usage() {
    cat <<'HELP'
usage: run_scripts/train.sh PRESET [--dry-run] [OVERRIDE ...]

Makes .venv for GPUs if needed (run_scripts/setup.sh --gpu), then runs
  python -m recipe.spiral.main_spiral +experiment=PRESET OVERRIDE ...
from the project's root. The same command goes on from the last checkpoint. PRESET is any preset. These are
for GPUs, and were not run by us:
  qwen3_4b                the paper's hyperparameters on two games, Qwen3-4B-Base, eight GPUs
  paper                   the paper's run on three games; paper_lora, paper_pool, paper_async: its other ways
  spin                    online DPO of Qwen2.5-3B-Instruct on GSM8K, four GPUs (data.train_files, data.val_files)

--dry-run   start nothing: print the settings that differ from the defaults, the memory that the run needs, and what it would
            download. It needs no GPU; an environment for a CPU will do.
HELP
}
case ${1:-} in
    -h | --help) usage && exit 0 ;;
    "" | -*) usage >&2 && exit 2 ;;
esac
preset=$1 kind=--gpu overrides=()
shift
for argument in "$@"; do
    case $argument in
        -h | --help) usage && exit 0 ;;
        --dry-run) kind= overrides+=(dry_run=true) ;;
        *) overrides+=("$argument") ;;
    esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Where a driver is, an environment for a CPU would soon have to be made anew.
[[ -e .venv ]] || ! command -v nvidia-smi >/dev/null || kind=--gpu
run_scripts/setup.sh ${kind:+"$kind"}
export PATH="$PWD/.venv/bin:$PATH"
exec python -m recipe.spiral.main_spiral +experiment="$preset" ${overrides[@]+"${overrides[@]}"}
