#!/usr/bin/env bash
# SPIRAL's run on three games with Llama-3.1-8B-Instruct, on one machine with eight GPUs. Accept its terms on the hub first.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_llama_8b "$@"
