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
    with pytest.raises(PlayerMisconfigured, match=r"variable SOME_KEY \(api_key_env\) is not set"):
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))
    monkeypatch.setenv("SOME_KEY", "two words")
    with pytest.raises(PlayerMisconfigured, match="holds characters that no key has") as info:
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))
    assert "two words" not in str(info.value)
    monkeypatch.setenv("SOME_KEY", "k3y-012")
    with pytest.raises(PlayerMisconfigured, match=r"a key of less than 8 characters.*set api_key_env to null") as info:
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))
    assert "k3y-012" not in str(info.value)


def test_the_library_is_asked_for_by_the_extras_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'openai>=2"):
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("base_url", "api.openai.com/v1", "base_url: must be an http"),
        ("base_url", "http://me:password@host/v1", "without user name, password or query"),
        ("base_url", "http://host/v1?key=1", "without user name, password or query"),
        ("api_key_env", "sk-1234", "never the key itself"),
        ("template", "octothinker", "does not go with a chat endpoint; take one of chat, "),
        ("temperature", -1, "temperature=-1: must be greater than or equal to 0"),
        ("max_tokens", 0, "max_tokens=0: must be greater than or equal to 1"),
        ("timeout", None, "timeout=None: must be a valid number"),
        ("retries", -1, "retries=-1: must be greater than or equal to 0"),
        ("budget_tokens", -1, "budget_tokens=-1"),
        ("budget_usd", 1.0, "budget_usd=1.0: needs price_in and price_out"),
        ("tempersture", 1, "tempersture: there is no such setting; known: model, base_url, "),
    ],
)
def test_settings_say_what_is_wrong_with_them(setting: str, value: object, message: str) -> None:
    with pytest.raises(ValueError) as info:
        ApiSettings.from_mapping({"model": "m", setting: value})
    assert message in str(info.value)
    shown = f"{info.value} {info.value.__cause__}"  # a traceback has both
    assert "password@" not in shown and "sk-1234" not in shown


def test_settings_of_a_config_become_json() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    config = omegaconf.OmegaConf.create({"model": "m", "extra_body": {"stop": ["a"], "x": {"y": 1}}, "timeout": 3})
    settings = ApiSettings.from_mapping(config)
    assert json.loads(json.dumps(settings.extra_body)) == {"stop": ["a"], "x": {"y": 1}}
    assert settings.timeout == 3
    assert isinstance(settings.extra_body, builtins.dict)
