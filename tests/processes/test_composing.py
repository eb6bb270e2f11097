"""Which hardware a run is for, where nobody says it; and that a value of the environment is in no file of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes.composing import as_written, detect_hardware, refuse_environment


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an NVIDIA driver."""
    monkeypatch.delenv("SPIRAL_HARDWARE", raising=False)
    command = tmp_path / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))


def made_for(kind: str) -> None:
    """The mark of ``run_scripts/setup.sh``."""
    marks = Path(sys.prefix, ".spiral")
    marks.mkdir(parents=True)
    (marks / "kind").write_text(f"{kind}\n")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_an_environment_of_ours_says_what_it_is_for(driver: None, kind: str) -> None:
    made_for(kind)
    assert detect_hardware() == kind


def test_the_user_says_it_first(driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made_for("cpu")
    monkeypatch.setenv("SPIRAL_HARDWARE", "gpu")
    assert detect_hardware() == "gpu"


API = "api"


def test_a_value_of_the_environment_stays_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", "hunter2")
    settings = {
        "a": {"user": "me ${oc.env:GH_PAT}", "same": "${a.user}", "rows": [1, {"x": "${oc.env:GH_PAT,none}"}]},
        "whole": "${a}",
        "plain": "${seed}",
        "seed": 3,
        "nothing": None,
    }
    setup = OmegaConf.create(settings)
    assert setup.a.same == "me hunter2"
    rows, user = [1, {"x": "${oc.env:GH_PAT,none}"}], "me ${oc.env:GH_PAT}"
    inner = {"user": user, "same": user, "rows": rows}
    assert as_written(setup) == {"a": inner, "whole": inner, "plain": 3, "seed": 3, "nothing": None}
    assert setup.a.same == "me hunter2"


@pytest.mark.parametrize("key", ["${oc.env:GH_PAT}", "${mine}", {"a": ["Bearer ${oc.env:GH_PAT}"]}])
def test_an_endpoint_is_given_the_name_of_a_variable_alone(key: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", "hunter2")
    for kind, refused in ((API, True), ("model", False)):
        entries = [{"kind": kind, "api_key_env": "GH_PAT", "extra_body": key}, "random"]
        setup = OmegaConf.create({"mine": "${oc.env:GH_PAT}", "opponents": entries})
        try:
            refuse_environment(setup, "opponents", API)
            assert not refused
        except ValueError as error:
            assert refused and "opponents" in str(error) and "hunter2" not in str(error)
