"""The settings of a player behind an endpoint: what is refused, and that it is said before anything is asked."""

from __future__ import annotations

import builtins
import json

import pytest

from recipe.spiral.lab.opponents.api.endpoint_player import ApiPlayer
from recipe.spiral.lab.opponents.api.endpoint_settings import ApiSettings
from recipe.spiral.players.player import PlayerMisconfigured


def test_a_key_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(PlayerMisconfigured, match="api_key_env=SOME_KEY"):
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))


def test_the_library_is_asked_for_by_the_extras_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'openai>=2"):
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model", " "),
        ("base_url", "api.openai.com/v1"),
        ("base_url", "http://me:password@host/v1"),
        ("base_url", "http://host/v1?key=1"),
        ("api_key_env", "sk-1234"),
        ("template", "octothinker"),
        ("template", "qwen3_general"),
        ("temperature", float("nan")),
        ("total_timeout", float("inf")),
        ("max_concurrency", 0),
        ("budget_usd", 1.0),  # without prices
        ("tempersture", 1),
    ],
)
def test_settings_say_what_is_wrong_with_them(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=setting) as info:
        ApiSettings.from_mapping({"model": "m", setting: value})
    shown = f"{info.value} {info.value.__cause__}"  # a traceback has both
    assert "password@" not in shown and "sk-1234" not in shown


def test_settings_of_a_config_become_json() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"model": "m", "extra_body": {"stop": ["a"], "x": {"y": 1}}, "timeout": 3})
    settings = ApiSettings.from_mapping(config)
    assert json.loads(json.dumps(settings.extra_body)) == {"stop": ["a"], "x": {"y": 1}}
    assert settings.timeout == 3
    assert isinstance(settings.extra_body, builtins.dict)
