"""The settings of a player behind an endpoint: what is refused, and that it is said before anything is asked."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys

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


def test_an_environment_that_allows_no_connection_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, why in (
        ("HTTPS_PROXY", "wat://user:passw0rd@proxy", "Unknown scheme for proxy URL"),
        ("SSL_CERT_FILE", "/nobody/has/this", "No such file or directory"),
    ):
        with monkeypatch.context() as patch, pytest.raises(PlayerMisconfigured, match=why) as info:
            patch.setenv(name, value)
            ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))
        assert "https://api.openai.com/v1 cannot be asked" in str(info.value) and "passw0rd" not in str(info.value)


def test_the_library_is_asked_for_by_the_extras_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'openai>=2"):
        ApiPlayer(ApiSettings(model="m", api_key_env="SOME_KEY"))


def test_it_is_not_loaded_by_looking_at_the_players() -> None:
    code = (
        "import sys, recipe.spiral.players, recipe.spiral.lab.opponents.more_kinds; assert 'openai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("model", " ", "model=' ': "),
        ("base_url", "api.openai.com/v1", "base_url: must be an http"),
        ("base_url", "ftp://host/v1", "base_url: must be an http"),
        ("base_url", "http://", "base_url: must be an http"),
        ("base_url", "http://host:port/v1", "base_url: must be an http"),
        ("base_url", "http://me:password@host/v1", "without user name, password or query"),
        ("base_url", "http://host/v1?key=1", "without user name, password or query"),
        ("base_url", None, "base_url=None: must be a valid string"),
        ("api_key_env", "sk-1234", "never the key itself"),
        ("api_key_env", "", "never the key itself"),
        ("template", "nothing", "unknown; known templates"),
        ("template", "octothinker", "does not go with a chat endpoint; take one of chat, "),
        ("template", "qwen3_general", "does not go with a chat endpoint"),
        ("temperature", -1, "temperature=-1: must be greater than or equal to 0"),
        ("temperature", float("nan"), "temperature=nan"),
        ("max_tokens", 0, "max_tokens=0: must be greater than or equal to 1"),
        ("timeout", 0, "timeout=0: must be greater than 0"),
        ("timeout", None, "timeout=None: must be a valid number"),
        ("total_timeout", float("inf"), "total_timeout=inf"),
        ("retries", -1, "retries=-1: must be greater than or equal to 0"),
        ("retries", 1.5, "retries=1.5: must be a valid integer"),
        ("max_concurrency", 0, "max_concurrency=0: must be greater than or equal to 1"),
        ("max_concurrency", True, "max_concurrency=True"),
        ("budget_tokens", -1, "budget_tokens=-1"),
        ("budget_usd", 1.0, "budget_usd=1.0: needs price_in and price_out"),
        ("extra_body", [1], "extra_body=[1]: must be a valid dictionary"),
        ("send_seed", 1, "send_seed=1: must be a valid boolean"),
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
