"""Keys work in a run, and are in none of its files."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from recipe.spiral.main_spiral import _forward_environment
from recipe.spiral.processes import masking
from recipe.spiral.processes.masking import (
    is_secret,
    learn,
    secrets_of,
    take_secrets_out,
    without_secrets,
    write_config,
)
from tests.made_configs import config

KEY = "sk-1234567890abcdef"


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "KNOWN", {})


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MY_API_KEY", KEY)
    return KEY


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_names_tell_what_may_be_a_key() -> None:
    assert all(map(is_secret, ["OPENAI_API_KEY", "HF_TOKEN", "api_key", "x-api-key", "apikey", "Authorization"]))
    assert all(map(is_secret, ["accessToken", "clientSecret", "apiKeyOfMine", "Cookie", "x-auth", "SSH_PASSPHRASE"]))
    assert not any(
        map(is_secret, ["TOKENIZERS_PARALLELISM", "max_tokens", "maxTokens", "VERL_PLATFORM", "monkey", "author"])
    )


def test_a_key_in_clear_is_masked_where_an_endpoints_fields_are(tmp_path: Path) -> None:
    body = {"api_key": KEY, "headers": [{"Authorization": KEY}], "max_tokens": 5, "model": "m", "password": 12345678}
    setup = OmegaConf.create({"opponents": [{"extra_body": body}], "data": {"prompt_key": "prompt"}})
    learn(setup)
    write_config(tmp_path / "config.yaml", setup)
    read = OmegaConf.load(tmp_path / "config.yaml")
    masked = {**body, "api_key": "***", "headers": [{"Authorization": "***"}], "password": "***"}
    assert read == {"opponents": [{"extra_body": masked}], "data": {"prompt_key": "prompt"}}
    assert mode(tmp_path / "config.yaml") == 0o600
    assert setup.opponents[0].extra_body.api_key == KEY


def test_a_password_in_an_address_is_masked() -> None:
    addresses = {"base_url": "https://me:pa55w0rd@host:80/v1?a=b:c@d", "proxy": "http://host:80/x", "at": "a:b@c"}
    assert without_secrets(addresses) == {**addresses, "base_url": "https://me:***@host:80/v1?a=b:c@d"}
    assert without_secrets(f"git+https://{KEY}@host/v1?sig={KEY}&a=1") == "git+https://***@host/v1?sig=***&a=1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'{{"api_key": "{KEY}", "n": 1}}', '{"api_key": "***", "n": 1}'),
        (f'{{\\"api_key\\": \\"{KEY}\\"}}', '{\\"api_key\\": \\"***\\"}'),
        (f"opponents=[{{extra_body: {{api_key: {KEY}}}", "opponents=[{extra_body: {api_key: ***}"),
        ('password: "my 2 words\' sum", n: 1', 'password: "***", n: 1'),
        (f'api_key: "{KEY}', 'api_key: "***'),
        (f"+environment.MY_TOKEN={KEY} more", "+environment.MY_TOKEN=*** more"),
        (f"-H 'Authorization: Bearer {KEY}+/='", "-H 'Authorization: Bearer ***'"),
        (f"says: bearer {KEY}", "says: bearer ***"),
        *(
            (text, text)
            for text in (
                "max_tokens=81920000",
                "ppo_max_token_len_per_gpu=1000000000000.0",
                "KeyError: 'global_step_10'",
                "data.prompt_key=question",
                '"key": "${oc.env:K9}"',
            )
        ),
    ],
)
def test_a_key_in_a_text_is_masked_where_a_fields_name_tells(text: str, shown: str) -> None:
    assert without_secrets({"extra_body": {"metadata": text}, text: [text]}) == {
        "extra_body": {"metadata": shown},
        shown: [shown],
    }
    assert without_secrets({"extra_body": {"password": f"https://a:b@c token={KEY} rest"}}) == {
        "extra_body": {"password": "***"}
    }


def test_a_key_is_neither_printed_nor_tracked(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl prints the whole config, which shows with verbose=true, and gives it to trackers."""
    from verl.trainer import main_ppo
    from verl.trainer.ppo.v1 import trainer_base

    from recipe.spiral.task_runner import TaskRunner

    for module, name in ((main_ppo, "pprint"), (trainer_base, "Tracking")):
        monkeypatch.setattr(module, name, getattr(module, name))
    tracked = {}
    made = SimpleNamespace(logger={})
    monkeypatch.setattr(trainer_base, "Tracking", lambda **settings: tracked.update(settings) or made)
    setup = OmegaConf.create(
        {"opponents": [{"extra_body": {"user": "Bearer ${oc.env:MY_API_KEY}", "token": "in clear 123"}}], "seed": 3}
    )
    secrets = secrets_of(setup)
    plain = OmegaConf.to_container(setup, resolve=True)
    TaskRunner(secrets)._take_over(tmp_path)
    main_ppo.pprint(plain)
    trainer_base.Tracking(project_name="p", experiment_name="e", default_backend=["console"], config=plain)
    told = capsys.readouterr().out + str(tracked)
    assert KEY not in told and "in clear" not in told
    assert tracked["config"]["opponents"] == [
        {"extra_body": {"user": "Bearer ${oc.env:MY_API_KEY,null}", "token": "***"}}
    ]
    assert tracked["config"]["seed"] == 3 and tracked["project_name"] == "p" and "'seed': 3" in told


def test_a_config_without_keys_stays_readable_for_others(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_config(tmp_path / "config.yaml", OmegaConf.create({"seed": 3}))
    finally:
        os.umask(before)
    assert mode(tmp_path / "config.yaml") == 0o644


def test_keys_in_the_environment_section_are_not_passed_on_through_ray(tmp_path: Path, key: str) -> None:
    """Ray prints what it passes on. The run's processes inherit them."""
    setup = config(tmp_path)
    OmegaConf.update(setup, "environment.MY_API_KEY", KEY, force_add=True)
    OmegaConf.update(setup, "environment.PLAIN", "plain", force_add=True)
    OmegaConf.update(setup, "opponents", [{"extra_body": {"user": "${environment.MY_API_KEY}"}}], force_add=True)
    os.environ["PLAIN"] = "plain"
    try:
        take_secrets_out(setup)
        _forward_environment(setup)
    finally:
        del os.environ["PLAIN"]
    assert KEY not in OmegaConf.to_yaml(setup)
    assert setup.opponents[0].extra_body.user == KEY, "what refers to it has it still"
    assert setup.ray_kwargs.ray_init.runtime_env.env_vars.PLAIN == "plain"
    assert os.environ["MY_API_KEY"] == KEY
