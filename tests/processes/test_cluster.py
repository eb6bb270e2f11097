"""A run joins the Ray cluster that it is told of. Otherwise it has a Ray of its own, whatever else is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes.cluster import choose_ray, cluster_address
from tests.made_configs import config


@pytest.mark.parametrize("told", [None, "", "local"])
def test_a_run_that_is_told_of_no_cluster_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None
) -> None:
    if told is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", told)
    setup = config(tmp_path, "trainer.n_gpus_per_node=2")
    choose_ray(setup)
    init = setup.ray_kwargs.ray_init
    assert cluster_address(setup) is None
    assert (init.address, init.num_cpus, init.num_gpus, init.object_store_memory) == ("local", 32, 2, 500_000_000)


def test_a_cluster_keeps_its_own_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    setup = config(tmp_path)
    choose_ray(setup)
    init = setup.ray_kwargs.ray_init
    assert init.address == cluster_address(setup) == "10.0.0.1:6379"
    assert not {"num_cpus", "num_gpus", "object_store_memory"} & set(init)
    assert init.include_dashboard is False


def test_the_config_names_a_cluster_before_the_environment_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    setup = config(tmp_path)
    for told, address in (("10.0.0.2:6379", "10.0.0.2:6379"), ("local", None)):
        OmegaConf.update(setup, "ray_kwargs.ray_init.address", told, force_add=True)
        assert cluster_address(setup) == address


def test_ray_itself_joins_what_ray_start_has_noted_unless_it_is_told_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = pytest.importorskip("ray._private.services")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray_current_cluster").write_text("127.0.0.1:1")
    assert services.canonicalize_bootstrap_address(None, str(tmp_path)) is not None
    assert services.canonicalize_bootstrap_address("local", str(tmp_path)) is None
