# A part of setup.sh for GPUs: what it looks at before the first download, and flash-attn, which comes last and may fail.

# A driver that is too old may do with NVIDIA's package cuda-compat, on the cards of data centres: hence --unchecked.
check_gpu_machine() {
    local python
    python=$(find_python)
    check_driver
    if ! command -v "${CC:-gcc}" >/dev/null && ! command -v clang >/dev/null; then
        problem "no C compiler, with which Triton builds its kernels' launchers. Install one (Debian, Ubuntu: apt-get install gcc)."
    fi
    if [[ ! -f $("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]]; then
        problem "no Python.h for $("$python" -V), which Triton compiles with. Install it (Debian, Ubuntu: apt-get install" \
            "$("$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])'))."
    fi
}

# The cards that CUDA may use, for nvidia-smi, which looks at all; it does not take the id of a slice (MIG).
find_cards() {
    cards=()
    [[ -z ${CUDA_VISIBLE_DEVICES:-} || $CUDA_VISIBLE_DEVICES == *MIG-* ]] || cards=(--id="$CUDA_VISIBLE_DEVICES")
}

# nvidia-smi's messages come among the cards or in their place, and its status says little: 0 without a card, 14 with a warning.
# So a line is a card if it reads like one.
check_driver() {
    local line driver capability name seen='' mend="Mend the driver (often a restart does), or take --cpu."
    find_cards
    if ! command -v nvidia-smi >/dev/null; then
        problem "no NVIDIA driver: nvidia-smi is not on the path. Install driver 580 or later, or take --cpu."
        return
    fi
    while read -r line; do
        [[ -n $line && $line != WARNING:* ]] || continue
        seen=yes
        IFS=', ' read -r driver capability name <<<"$line"
        if [[ $driver =~ ^[0-9]+\. && $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
            say "card: $name, compute capability $capability, driver $driver"
            ((${driver%%.*} >= 580)) || problem "the NVIDIA driver is $driver, and CUDA 13 wants 580 or later: update it."
            ((${capability%%.*} >= 8)) ||
                problem "the card $name has compute capability $capability, and bfloat16 wants 8.0 or more: take another card," \
                    "or name the others in CUDA_VISIBLE_DEVICES."
        elif [[ $line == *"not a valid field"* ]]; then
            problem "the NVIDIA driver is too old to tell a compute capability, and CUDA 13 wants 580 or later: update it."
        else
            problem "nvidia-smi says \"$line\" where a card's driver and compute capability should be. $mend"
        fi
    done < <(nvidia-smi --query-gpu=driver_version,compute_cap,name --format=csv,noheader ${cards[@]+"${cards[@]}"})
    [[ -n $seen ]] || problem "nvidia-smi names no card. $mend"
}

flash_attn=flash-attn==2.8.3
wheelhouse=https://verl-project.github.io/verl-wheelhouse/simple/

# Without flash-attn only critics are refused (docs/verl.md#without-flash-attn): a failure ends nothing. Tried once, and again
# when asked in another way.
add_flash_attn() {
    local source=${FLASH_ATTN:-$wheelhouse} tried
    tried="$(<"$marks/packages") $source"
    if is_marked flash-attn begun; then # by a call that was killed: what it left may be half there, or not fit
        rm -rf "$venv"/lib/python*/site-packages/flash_attn*
    elif has_flash_attn || { [[ -z $build ]] && is_marked flash-attn "$tried"; }; then
        return
    fi
    say "installing $flash_attn from $source"
    echo begun >"$marks/flash-attn"
    if wheel_of_flash_attn "$source" || { [[ -n $build ]] && build_flash_attn; }; then
        rm "$marks/flash-attn"
        say "flash-attn is installed"
        return
    fi
    echo "$tried" >"$marks/flash-attn"
    say "going on without flash-attn: attention is torch's own, and critics are refused (docs/verl.md). To add" \
        "it: FLASH_ATTN=<a wheel for torch 2.11 and CUDA 13> run_scripts/setup.sh --gpu, or with --build-flash-attn"
}

has_flash_attn() { "$venv/bin/python" -c 'import importlib.util as i, sys; sys.exit(i.find_spec("flash_attn") is None)'; }

# A wheel does not say which torch it was built for: only an import shows that it fits.
fits() {
    "$venv/bin/python" -c 'import flash_attn' 2>"$marks/flash-attn.log" && return
    say "the wheel does not fit: $(tail -n 1 "$marks/flash-attn.log")"
    pip uninstall -qq --yes flash-attn
    return 1
}

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
    fits
}

# For these cards alone, with as many compilers as there is memory for (8 GiB each).
build_flash_attn() {
    local nvcc capabilities jobs
    nvcc=$(find_nvcc) || return 1
    find_cards
    capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader ${cards[@]+"${cards[@]}"} |
        sed -nE 's/^([0-9]+)[.][0-9]+$/\10/p' | sort -un | paste -sd ';')
    if [[ -z $capabilities ]]; then
        say "no card tells its compute capability, for which flash-attn is compiled"
        return 1
    fi
    jobs=$(awk -v cores="$(nproc)" '/MemAvailable/ { n = int($2 / 8388608); print (n < 1) ? 1 : (n > cores) ? cores : n }' /proc/meminfo)
    say "compiling flash-attn for compute capability $capabilities with $nvcc, $jobs files at a time; takes hours." \
        "The log is $marks/flash-attn.log"
    CUDA_HOME=${nvcc%/bin/nvcc} MAX_JOBS=$jobs FLASH_ATTN_CUDA_ARCHS=$capabilities FLASH_ATTENTION_FORCE_BUILD=TRUE \
        pip install --no-deps --no-build-isolation --no-binary :all: -v "$flash_attn" >"$marks/flash-attn.log" 2>&1 && fits && return
    say "it did not compile: $(grep -m 1 -E 'error:|Error' "$marks/flash-attn.log" || tail -n 1 "$marks/flash-attn.log")"
    return 1
}

find_nvcc() {
    local nvcc found=("$(command -v nvcc || true)" /usr/local/cuda-13*/bin/nvcc /usr/local/cuda/bin/nvcc)
    [[ -z ${CUDA_HOME:-} ]] || found=("$CUDA_HOME/bin/nvcc")
    for nvcc in "${found[@]}"; do
        if [[ -x $nvcc ]] && [[ $("$nvcc" --version) == *"release 13"* ]]; then
            echo "$nvcc"
            return
        fi
    done
    say "no nvcc of CUDA 13, which compiles flash-attn: install NVIDIA's toolkit, or set CUDA_HOME to it" >&2
    return 1
}
