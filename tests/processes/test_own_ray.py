"""A Ray of the run's own listens on loopback, asks for a secret, and leaves no folder behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from recipe.spiral.processes import cluster
from recipe.spiral.processes.cluster import LOOPBACK, listen_on_loopback, remove_stale
from recipe.spiral.processes.launch import LOCK, only_one
from tests.made_configs import config

OWN = ["RAY_AUTH_TOKEN_PATH", "VLLM_API_KEY", "VLLM_RPC_BASE_PATH", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"]
MARK = cluster._MARK
VARIABLES = [*LOOPBACK, *OWN, "RAY_ADDRESS"]
LEAVES_A_FILE = "import tempfile; print(tempfile.mkstemp()[1])"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is set, and runs have their private folders in a place of this test's; what a test sets is undone."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    base = tmp_path / "t"
    base.mkdir()
    monkeypatch.setattr(cluster, "_temporary", lambda: base)
    return base


def test_ray_takes_the_loopback_address_for_the_nodes() -> None:
    code = "import ray.util; print(ray.util.get_node_ip_address())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **LOOPBACK})
    assert done.stdout.strip() == "127.0.0.1", done.stderr


def test_a_run_without_a_cluster_listens_on_loopback_and_the_users_word_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    listen_on_loopback(config(tmp_path))
    assert {name: os.environ.get(name) for name in LOOPBACK} == {**LOOPBACK, "GLOO_SOCKET_IFNAME": "eth0"}


def test_a_cluster_is_as_it_is(tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    setup = config(tmp_path)
    listen_on_loopback(setup)
    with cluster.own_ray(setup):
        assert not any(environment.iterdir())
        assert "_temp_dir" not in setup.ray_kwargs.ray_init
    assert not {*LOOPBACK, "RAY_AUTH_TOKEN_PATH", "VLLM_API_KEY"} & set(os.environ)


def test_rays_session_and_its_secret_are_in_a_private_folder_that_goes_with_the_run(
    tmp_path: Path, environment: Path
) -> None:
    tokens = []
    for _ in range(2):
        setup = config(tmp_path)
        with cluster.own_ray(setup):
            (folder,) = environment.iterdir()
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert folder.stat().st_mode & 0o777 == 0o700
            assert token.parent == folder and token.stat().st_mode & 0o777 == 0o600
            assert Path(setup.ray_kwargs.ray_init._temp_dir) == folder / "ray"
            assert len(os.environ["VLLM_API_KEY"]) >= 32
            assert Path(os.environ["VLLM_RPC_BASE_PATH"]) == folder
            tokens.append(token.read_text())
            left = subprocess.run([sys.executable, "-c", LEAVES_A_FILE], capture_output=True, text=True, check=True)
            assert Path(left.stdout.strip()).parent == folder
            assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent == Path(tempfile.gettempdir()), (
                "it outlives the run"
            )
        assert not any(environment.iterdir())
        assert not {*OWN} & set(os.environ)
    assert len(set(tokens)) == 2 and min(map(len, tokens)) >= 32


def test_rays_sockets_have_paths_that_the_system_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for told in ("/scratch/a/long/path/of/a/cluster/job", "/tmp"):
        monkeypatch.setenv("RAY_TMPDIR", told)
        folder = cluster._temporary() / "spiral-12345678" / "ray"
        assert len(f"{folder}/session_2026-11-23_04-28-02_651197_4194304/sockets/plasma_store") <= 107


def test_only_what_dead_runs_left_is_removed(environment: Path, tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    for name in ("spiral-dead", "spiral-killed", "spiral-no-lock", "spiral-young", "spiral-alive", "of-others"):
        (environment / name / "ray").mkdir(parents=True)
        (environment / name / MARK).touch()
        if name != "spiral-no-lock":
            (environment / name / LOCK).touch()
    (environment / "spiral-killed" / LOCK).write_text("1234")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / LOCK).touch()
    (environment / "spiral-link").symlink_to(tmp_path / "elsewhere")
    (environment / "spiral-test").mkdir()  # somebody's run
    (environment / "spiral-test" / LOCK).write_text("1234")
    code = (
        "import sys, time; from pathlib import Path; from recipe.spiral.processes.launch import only_one\n"
        "with only_one(Path(sys.argv[1])): print(1, flush=True); time.sleep(60)"
    )
    alive = subprocess.Popen([sys.executable, "-c", code, str(environment / "spiral-alive")], stdout=subprocess.PIPE)
    try:
        assert alive.stdout is not None and alive.stdout.readline()
        for folder in environment.iterdir():
            if folder.name not in ("spiral-young", "spiral-killed"):
                os.utime(folder, (long_ago, long_ago), follow_symlinks=False)
        remove_stale(environment)
        left = {folder.name for folder in environment.iterdir()}
        assert left == {"spiral-no-lock", "spiral-young", "spiral-alive", "spiral-link", "spiral-test", "of-others"}
        assert (tmp_path / "elsewhere" / LOCK).exists()
    finally:
        alive.kill()
        alive.wait()
    remove_stale(environment)
    assert not (environment / "spiral-alive").exists()


def test_another_users_folder_is_left_alone(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = environment / "spiral-theirs"
    folder.mkdir()
    (folder / MARK).touch()
    with only_one(folder):
        pass
    os.utime(folder, (0, 0))
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    remove_stale(environment)
    assert folder.exists()


@pytest.mark.parametrize("length", [1, 60])
def test_what_is_left_in_the_users_own_temporary_folder_goes_too(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Where that has a long path, Ray's sockets are elsewhere, and all else stays there."""
    usual = (
        Path(tempfile.mkdtemp(dir="/tmp", prefix="u" * length)) if length > 20 else Path(tempfile.mkdtemp(dir="/tmp"))
    )
    try:
        monkeypatch.setenv("TMPDIR", str(usual))
        monkeypatch.setattr(tempfile, "tempdir", None)
        with cluster.own_ray(config(tmp_path)):
            left = subprocess.run([sys.executable, "-c", LEAVES_A_FILE], capture_output=True, text=True, check=True)
            place = Path(left.stdout.strip()).parent
            assert place.parent == (usual if length > 20 else environment)
        assert os.environ["TMPDIR"] == str(usual) and not any(usual.iterdir()) and not place.exists()
    finally:
        usual.rmdir()
