#!/usr/bin/env bash
# SPIRAL's run on three games with half of the games against a pool of 25 past selves, on one machine with eight GPUs.
# Arguments: [--dry-run] [OVERRIDE ...].
exec "$(dirname "${BASH_SOURCE[0]}")/../train.sh" paper_pool "$@"
