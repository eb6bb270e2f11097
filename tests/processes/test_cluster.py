"""A run joins the Ray cluster that it is told of. Otherwise it has a Ray of its own, on loopback and in a folder that
goes with the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes import cluster
from recipe.spiral.processes.cluster import LOOPBACK, MARK, chosen_ray, cluster_address, listen_on_loopback
from tests.made_configs import config

OWN = ["RAY_AUTH_TOKEN_PATH", "VLLM_RPC_BASE_PATH"]
USUAL = ["TMPDIR", "TORCHINDUCTOR_CACHE_DIR"]


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is set, and runs have their private folders here."""
    for name in (*LOOPBACK, *OWN, *USUAL, "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(cluster, "_LONGEST", 1000)
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "t"))
    return tmp_path / "t"


def test_a_cluster_is_as_it_is(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    setup = config(tmp_path)
    listen_on_loopback(setup)
    with chosen_ray(setup) as session:
        assert session is None and not any(base.iterdir())
    init = setup.ray_kwargs.ray_init
    assert init.address == "10.0.0.1:6379" and not {"num_cpus", "num_gpus", "object_store_memory", "_temp_dir"} & {
        *init
    }
    assert not {*LOOPBACK, *OWN} & {*os.environ}
    OmegaConf.update(setup, "ray_kwargs.ray_init.address", "local", force_add=True)
    assert cluster_address(setup) is None


def test_a_ray_of_its_own_listens_on_loopback_and_its_secret_goes_with_the_run(tmp_path: Path, base: Path) -> None:
    tokens = []
    for _ in range(2):
        setup = config(tmp_path)
        with chosen_ray(setup) as session:
            (folder,) = base.iterdir()
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert folder.stat().st_mode & 0o777 == 0o700 and token.stat().st_mode & 0o777 == 0o600
            assert token.parent == folder == Path(os.environ["TMPDIR"]) and session == folder / "ray"
            assert setup.ray_kwargs.ray_init.address == "local"
            tokens.append(token.read_text())
        assert not any(base.iterdir())
    assert len({*tokens}) == 2 and min(map(len, tokens)) >= 32
    listen_on_loopback(setup)
    assert {name: os.environ[name] for name in LOOPBACK} == LOOPBACK


def test_a_start_removes_what_its_killed_run_left_and_nothing_else(tmp_path: Path, base: Path) -> None:
    setup = config(tmp_path)
    with chosen_ray(setup):
        (folder,) = base.iterdir()
    (base / "spiral-test").mkdir()  # somebody's run
    (folder / "ray").mkdir(parents=True)
    with pytest.raises(FileExistsError), chosen_ray(setup):  # without the mark it may be anybody's
        pytest.fail("it was removed")
    (folder / MARK).touch()
    with chosen_ray(setup):
        assert not (folder / "ray").exists()
    assert [left.name for left in base.iterdir()] == ["spiral-test"]
