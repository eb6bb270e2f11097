#!/usr/bin/env bash
# The eight reasoning benchmarks before and after a run.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: run_scripts/paper_benchmarks.sh [--dry-run] [RUN_DIR [OVERRIDE ...]]

Asks the base model zero-shot and after two examples (the paper's base figures are few-shot), and, if RUN_DIR has checkpoints,
its last one. Called before and after the training with the same RUN_DIR (outputs/spiral/paper), it only asks what is missing:
the results are in RUN_DIR-benchmarks. benchmarks.path=FOLDER takes the questions from a folder instead of the hub.
+engine.vllm.data_parallel_size=8 asks on eight GPUs; otherwise it is one.
BASE names another base model. --dry-run prints the config.
HELP
}
dry=()
case ${1:-} in
    -h | --help) usage && exit 0 ;;
    --dry-run) dry=(--cfg job --resolve) && shift ;;
    -*) usage >&2 && exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_dir=${1:-outputs/spiral/paper}
run_dir=${run_dir%/}
if (($#)) && [[ ! -d $run_dir ]]; then
    echo "paper_benchmarks.sh: $run_dir: there is no such folder; before the training, make it (mkdir -p) or leave it out" >&2
    exit 2
fi
(($# == 0)) || shift
base=${BASE:-Qwen/Qwen3-4B-Base}
policies="{path: $base, name: base, template: qwen3}, {path: $base, name: base few-shot, template: chat_examples}"
tracker=$run_dir/checkpoints/latest_checkpointed_iteration.txt
[[ ! -s $tracker ]] || policies+=", {path: $run_dir, name: trained, step: $(<"$tracker")}"

# Before the training there may be no environment yet; then it is made for GPUs, as for the training. One that is there stays.
kind=
[[ -e .venv || ${#dry[@]} != 0 ]] || kind=--gpu
run_scripts/setup.sh ${kind:+"$kind"}
export PATH="$PWD/.venv/bin:$PATH"
exec python -m recipe.spiral.main_eval ${dry[@]+"${dry[@]}"} eval_dir="$run_dir-benchmarks" "policies=[$policies]" \
    games=[] opponents=[] match_ups=[] exploitability.games=[] optimality.games=[] \
    'benchmarks.names=[math500,aime24,aime25,olympiadbench,amc23,minerva,gpqa,mmlu_pro]' "$@"
