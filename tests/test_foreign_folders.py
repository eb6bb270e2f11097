"""A folder that somebody else has made is data: reading it runs no code that it names, and resolves nothing."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from recipe.spiral.games import registry
from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.lab.evaluation.policies import run_of
from recipe.spiral.lab.evaluation.policy_weights import load, read_tokenizer
from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.play.table_opponent import rules_of
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.report.__main__ import main as report
from recipe.spiral.lab.report.bundle import Bundle
from recipe.spiral.opponents.model_files import unfit
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.storage.run_files import load_config, setting
from tests.games.playouts import PENNIES
from tests.lab.audit import recorded_runs
from tests.made_runs import write_run

GAME = "outputs.code:Pennies"
RAN = "code_ran"
KEY = "sk-1234567890abcdef"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, as with ``python -m``, with a run below it whose records and config name a module in
    it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    run = write_run(tmp_path / "outputs" / "run", steps=2, every=1)
    (tmp_path / "outputs" / "code.py").write_text(f"open({RAN!r}, 'w').close()\n{PENNIES}")
    package = tmp_path / "evil.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{registry.GROUP}]\nNim2 = {GAME}\n")
    records = RecordFolder(run / "games")
    for split, step in (("train", 1), ("val", 1)):
        games = list(records.read_step(split, step))
        for number, game in enumerate(games):
            game.game = (GAME, "Nim2", game.game)[number % 3]
        records.write(split, step, games)
    registry.installed.cache_clear()
    yield tmp_path
    registry.game_class.cache_clear()
    registry.installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "outputs"]:
        del sys.modules[name]


def config(place: Path) -> str:
    """A run's, which names the module."""
    made = recorded_runs.config(place, "data.train_batch_size=16", "seed=7")
    made.games = [{"id": GAME, "template": "qwen3"}, "KuhnPoker"]
    return OmegaConf.to_yaml(made)


def test_the_report_names_a_folders_own_games_and_runs_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([str(place / "outputs" / "run"), "--out", "pages"]) == 0
    assert not (place / RAN).exists()
    line = f"12 games of {GAME} have no boards: a folder's own code is not imported; if you trust it, allow the game "
    assert f"{line}by --game {GAME}\n" in capsys.readouterr().err
    run = Bundle(place / "pages").read("run")
    assert run["games"]["train"] == 2 * 16 and run["notes"] == [f"{line}by --game {GAME}"]
    assert report([str(place / "outputs" / "run"), "--out", "pages", "--game", GAME]) == 0
    assert (place / RAN).exists() and not capsys.readouterr().err


def test_the_audit_counts_a_folders_own_games_and_runs_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "outputs" / "run" / "config.yaml").write_text(config(place))
    audit([str(place / "outputs" / "run")])
    assert not (place / RAN).exists()
    advice = f"a folder's own code is not imported; if you trust it, allow the game by --game {GAME}"
    assert f"note: 6 games of {GAME} were not replayed: {advice}\n" in capsys.readouterr().out
    audit([str(place / "outputs" / "run"), "--game", GAME])
    assert (place / RAN).exists()


def test_evaluation_and_resuming_take_what_a_config_says_of_a_game_and_run_none(place: Path) -> None:
    (place / "outputs" / "run" / "config.yaml").write_text(config(place))
    run_of(place / "outputs" / "run")
    load_config(place / "outputs" / "run" / "config.yaml")  # as a start sees it that goes on from the run
    assert not (place / RAN).exists()


def test_a_models_own_code_is_not_run_and_nobody_is_asked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is said of trust, transformers asks on the terminal."""
    model = Path(shutil.copytree(embedded("tiny"), place / "model"))
    (model / "generation_config.json").unlink()
    (model / "code.py").write_text(f"open({RAN!r}, 'w').close()\n")
    for name, own in (("config", {"model_type": "own"}), ("tokenizer_config", {"tokenizer_class": "Own"})):
        file = model / f"{name}.json"
        code = {"AutoConfig": "code.Own", "AutoModelForCausalLM": "code.Own", "AutoTokenizer": ["code.Own", None]}
        file.write_text(json.dumps({**json.loads(file.read_text()), **own, "auto_map": code}))
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    for read in (*(read_tokenizer, end_tokens, partial(end_tokens, tokenizer_eos=1), load), partial(unfit, model)):
        with suppress(ValueError):
            read(model)
    assert not asked and not (place / RAN).exists()


def test_a_name_in_the_working_directory_is_no_installed_packages(place: Path) -> None:
    assert "Nim2" not in registry.installed()


#: Ways in which a config might ask for the reader's environment, each as a setting's value.
ASKING = [
    "${oc.env:MY_API_KEY}",
    "\\${oc.env:MY_API_KEY}",
    "${${both}}",
    "${both}",
    "${oc.decode:'\\${oc.env:MY_API_KEY}'}",
    "${oc.env:NOT_THERE,${oc.env:MY_API_KEY}}",
]


@pytest.mark.parametrize("asking", ASKING)
def test_what_a_config_asks_of_the_readers_environment_is_missing(
    place: Path, asking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)
    run = place / "outputs" / "run"
    helpers = {"first": "env", "both": "oc.env:MY_API_KEY", "part": "\\${oc.env", "rest": ":MY_API_KEY}"}
    helpers |= {"dollar": "$", "rest2": "{oc.env:MY_API_KEY}"}
    shown = ("trainer.experiment_name", "trainer.project_name", "prompt.template", "actor_rollout_ref.model.path")
    shown = (*shown, "data.apply_chat_template_kwargs.x", "trainer.default_local_dir")
    for keys in (shown, ("rules.truncated",), ("seed",), ("games",)):
        settings = OmegaConf.create({**yaml.safe_load(config(place)), **helpers})
        for key in keys:
            OmegaConf.update(settings, key, asking, force_add=True)
        (run / "config.yaml").write_text(OmegaConf.to_yaml(settings))
        assert report([str(run), "--out", "pages"]) == 0
        audit([str(run)])
        source = load_config(run / "config.yaml")
        new = place / "new"
        new.mkdir(exist_ok=True)
        try:
            print(rules_of(source), *(setting(source, key) for key in keys))
        except Exception as error:
            print(error)
    printed = capsys.readouterr()
    assert KEY not in printed.out + printed.err
    written = [file for file in place.rglob("*") if file.is_file()]
    assert len(written) > 10 and not [file for file in written if KEY.encode() in file.read_bytes()]
