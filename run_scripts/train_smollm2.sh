#!/usr/bin/env bash
# Trains SmolLM2-135M-Instruct, a real pretrained model, at one-round Kuhn poker: on a GPU where .venv is for one, or none
# is made yet and there is a card; otherwise on a CPU. Further arguments are overrides.
set -euo pipefail
[[ ${1:-} == -h || ${1:-} == --help ]] && exec sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=
[[ -e .venv ]] || ! nvidia-smi -L &>/dev/null || kind=--gpu
run_scripts/setup.sh ${kind:+"$kind"}
export PATH="$PWD/.venv/bin:$PATH"
made=$(cat .venv/.spiral/kind 2>/dev/null || echo cpu)
if [[ $made == gpu ]]; then
    echo "smollm2_gpu: all weights, 100 steps of 256 games; ten to twenty minutes on an H100 (an estimate)" >&2
else
    echo "smollm2_cpu: LoRA, 20 steps of about 30 turns; on two cores about half an hour (an estimate)" >&2
fi
python -m recipe.spiral.models smollm2
exec python -m recipe.spiral.main_spiral +experiment="smollm2_$made" "$@"
