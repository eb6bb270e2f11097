#!/usr/bin/env bash
# SPIN's online DPO: Qwen2.5-3B-Instruct on GSM8K, on one machine with four GPUs. Not run yet.
# GSM8K must be in ~/data/gsm8k as verl's examples/data_preprocess/gsm8k.py writes it, or elsewhere: data.train_files=...
# data.val_files=... Arguments: [--dry-run] [OVERRIDE ...]
exec "$(dirname "${BASH_SOURCE[0]}")/train.sh" spin "$@"
