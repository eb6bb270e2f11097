# A part of setup.sh for GPUs: what it looks at before the first download, and flash-attn, which comes last and may fail.

problems=()
problem() { problems+=("$*"); }

# A driver that is too old may do with NVIDIA's package cuda-compat, on the cards of data centres: hence --unchecked.
check_gpu_machine() {
    local python driver
    python=$(find_python)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | grep -m 1 -oE '^[0-9]+' || true)
    if [[ -z $driver ]]; then
        problem "nvidia-smi names no card: install NVIDIA's driver 580 or later, or take --cpu."
    elif ((driver < 580)); then
        problem "the NVIDIA driver is $driver, and CUDA 13 wants 580 or later: update it."
    fi
    if ! command -v "${CC:-gcc}" >/dev/null && ! command -v clang >/dev/null; then
        problem "no C compiler, with which Triton builds its kernels' launchers. Install one (Debian, Ubuntu: apt-get install gcc)."
    fi
    if [[ ! -f $("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]]; then
        problem "no Python.h for $("$python" -V), which Triton compiles with. Install it (Debian, Ubuntu: apt-get install" \
            "$("$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])'))."
    fi
    ((${#problems[@]})) || return 0
    printf 'setup: %s\n' "${problems[@]}" "nothing was downloaded; --unchecked goes on all the same." >&2
    exit 3
}

flash_attn=flash-attn==2.8.3
wheelhouse=https://verl-project.github.io/verl-wheelhouse/simple/

# Without flash-attn only critics are refused (docs/architecture.md): a failure ends nothing. A source is tried once.
add_flash_attn() {
    local source=${FLASH_ATTN:-$wheelhouse} tried
    tried="$(<"$marks/packages") $source"
    if is_marked flash-attn begun; then # by a call that was killed: what it left may be half there, or not fit
        rm -rf "$venv"/lib/python*/site-packages/flash_attn*
    elif has_flash_attn || is_marked flash-attn "$tried"; then
        return
    fi
    say "installing $flash_attn from $source"
    echo begun >"$marks/flash-attn"
    if wheel_of_flash_attn "$source"; then
        rm "$marks/flash-attn"
        say "flash-attn is installed"
        return
    fi
    echo "$tried" >"$marks/flash-attn"
    say "going on without flash-attn: attention is torch's own, and critics are refused. To add it:" \
        "FLASH_ATTN=<a wheel for torch 2.11 and CUDA 13> run_scripts/setup.sh --gpu"
}

has_flash_attn() { "$venv/bin/python" -c 'import importlib.util as i, sys; sys.exit(i.find_spec("flash_attn") is None)'; }

wheel_of_flash_attn() { # SOURCE
    local from=("$flash_attn")
    case $1 in
        *.whl) from=("$1") ;;
        *://*) from+=(--index-url "$1") ;;
        *) from+=(--no-index --find-links "$1") ;;
    esac
    if ! pip install -qq --no-deps --only-binary :all: "${from[@]}" 2>"$marks/flash-attn.log"; then
        say "no wheel there: $(grep -m 1 ERROR "$marks/flash-attn.log" || tail -n 1 "$marks/flash-attn.log")"
        return 1
    fi
    # A wheel does not say which torch it was built for: only an import shows that it fits.
    "$venv/bin/python" -c 'import flash_attn' 2>"$marks/flash-attn.log" && return
    say "the wheel does not fit: $(tail -n 1 "$marks/flash-attn.log")"
    pip uninstall -qq --yes flash-attn
    return 1
}
