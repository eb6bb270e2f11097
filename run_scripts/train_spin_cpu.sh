#!/usr/bin/env bash
# SPIN's online DPO on sums of two digits with a tiny model, on a machine without a GPU: minutes. Makes .venv if needed, then
# the questions and the model in outputs/arithmetic. Arguments: [OVERRIDE ...], for example seed=1 run_dir=outputs/spin_1
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"
training=(+experiment=spin_arithmetic actor_rollout_ref.model.path=outputs/arithmetic/model
    data.train_files=outputs/arithmetic/train.jsonl data.val_files=outputs/arithmetic/test.jsonl "$@")
if [[ ! -e outputs/arithmetic/model/config.json ]]; then
    # What is wrong with the arguments is said before the model is made: as if it were the hub's, which is not asked.
    python -m experiments.arithmetic outputs/arithmetic --questions
    python -m recipe.spiral.main_spiral "${training[@]}" actor_rollout_ref.model.path=arithmetic/model dry_run=true >/dev/null
    python -m experiments.arithmetic outputs/arithmetic
fi
exec python -m recipe.spiral.main_spiral "${training[@]}"
