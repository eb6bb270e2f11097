"""From a command line to configs: presets from any directory, the user's folder, and refusals of one line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from recipe.spiral.checks import ConfigError, compose, is_sweep
from recipe.spiral.checks.command_line import Job
from recipe.spiral.checks.names import CONFIG, Names, read_yaml
from recipe.spiral.lab.sweep.jobs import plan


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, program: str = "spiral_trainer") -> list[Job]:
    monkeypatch.setattr(sys, "argv", ["main", *arguments])
    return compose(program)


def preset(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# @package _global_\n{text}\n")


def test_a_preset_works_from_any_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    [(config, _)] = jobs = run(monkeypatch, "+experiment=kuhn", "seed=3")
    assert (list(config.games), config.trainer.experiment_name, config.seed) == (["KuhnPoker"], "kuhn", 3)
    assert not is_sweep(jobs)


@pytest.mark.parametrize("flags", [["-m"], ["--multirun", "--config-dir", "."]])
def test_settings_stand_on_both_sides_of_a_flag(monkeypatch: pytest.MonkeyPatch, flags: list[str]) -> None:
    jobs = run(monkeypatch, "games=[Nim]", *flags, "seed=3,4", "fsp.size=5")
    assert is_sweep(jobs) and [(list(c.games), c.seed, c.fsp.size) for c, _ in jobs] == [
        (["Nim"], 3, 5),
        (["Nim"], 4, 5),
    ]


def test_settings_without_effect_are_noted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "fsp.size=5", "fsp.ratio=0.2", "trainer.resume_from_path=x", "draw_retry.enabled=false")
    assert capsys.readouterr().err == (
        "note: without effect, with fsp.enabled=false: fsp.size, fsp.ratio\n"
        "note: without effect, with trainer.resume_mode=auto: trainer.resume_from_path\n"
    )
    run(monkeypatch, "fsp.size=5", "fsp.enabled=true", "+experiment=pool")
    assert not capsys.readouterr().err


def test_settings_of_another_value_are_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    actor, rows = "actor_rollout_ref.actor", "ppo_micro_batch_size_per_gpu"
    given = [f"{actor}.{rows}=4", "algorithm.reward_scale=2", "algorithm.rae.decay=0.9"]
    run(monkeypatch, "algorithm.adv_estimator=gae", *given)
    assert capsys.readouterr().err == (
        "note: without effect, with algorithm.adv_estimator=gae: algorithm.rae.decay\n"
        "note: without effect, with algorithm.adv_estimator=gae: algorithm.reward_scale\n"
        f"note: without effect, with {actor}.use_dynamic_bsz=true: {actor}.{rows}\n"
    )
    run(monkeypatch, f"{actor}.use_dynamic_bsz=false", *given)
    assert not capsys.readouterr().err


def test_a_sweeps_folder_is_written_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^hydra.sweep.dir=~/a: ~ is not expanded"):
        run(monkeypatch, "-m", "seed=0,1", "hydra.sweep.dir=~/a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("setting", ["run_dir=~/runs", "run_dir='~/runs'", "trainer.default_local_dir=~/saved"])
def test_a_home_that_nobody_expands_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str) -> None:
    told = rf"^{setting.partition('=')[0]}=~/\w+: ~ is not expanded; write the whole path"
    with pytest.raises(ConfigError, match=told):
        run(monkeypatch, setting)
    assert not list(tmp_path.iterdir())
    name, _, folder = setting.rpartition("=")
    preset(Path("config/experiment/mine.yaml"), f"{name.replace('.', ': {')}: {folder}{'}' * name.count('.')}")
    with pytest.raises(ConfigError, match=told):
        run(monkeypatch, "+experiment=mine")


def test_an_evaluations_folder_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^eval_dir=~/a: ~ is not expanded"):
        run(monkeypatch, "eval_dir=~/a", program="eval")


def test_a_folder_that_cannot_be_made_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^run_dir: .*n: cannot be used \(File name too long\); give another$"):
        run(monkeypatch, f"run_dir={'n' * 300}")


def test_a_sweep_works_from_any_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = run(monkeypatch, "-m", "+sweep=seeds", "+experiment=pool")
    assert is_sweep(jobs) and [config.seed for config, _ in jobs] == [0, 1, 2, 3, 4]
    assert all(config.fsp.enabled for config, _ in jobs)


@pytest.mark.parametrize("arguments", [["dry_run=TRUE"], ["++dry_run= true"], ["-m", "seed=1,2", "dry_run=True"]])
def test_a_dry_run_writes_nothing_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]
) -> None:
    assert all(config.dry_run is True for config, _ in run(monkeypatch, *arguments))
    assert not list(tmp_path.iterdir())


def test_the_folder_config_of_the_current_directory_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    preset(Path("config/experiment/kuhn.yaml"), "seed: 7")
    preset(Path("config/experiment/mine.yaml"), "defaults: [quickstart, _self_]\nseed: 8")
    [(config, _)] = run(monkeypatch, "+experiment=kuhn")
    assert (config.seed, config.trainer.experiment_name) == (7, "default"), "the packaged one is replaced"
    [(config, _)] = run(monkeypatch, "+experiment=mine")
    assert (config.seed, config.trainer.total_training_steps) == (8, 40), "on the packaged quick start"


def test_config_dir_wins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    preset(Path("elsewhere/experiment/kuhn.yaml"), "seed: 9")
    preset(Path("config/experiment/kuhn.yaml"), "seed: 7")
    [(config, _)] = run(monkeypatch, "--config-dir", "elsewhere", "+experiment=kuhn")
    assert config.seed == 9


def test_a_folder_config_of_something_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("config").mkdir()
    Path("config/eval.yaml").write_text("something: else")
    [(config, _)] = run(monkeypatch, "games_per_role=3", program="eval")
    assert config.games_per_role == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gamess=[Nim]"], "gamess=[Nim]: there is no such setting; did you mean `games`?"),
        (["+fsp.sze=3"], "+fsp.sze=3: there is no such setting; did you mean `fsp.size`?"),
        (["games={Nim: 1}"], "games={Nim: 1}: must be a list"),
        (["fsp=[1]"], "fsp=[1]: must be a mapping"),
        (["+experiment=kuhn", "+experiment=pool"], "Multiple values for experiment. "),
        (["fsp.sze=3"], "fsp.sze=3: there is no such setting; did you mean `fsp.size`?"),
        (["-m", "+fsp.sze=3,4"], "+fsp.sze=3,4: there is no such setting; did you mean `fsp.size`?"),
        (["hardware=gpuu"], "hardware=gpuu: unknown; did you mean `hardware=gpu`? known: cpu, gpu"),
        (["+hydra.sweep.dirr=x"], "+hydra.sweep.dirr=x: there is no such setting; did you mean `hydra.sweep.dir`?"),
        (["~fsp.sze"], "~fsp.sze: there is no such setting; did you mean `fsp.size`?"),
        (["~model"], "~model: a setting cannot be taken away; leave ~model out"),
        (["-m", "seed=range(0)"], "-m: there is no job, as a list is empty"),
        (["hardware=null"], "hardware=null: must be a mapping, or name a file"),
        (["~games"], "~games: a setting cannot be taken away; leave ~games out"),
        (["~data.train_batch_size"], "~data.train_batch_size: a setting cannot be taken away"),
        (["data=null"], "data=null: must be a mapping"),
        (["run_dir=null"], "While dereferencing interpolation '${run_dir}': Incompatible value 'None'"),
        (["--experiment", "kuhn"], "--experiment: there is no such flag; did you mean `+experiment=...`?"),
        (["+experiments=kuhn"], "+experiments=kuhn: there is no such setting; did you mean `+experiment=kuhn`?"),
        (["output_dir=x"], "output_dir=x: there is no such setting; did you mean `run_dir=x`?"),
        (["lora=true"], "did you mean `actor_rollout_ref.model.lora_rank=32`?"),
        (["learning_rate=1e-5"], "did you mean `actor_rollout_ref.actor.optim.lr=1e-5`?"),
        (["--dry-run"], "--dry-run: there is no such flag; did you mean `dry_run=...`?"),
        (["--sed=3"], "--sed=3: there is no such flag; did you mean `seed=3`?"),
        (["--max-steps=3"], "--max-steps=3: there is no such flag; did you mean `trainer.total_training_steps=3`?"),
        (["--multirn"], "--multirn: there is no such flag; --help prints all flags"),
        (["experiment=kuhn"], "experiment=kuhn: must be written with a plus: +experiment=kuhn"),
        (["-m", "+sweep=seedz"], "+sweep=seedz: unknown; did you mean `+sweep=seeds`? known: games, rae_decay, seeds"),
        (
            ["--config-name", "kuhn"],
            "--config-name kuhn: there is no such config; a preset is named by +experiment=kuhn",
        ),
        (["extensions=[nope]"], "extensions: nope: there is no such module; install it, or start where it lies"),
        (["extensions=[json]"], "extensions: json: has no class Extension (docs/extensions.md)"),
        (["seed=1,2"], "seed=1,2: a list must be in brackets, and a sweep starts with -m; for a text "),
        (["extensions=nope"], "extensions=nope: must be a list, such as ["),
        (["--config-dir", "nowhere"], "nowhere' not found"),
        (["+sweep=seedz"], "+sweep=seedz: unknown; did you mean `+sweep=seeds`? known: games, rae_decay, seeds"),
        (["games=[Nim"], "games=[Nim: no viable alternative at input '[Nim'; close each bracket and quote, "),
        (["run_dir='x"], "run_dir='x: cannot be read; close each bracket and quote, "),
        (["seed=1=2"], "seed=1=2: mismatched input '='; close each bracket and quote, "),
        (
            ["games=[Nim,,Pig]"],
            "games=[Nim,,Pig]: no viable alternative at input '[Nim,,'; close each bracket ",
        ),
        (["run_dir=/a(b)"], "run_dir=/a(b): mismatched input '('; close each bracket and quote, "),
        (["seed=1,2,"], "seed=1,2,: mismatched input '<EOF>'; close each bracket and quote, "),
        (["seed=chioce(1,2)"], "seed=chioce(1,2): Unknown function 'chioce' Available: bool,choice,"),
        (
            ["seed"],
            "seed: must be name=value (null: nothing); where it has blanks, put the argument in single quotes, ",
        ),
        (["run_dir="], "run_dir=: must be name=value (null: nothing); "),
        (["=3"], "=3: must be name=value (null: nothing); "),
        (["games[0]=Nim"], "games[0]=Nim: must be name=value "),
        (["steps=10"], "steps=10: there is no such setting; did you mean `trainer.total_training_steps=10`?"),
        (["model.path=X"], "there is no such setting; did you mean `model=hf actor_rollout_ref.model.path=X`?"),
        (
            ["model=Qwen/Qwen3-4B"],
            "model=Qwen/Qwen3-4B: unknown; for a model's folder or hub id write `model=hf "
            "actor_rollout_ref.model.path=Qwen/Qwen3-4B`; known: hf, smollm2_135m, tiny",
        ),
        (["+sweep=seeds"], "+sweep=seeds: a sweep, of which one run would be left; start it with -m: -m +sweep=seeds"),
        (["data.shuffle=true"], "data.shuffle=true: must be false; "),
        (["trainer.total_epochs=30"], "trainer.total_epochs=30: must be 1; "),
        (["data.gen_batch_size=3"], "data.gen_batch_size=3: cannot be set; "),
        (
            ["actor_rollout_ref.rollout.enable_sleep=true"],
            "did you mean `actor_rollout_ref.rollout.enable_sleep_mode`?",
        ),
        (
            ["+experiment=typed_wrong"],
            "config/experiment/typed_wrong.yaml: fsp.sze: there is no such setting; did you mean `fsp.size`?",
        ),
        (["+experiment=of_verl"], "trainer.total_epochs=30: must be 1; "),
    ],
)
def test_a_key_that_nobody_reads_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    preset(Path("config/experiment/typed_wrong.yaml"), "fsp: {sze: 3}")
    preset(Path("config/experiment/of_verl.yaml"), "trainer: {total_epochs: 30}")  # verl's own default
    with pytest.raises(ConfigError) as error:
        run(monkeypatch, *arguments)
    assert message in str(error.value) and "\n" not in str(error.value)


GLOBAL = "# @package _global_\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{GLOBAL}games: [Nim\nseed: 3", r'mine\.yaml", line 2'),
        (f"{GLOBAL}trainer:\n\tsave_freq: 3", r"'\\t' that cannot start any token in \".*mine\.yaml\", line 3"),
        (f"{GLOBAL}seed: 3\nseed: 4", r"found duplicate key seed in \".*mine\.yaml\", line 3"),
        (f"{GLOBAL}only words", "only words: there is no such setting"),
        (f"{GLOBAL}# f\xfcr", r"\+experiment=mine: 'utf-8' codec"),
        (f"{GLOBAL}defaults: [mine, _self_]", r"^\+experiment=mine: leads back to itself, "),
        (f"{GLOBAL}defaults: [yours, _self_]", r"Could not load 'experiment/yours'\.$"),
        (f"{GLOBAL}trainer.save_freq: 3", r"mine\.yaml: trainer\.save_freq: must be in its section"),
        ("# @package\nseed: 3", r"\+experiment=mine: Expected header format"),
        ("seed: 3", r"\+experiment=mine: its file must begin with `# @package _global_`"),
        ("", r"\+experiment=mine: its file must begin with `# @package _global_`"),
    ],
)
def test_a_broken_preset_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    preset(Path("config/experiment/mine.yaml"), "")
    Path("config/experiment/mine.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=message) as error:
        run(monkeypatch, "+experiment=mine")
    assert "\n" not in str(error.value)


def test_surroundings_that_do_not_work_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Path(".env").write_text("SPIRAL_HARDWARE=tpu\n", encoding="utf-8-sig")  # as an editor of another system has it
    monkeypatch.setenv("SPIRAL_HARDWARE", "")
    run(monkeypatch)  # not set
    monkeypatch.delenv("SPIRAL_HARDWARE")
    with pytest.raises(ConfigError, match="SPIRAL_HARDWARE=tpu: must be cpu or gpu"):
        run(monkeypatch)
    monkeypatch.delenv("SPIRAL_HARDWARE")
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").touch()
    with monkeypatch.context() as foreign, pytest.raises(ConfigError, match="another package; take it off PYTHONPATH"):
        foreign.syspath_prepend(tmp_path)
        foreign.delitem(sys.modules, "verl", raising=False)
        read_yaml.cache_clear()
        run(foreign)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match=r"the current folder, .*: No such file or directory; go to another"):
        run(monkeypatch)


def test_a_sweeps_job_composes_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a packaged sweep, too, and with what only Hydra knows: the number of the job."""
    jobs = run(monkeypatch, "-m", "+sweep=seeds", f"run_dir={tmp_path}", "trainer.project_name=n${hydra:job.num}")
    planned, *_ = plan(jobs)
    assert [job.name for job in planned[:2]] == ["seed=0", "seed=1"]
    [(config, _)] = run(monkeypatch, *planned[1].arguments)
    assert (config.seed, config.run_dir, config.trainer.project_name) == (1, str(tmp_path / "seed=1"), "n1")


@pytest.mark.parametrize(
    ("argument", "mend"),
    [
        ("+experiment=kuhn", ""),
        ("experiment=kuhn", ""),
        ("model=tiny", r"; did you mean `policies=\[tiny\]`\?"),
        ("+hardware=cpu", ""),
        ("hardware=gpu", "; did you mean `engine=gpu`"),
        ("run_dir=x", "; did you mean `eval_dir=x`"),
    ],
)
def test_an_evaluation_refuses_what_is_a_trainings(monkeypatch: pytest.MonkeyPatch, argument: str, mend: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no such setting{mend}"):
        run(monkeypatch, argument, program="eval")


def test_an_unknown_preset_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own among them."""
    preset(Path("config/experiment/mine.yaml"), "seed: 3")
    with pytest.raises(ConfigError, match=r"\+experiment=mien: unknown; did you mean `\+experiment=mine`\?"):
        run(monkeypatch, "+experiment=mien")
    with pytest.raises(
        ConfigError,
        match=r"^\+experiment=khun: unknown; did you mean `\+experiment=kuhn`\? known: asynchronous, equilibrium, ",
    ):
        run(monkeypatch, "+experiment=khun")


@pytest.mark.parametrize("program", ["spiral_trainer", "eval"])
def test_help_is_a_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str) -> None:
    """What it names is there: each key is a setting, and each preset has its name on it."""
    preset(Path("config/experiment/mine.yaml"), "seed: 7")
    assert run(monkeypatch, "--help", program=program) == []
    page = capsys.readouterr().out
    lines = page.splitlines()
    assert 10 < len(lines) < 45 and max(map(len, lines)) <= 120
    keys = [match[1] for line in lines if (match := re.match(r"  ([\w.]+)=", line))]
    assert len(keys) >= 10 and all(map(Names(program).knows, keys))
    if program == "spiral_trainer":
        presets = [file.stem for group in ("experiment", "sweep") for file in (CONFIG / group).glob("*.yaml")]
        assert {"mine", *presets} <= {*re.split(r"[\s,]+", page)}
