#!/usr/bin/env bash
# Makes .venv in the project's root: the packages of a lock file, each checked against its hash, and this project, editable.
# An environment that is right is recognised by its stamps and left alone; one that was left unfinished is gone on with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    cat <<'HELP'
usage: run_scripts/setup.sh [--cpu | --gpu [--unchecked] | --gpu-versions]

Makes .venv, or does nothing when it is up to date. After a failure or a kill, the same command goes on.
  --cpu               requirements/cpu.lock, Python 3.11: 3.5 GB, or 7.2 GB with PyPI's build of torch. The default.
  --gpu               requirements/gpu.lock, Python 3.11 or 3.12: verl 0.9.1's own stack for CUDA 13. Looks first whether
                      this machine has a driver, a compiler and Python's headers (docs/gpu.md).
  --unchecked         with --gpu: goes on whatever this machine lacks, as where an image is made without a card
  --gpu-versions      .venv-gpu-versions: the versions of --gpu, built for a CPU, for `run_scripts/test.sh --full`
Without a flag an existing .venv keeps its kind. The exit status is 3 where the machine lacks something.

PYTHON       the Python to use; otherwise a python3.12 (--gpu) or python3.11 of the path that fits
FLASH_ATTN   where flash-attn's wheel is: the URL of a package index, a folder, or a .whl file; verl-project's index unless set
PIP_*        pip's own settings. PIP_EXTRA_INDEX_URL=<PyTorch's CPU index> gets the small CPU build of torch.
HELP
}

say() { echo "setup: $*"; }
die() {
    echo "setup: $*" >&2
    exit 1
}

kind='' unchecked=''
for arg in "$@"; do
    case $arg in
        --cpu | --gpu | --gpu-versions) kind=${arg#--} ;;
        --unchecked) unchecked=yes ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && exit 2 ;;
    esac
done
[[ -z $unchecked || $kind == gpu ]] || { usage >&2 && exit 2; }

# One set-up at a time. pip inherits the lock: one that outlives a killed set-up is waited for as well. It comes before all that
# is looked at, since the other set-up may be making a .venv of another kind.
# Where nothing can be written, nobody sets up: an environment that is up to date will do.
read_only=yes
if (exec 9>.setup.lock) 2>/dev/null; then
    read_only=
    exec 9>.setup.lock
    if ! flock -n 9; then
        say "waiting for another set-up to end"
        flock 9
    fi
fi

# .venv/.spiral marks an environment as made here. `kind` comes first, and says what it is for: a CPU or GPUs.
venv=$PWD/.venv
[[ $kind != gpu-versions ]] || venv=$PWD/.venv-gpu-versions
marks=$venv/.spiral
# Removed whenever it is seen: a name that nobody gives to what is to be kept, as .venv.old.
outdated=$venv.spiral-outdated
[[ -n $kind ]] || { [[ -f $marks/kind ]] && kind=$(<"$marks/kind"); } || kind=cpu
hardware=cpu versions="3.11 or 3.12" pythons=(python3.12 python3.11 python3 python)
case $kind in
    cpu) locks=(requirements/torch-cuda.lock requirements/cpu.lock) versions=3.11 pythons=(python3.11 python3 python) ;;
    gpu) locks=(requirements/gpu.lock) hardware=gpu ;;
    gpu-versions) locks=(requirements/gpu.lock requirements/gpu-versions.lock) ;;
esac

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} "${pythons[@]}"; do
        if "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] not in '$versions')" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    die "Python $versions not found. Install it (Debian, Ubuntu: ${pythons[0]} and ${pythons[0]}-venv), or set PYTHON to its path."
}

# What the packages are made from. The path is part of it: neither an editable install nor a script survives a move.
packages_stamp() { echo "$kind" "$venv" "$("$venv/bin/python" -VV 2>&1)" "$(cat "${locks[@]}" | sha256sum)"; }
project_stamp() { sha256sum <pyproject.toml; }
is_marked() { [[ -f $marks/$1 && $(<"$marks/$1") == "$2" ]]; }

# -qq: errors only. Warnings about unreachable extra indexes would come once a package.
pip() { "$venv/bin/python" -m pip --no-input --disable-pip-version-check "$@"; }
# No resolver and no build isolation: what gets installed depends on the lock alone. pip downloads all of a call before it
# installs anything, and skips what is there.
locked() {
    pip install -qq --require-hashes --no-deps --no-build-isolation -r "$1" ||
        die "unfinished: pip's message is above. What is installed stays; run the same command again to go on."
}
lines() { grep -hE "$1" "${@:2}"; }

make_venv() {
    local python package
    python=$(find_python)
    # A kill may have come while pip replaced itself.
    if [[ -x $venv/bin/python ]] && is_marked begun "$(packages_stamp)" && pip --version >/dev/null 2>&1; then
        say "going on with an unfinished environment"
        # pip writes INSTALLER last: a package without it is not whole, which pip would not see.
        for package in "$venv"/lib/python*/site-packages/*.dist-info; do
            [[ -e $package/INSTALLER ]] || rm -rf "$package"
        done
        return
    fi
    if [[ -e $venv ]]; then
        say "the environment is out of date or broken: making it anew"
        # Renamed first, so that a kill in between leaves nothing that looks like somebody else's .venv.
        mv "$venv" "$outdated"
        rm -rf "$outdated"
    fi
    say "creating ${venv##*/} with $("$python" -V)"
    mkdir -p "$marks"
    echo "$hardware" >"$marks/kind"
    "$python" -m venv --without-pip "$venv"
    # Debian's Python has no ensurepip without python3.11-venv, but pip can install itself into another environment.
    if ! "$venv/bin/python" -m ensurepip >/dev/null 2>&1; then
        # A file, since with --python pip starts itself anew, to which a pipe's descriptor does not go.
        wanted | lines '^pip==' >"$marks/pip.txt"
        "$python" -m pip --python "$venv/bin/python" --disable-pip-version-check install -qq --require-hashes --no-deps \
            -r "$marks/pip.txt" ||
            die "no pip for $python. Install it (Debian, Ubuntu: ${pythons[0]}-venv or python3-pip)."
    fi
    packages_stamp >"$marks/begun"
}

# Asked for by name: pip takes PyPI's build before one from a folder, of which no index tells the hash.
cpu_build() {
    pip install -qq --require-hashes --no-deps -r <(wanted | sed -nE 's/^(torch==[^ ]*)/\1+cpu/p') 2>/dev/null && return
    say "no CPU build of torch is at hand (PIP_EXTRA_INDEX_URL): taking PyPI's, which is 4 GB larger"
    return 1
}
is_cpu_build() { "$venv/bin/python" -c 'import importlib.metadata as m, sys; sys.exit("+cpu" not in m.version("torch"))'; }

# In the locks: what torch's build for CUDA loads, and all that an environment without GPUs has no use for.
libraries='^(nvidia-|cuda-|triton==)'
for_gpus="$libraries|^(torch|torch-c-dlpack-ext|torchvision|torchaudio|vllm|flashinfer-.*|quack-kernels|tilelang|tokenspeed-.*|humming-kernels)=="

wanted() {
    lines == "${locks[-1]}"
    [[ $kind != gpu-versions ]] || lines == requirements/gpu.lock | grep -vE "$for_gpus"
}

install_packages() {
    [[ $(uname -sm) == "Linux x86_64" ]] || die "the lock files are for Linux on x86_64, this is $(uname -sm)."
    locked <(wanted | lines '^(pip|setuptools)==')
    say "installing torch"
    if [[ $kind == gpu ]] || ! cpu_build; then
        locked <(wanted | lines '^torch==')
    fi
    if ! is_cpu_build; then # it does not load without its libraries, even where there is no GPU
        say "installing CUDA's libraries, which this build of torch loads"
        locked <(lines "$libraries" "${locks[@]}")
    fi
    say "installing $(wanted | wc -l) packages; takes a minute or two"
    locked <(wanted)
}

rm -rf "$outdated"
if [[ -e $venv && ! -e $marks/kind ]]; then
    die "${venv##*/} was not made by this script. Move it away and run this again."
fi

[[ $kind == gpu ]] && source run_scripts/setup_gpu.sh
SECONDS=0
if [[ $read_only ]] && ! { is_marked packages "$(packages_stamp)" && is_marked project "$(project_stamp)"; }; then
    die "$PWD cannot be written to, and its ${venv##*/} is missing or out of date."
fi
if ! is_marked packages "$(packages_stamp)"; then
    [[ $kind != gpu || $unchecked ]] || check_gpu_machine
    make_venv
    install_packages
    packages_stamp >"$marks/packages"
fi
if ! is_marked project "$(project_stamp)"; then
    say "installing this project"
    pip install -qq --no-deps --no-build-isolation -e . || die "this project could not be installed: pip's message is above."
    project_stamp >"$marks/project"
    say "done in $SECONDS s: ${venv##*/} ($kind)"
fi
[[ $kind != gpu ]] || add_flash_attn
