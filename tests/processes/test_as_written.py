"""A value of the environment is in no file of a run, whatever its variable is called."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from recipe.spiral.processes.as_written import as_written, refuse_environment

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
    assert as_written(setup) == {**settings, "plain": 3}


@pytest.mark.parametrize("key", ["${oc.env:GH_PAT}", "${mine}", {"a": ["Bearer ${oc.env:GH_PAT}"]}])
def test_an_endpoint_is_given_the_name_of_a_variable_alone(key: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_PAT", "hunter2")
    for kind, refused in ((API, True), ("model", False)):
        entries = [{"kind": kind, "api_key_env": "GH_PAT", "extra_body": key}, "random"]
        setup = OmegaConf.create({"mine": "${oc.env:GH_PAT}", "opponents": entries})
        try:
            refuse_environment(setup.opponents, "opponents", API)
            assert not refused
        except ValueError as error:
            assert (
                refused and "extra_body" in str(error) and "api_key_env" in str(error) and "hunter2" not in str(error)
            )
