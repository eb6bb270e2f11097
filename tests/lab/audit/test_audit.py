"""The audit: a run that is in order is found to be so, and whatever is changed in one is found."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.audit.__main__ import main
from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules, play, random_opening
from recipe.spiral.players.player import Position, PromptTooLong, RandomPlayer, Response
from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rae import RoleBaselines, rae_advantages
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.storage.checkpoints import name_latest, read_state, write_state
from recipe.spiral.storage.run_files import CONFIG
from recipe.spiral.training.filters import Filters
from recipe.spiral.training.group_baselines import GroupBaselines
from tests.made import repack, unpacked

SEED, STEPS, GAMES = 5, 4, 12
Lines = list[dict[str, Any]]


class Sampler:
    """In the policy's place: random actions with tokens; sometimes no answer, sometimes one that is cut off."""

    name = "policy"

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("sampler", position.player, position.turn))
        text = (await RandomPlayer().respond(position)).text
        length, version = rng.randint(1, 3), position.key.step - 1
        log_probs = [-rng.random() for _ in range(length)]
        tokens = Tokens([1, 2], list(range(length)), log_probs, (version, version))
        kind = rng.random()
        return Response("I pass." if kind < 0.05 else text, tokens, truncated=kind > 0.95)


def config(**changes: Any) -> Any:
    """A run's config; ``changes`` name their keys with two underscores for a dot."""
    made = OmegaConf.create(
        {
            "seed": SEED,
            "games": ["TicTacToe", {"id": "KuhnPoker", "weight": 2}],
            "rules": {"illegal_rewards": [-1.5, 0.5], "truncated": "illegal", "turn_cap": None},
            "algorithm": {
                "adv_estimator": "rae",
                "gamma": 1.0,
                "reward_scale": 1.0,
                "filter_draws": False,
                "filter_zero_advantages": False,
                "use_kl_in_reward": False,
                "norm_adv_by_std_in_grpo": True,
                "rae": {"baseline": True, "decay": 0.95, "initial": 0.0, "update": "game", "by_opponent": True},
                "rollout_correction": {"rollout_rs": None},
            },
            "batch_unit": "games",
            "branching": {"states": 0, "continuations": 1},
            "draw_retry": {"enabled": False, "max_retries": 1},
            "asynchronous": {"max_staleness": None, "on_stale": "drop"},
            "data": {"train_batch_size": GAMES, "games_per_start": 1, "custom_cls": {"name": "GameDataset"}},
            "records": {"every": 1},
            "trainer": {
                "v1": {"trainer_mode": "sync"},
                "default_local_dir": "${run_dir}/checkpoints",
                "resume_mode": "auto",
            },
            "environment": {"OMP_NUM_THREADS": "${spiral_cores:}"},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key.replace("__", "."), value)
    return made


def play_step(settings: Any, step: int) -> list[GameRecord]:
    shares, rules = parse_games(settings.games), Rules.from_config(settings.rules)
    records = []
    for index in range(GAMES):
        place = (step - 1) * GAMES + index
        same = settings.data.games_per_start
        row = training_row(shares, SEED, GAMES // same, place // same, same)
        first = GameKey(**row["key"])
        key = replace(first, index=first.index + place % same)
        if index == 2 + step:  # a player that failed: the game was void and was played again
            records.append(GameRecord(key, row["data_source"], ("policy", "policy"), (0, 1), discarded="void"))
            key = key.next_retry()
        game = make(row["data_source"], key.game_seed())
        share = next(share for share in shares if share.id == row["data_source"])
        past = random_opening(key, game, share.random_opening)
        playing = play(key, share.id, game, [Sampler(), Sampler()], (0, 1), rules, past=past)
        records.append(asyncio.run(playing))
    return records


def play_turns(settings: Any, step: int, launched: int) -> list[GameRecord]:
    """The fewest games with enough turns, and two more that were launched in vain."""
    shares, rules = parse_games(settings.games), Rules.from_config(settings.rules)
    records: list[GameRecord] = []
    surplus = 0
    while surplus < 2:
        row = training_row(shares, SEED, None, launched + len(records))
        key = replace(GameKey(**row["key"]), step=step, index=len(records))
        enough = sum(len(record.turns) for record in records) >= settings.data.train_batch_size
        game = make(row["data_source"], key.game_seed())
        records.append(asyncio.run(play(key, row["data_source"], game, [Sampler(), Sampler()], (0, 1), rules)))
        if enough:
            records[-1].discarded = "surplus"
            surplus += 1
    return records


def train(settings: Any, records: list[GameRecord], moving: RoleBaselines) -> None:
    """Fill in what a trainer does, with the trainer's functions."""
    algorithm = settings.algorithm
    grouped = algorithm.adv_estimator == "grpo_role"
    groups = GroupBaselines(records, algorithm.norm_adv_by_std_in_grpo)
    filters = Filters.from_config(settings)
    for record in records:
        record.baselines = groups.of(record) if grouped else moving.of(record)
        for turn in record.turns:
            turn.left_out = filters.reason(record, turn, record.baselines[turn.player])
            if turn.left_out is None:
                advantages, _ = rae_advantages(
                    torch.tensor([record.rewards[turn.player]]),
                    torch.tensor([record.baselines[turn.player]]),
                    torch.tensor([record.turns_of(turn.player)[-1].turn - turn.turn]),
                    torch.ones(1, 1),
                    algorithm.gamma,
                    algorithm.reward_scale * (groups.scale(record, turn.player) if grouped else 1.0),
                )
                turn.advantage = advantages.item()
    if not grouped:
        moving.update(records)


def make_run(run_dir: Path, **changes: Any) -> Path:
    """A run's folder: config, games, checkpoints at every second step."""
    settings = config(**changes)
    run_dir.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(settings, run_dir / CONFIG)
    rae = settings.algorithm.rae
    moving = RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline)
    folder = RecordFolder(run_dir / "games")
    launched = 0
    for step in range(1, STEPS + 1):
        in_turns = settings.batch_unit == "turns"
        records = play_turns(settings, step, launched) if in_turns else play_step(settings, step)
        launched += len(records)
        train(settings, [record for record in records if record.discarded is None], moving)
        if step % settings.records.every == 0:
            folder.write("train", step, records)
        if step % 2 == 0:
            state = {"step": step, "settings": {"seed": SEED}, "baselines": moving.state_dict()}
            write_state(run_dir / "checkpoints" / f"global_step_{step}", state)
            name_latest(run_dir / "checkpoints", step)
    return run_dir


def test_random_openings_are_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    games = ["TicTacToe", {"id": "KuhnPoker", "random_opening": 1}]
    run = make_run(tmp_path, games=games, algorithm__gamma=0.9)
    assert audit(run, capsys)[0] == 0
    folder = RecordFolder(run / "games")
    records = list(folder.read_step("train", 2))
    begun = next(record for record in records if record.past)
    begun.past = []
    folder.write("train", 2, records)
    (problem, *_) = audit(run, capsys)[2]["problems"]
    assert f"game {begun.key}" in problem and "its start [] is [" in problem


def audit(run_dir: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, dict[str, Any]]:
    """Status, report, findings."""
    capsys.readouterr()
    status = main([str(run_dir), "--json", str(run_dir / "audit.json"), *options])
    return status, capsys.readouterr().out, json.loads((run_dir / "audit.json").read_text())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm__rae__update": "batch", "algorithm__rae__initial": 0.25, "algorithm__rae__decay": 0.5},
        {"algorithm__filter_draws": True, "algorithm__filter_zero_advantages": True, "rules__truncated": "mask"},
        {"algorithm__adv_estimator": "grpo_role", "data__games_per_start": 4, "data__train_batch_size": GAMES // 4},
        {"records__tokens": False},
        {"records__every": 2},
        {"batch_unit": "turns", "data__train_batch_size": 40},
    ],
    ids=lambda changes: ",".join(changes) or "defaults",
)
def test_a_run_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]) -> None:
    status, report, found = audit(make_run(tmp_path, **changes), capsys)
    assert (status, found["problems"]) == (0, [])
    steps = STEPS // changes.get("records__every", 1)
    games = sum(tally["games"] for tally in found["games"].values())
    if changes.get("batch_unit") == "turns":
        assert found["discarded"] == {"surplus": 2 * steps} and "of at least 40 turns; " in report
    else:
        assert games == sum(tally["replayed"] for tally in found["games"].values()) == steps * GAMES
        assert found["discarded"]["void"] > 0
    assert found["checkpoints"] == [2, 4]
    assert report.splitlines()[-1].startswith(f"audit: ok, {games} games, ")
    for tally in found["games"].values():
        assert tally["largest"]["reward"] == 0.0
        assert tally["largest"]["baseline"] < 1e-12


# -- what is changed is found: each takes the lines of step 3, whose first game counts and has turns -----------------


def _set(*path: Any, to: Any) -> Callable[[Lines], None]:
    """Set a value in the step's first game."""

    def change(lines: Lines) -> None:
        place: Any = lines[0]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = to(place[path[-1]]) if callable(to) else to

    return change


def _turn(name: str, to: Any) -> Callable[[Lines], None]:
    return _set("turns", 0, name, to=to)


def _tokens(name: str, to: Any) -> Callable[[Lines], None]:
    return _set("turns", 0, "tokens", name, to=to)


def _swap(lines: Lines) -> None:
    lines[4], lines[5] = lines[5], lines[4]


def _void(lines: Lines) -> int:
    return next(number for number, line in enumerate(lines) if line["discarded"])


CHANGES: dict[str, tuple[Callable[[Lines], Any], str]] = {
    "reward": (_set("rewards", 0, to=lambda reward: reward + 0.25), "game train-5-3-0-0 of .*, player 0: reward"),
    "advantage": (_turn("advantage", lambda a: a + 1e-5), "train-5-3-0-0 .*, turn 0 of player 0: advantage"),
    "baseline": (_set("baselines", 0, to=lambda b: b + 1e-5), "train-5-3-0-0 .*, player 0: baseline"),
    "action": (_turn("action", "[none]"), r"turn 0 of player 0: action '\[none\]' is "),
    "response": (_turn("response", "nothing"), "turn 0 of player 0: verdict 'legal' is 'no_answer'"),
    "left out": (_turn("left_out", "draw"), "left out for draw"),
    "termination": (_set("termination", to="turn_cap"), "termination 'turn_cap' is "),
    "turns lost": (lambda lines: lines[0]["turns"].pop(), "goes on after the last"),
    "step": (_set("key", "step", to=2), "is none of this run's and step's"),
    "another game": (_set("game", to="Nim"), r"is not what the seed drew: .* \('Nim', None, \(0, 1\)\) should be"),
    "trainable": (_set("trainable", to=[0]), "player 1: does not learn, and yet"),
    "weights": (_tokens("weight_versions", [1, 2]), r"turn 0 of player 0: weights \(1, 2\) should be \(2, 2\)"),
    "game removed": (lambda lines: lines.pop(), "step 3: no game of index 11"),
    "game twice": (lambda lines: lines.append(lines[-1]), "is there more than once"),
    "game added": (lambda lines: lines.append({**lines[-1], "key": {**lines[-1]["key"], "index": 12}}), "no place in"),
    "order": (_swap, "stands behind .*: not in their order"),
    "first try removed": (lambda lines: lines.pop(_void(lines)), "in place of a game that is not there"),
    "void trained": (lambda lines: lines[_void(lines)].update(baselines=[0.0, 0.0]), "discarded .*yet it was trained"),
    "token ids": (_tokens("response_ids", lambda ids: [ids[0] + 1, *ids[1:]]), ":1: game .* is not as it was written"),
    "digest removed": (lambda lines: lines[0].pop("digest"), ":1: game .* is not as it was written"),
    "wrong type": (_set("rewards", to=["1", "2"]), "train_step_000003.jsonl.gz:1: not a game's record"),
}


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run in order."""
    run_dir = make_run(tmp_path_factory.mktemp("run"))
    return {str(f.relative_to(run_dir)): f.read_bytes() for f in run_dir.rglob("*") if f.is_file()}


@pytest.fixture
def run_dir(tmp_path: Path, run_files: dict[str, bytes]) -> Path:
    for name, content in run_files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(run_dir: Path, capsys: pytest.CaptureFixture[str], change: str) -> None:
    tamper, expected = CHANGES[change]
    file = RecordFolder(run_dir / "games").file("train", 3)
    lines = [json.loads(line) for line in unpacked(file).splitlines()]
    assert lines[0]["discarded"] is None and lines[0]["turns"][0]["verdict"] == "legal"
    tamper(lines)
    repack(file, "".join(json.dumps(line) + "\n" for line in lines))
    status, report, found = audit(run_dir, capsys)
    assert status == 1
    assert any(re.search(expected, problem) for problem in found["problems"]), found["problems"]
    assert len(found["problems"]) < 12, "one change is not a problem of every later game"
    assert f"audit: {len(found['problems'])} problem" in report.splitlines()[-1]


def test_a_game_that_a_prompt_ended_replays() -> None:
    class Brief(Sampler):
        async def respond(self, position: Position) -> Response:
            if position.turn == 1:
                raise PromptTooLong("too long")
            return Response(f"\\boxed{{{position.game.legal_actions()[0]}}}")

    rules = Rules(illegal_rewards=(-2.0, 1.0))
    key, game = GameKey("train", SEED, 1, 0), make("TicTacToe", 0)
    record = asyncio.run(play(key, "TicTacToe", game, [Brief(), Brief()], (0, 1), rules))
    again = replay(record, rules)
    assert (again.termination, again.rewards) == ("prompt_too_long", (-1.0, -1.0))
    assert differences(record, again) == []
    shorter = replace(record, turns=record.turns[:-1], termination="illegal")
    assert differences(shorter, replay(shorter, rules))


@pytest.mark.parametrize(
    "state",
    [
        "[" * 100_000,
        "{",
        '{"baselines": {"values": [[5, 0, "self", 0]]}}',
    ],
)
def test_a_checkpoint_of_any_content(run_dir: Path, capsys: pytest.CaptureFixture[str], state: str) -> None:
    (run_dir / "checkpoints" / "global_step_2" / "spiral.json").write_text(state)
    status, _, found = audit(run_dir, capsys)
    assert status == 1 and len(found["problems"]) == 1 and found["problems"][0].startswith("checkpoint 2: ")


def test_a_file_that_is_cut_short_is_named(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = RecordFolder(run_dir / "games").file("train", 2)
    file.write_bytes(file.read_bytes()[:-100])
    status, _, found = audit(run_dir, capsys)
    assert status == 1
    assert any(
        re.search(r"^train_step_000002\.jsonl\.gz:\d+: .* is cut short", problem) for problem in found["problems"]
    )


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_step_that_is_gone(run_dir: Path, capsys: pytest.CaptureFixture[str], step: int) -> None:
    RecordFolder(run_dir / "games").file("train", step).unlink()
    status, _, found = audit(run_dir, capsys)
    assert (status, found["problems"]) == (1, [f"step {step}: no file of games"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda state: state["baselines"]["values"][0].__setitem__(3, 0.5),
            "checkpoint 4: baseline of KuhnPoker, player 0",
        ),
        (
            lambda state: state["baselines"]["values"].pop(),
            "checkpoint 4: baseline of TicTacToe, player 1: 0 should be",
        ),
        (lambda state: state.update(step=3), "checkpoint 4: is of step 3 and seed 5"),
        (lambda state: state.pop("baselines"), "checkpoint 4: KeyError: 'baselines'"),
    ],
)
def test_a_checkpoint_that_differs(
    run_dir: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Any], Any], expected: str
) -> None:
    file = run_dir / "checkpoints" / "global_step_4" / "spiral.json"
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))
    status, _, found = audit(run_dir, capsys)
    assert status == 1
    assert len(found["problems"]) == 1
    assert found["problems"][0].startswith(expected)


@pytest.mark.parametrize("change", [{"adv_estimator": "gae"}, {"use_kl_in_reward": True}])
def test_advantages_that_do_not_follow_from_outcomes(
    run_dir: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
) -> None:
    file = run_dir / CONFIG
    settings = OmegaConf.load(file)
    OmegaConf.update(settings, "algorithm", change)
    OmegaConf.save(settings, file)
    _, report, found = audit(run_dir, capsys)
    assert "note: advantages were not recomputed" in report
    assert not any("advantage" in problem for problem in found["problems"])


def test_what_is_no_run(tmp_path: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 and one line."""
    assert main([str(tmp_path / "none")]) == 2
    assert "config.yaml" in capsys.readouterr().err
    for file in (run_dir / "games").iterdir():
        file.unlink()
    assert main([str(run_dir)]) == 2
    assert "there are no games to audit" in capsys.readouterr().err
    (run_dir / CONFIG).write_text("seed: [")
    assert main([str(run_dir)]) == 2
    (run_dir / CONFIG).write_text("trainer: {}")
    assert main([str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and error.count("spiral: ") == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda games: games[-1].__setattr__("discarded", None), "was trained, behind"),
        (lambda games: games[0].__setattr__("discarded", "surplus"), "is surplus, behind 0 turns of 40"),
        (lambda games: games.pop(3), "no game of index 3"),
        (lambda games: games[-1].__setattr__("key", replace(games[-1].key, index=10**15)), "is none of this run's"),
        (lambda games: games.__setitem__(slice(2, None), []), "fewer than 40"),
    ],
)
def test_a_change_of_a_batch_of_turns_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, expected: str
) -> None:
    run_dir = make_run(tmp_path / "run", batch_unit="turns", data__train_batch_size=40)
    folder = RecordFolder(run_dir / "games")
    games = list(folder.read_step("train", 2))
    change(games)
    folder.write("train", 2, games)
    status, _, found = audit(run_dir, capsys)
    assert status == 1
    assert any(expected in problem and problem.startswith("step 2: ") for problem in found["problems"])


RS = {"algorithm__rollout_correction": {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.1"}}


@pytest.mark.parametrize("changes", [{}, RS], ids=["without", "with"])
def test_turns_that_verl_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]) -> None:
    """Known where the config rejects, and a problem where it does not, or where they were trained all the same."""
    run_dir = make_run(tmp_path, **changes)
    folder = RecordFolder(run_dir / "games")
    games = list(folder.read_step("train", 2))
    counted = [game for game in games if game.discarded is None]
    for game in counted[:3]:
        game.turns[0].left_out, game.turns[0].advantage = "rejected", None
    folder.write("train", 2, games)
    status, report, found = audit(run_dir, capsys)
    if not changes:
        assert status == 1 and len(found["problems"]) == 3
        assert all("left out for rejected, should be for None" in problem for problem in found["problems"])
        return
    assert (status, found["rejected"]) == (0, 3)
    assert "note: algorithm.rollout_correction.rollout_rs left out 3 turns, and may have left out single" in report
    counted[0].turns[0].advantage = 0.0
    folder.write("train", 2, games)
    status, _, found = audit(run_dir, capsys)
    assert status == 1 and "left out (rejected), and yet it was trained" in found["problems"][0]


def test_checkpoints_are_looked_for_where_the_config_has_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, elsewhere = make_run(tmp_path / "run"), tmp_path / "elsewhere"
    (run_dir / "checkpoints").rename(elsewhere)
    settings = config(run_dir=str(run_dir), trainer__default_local_dir=str(elsewhere))
    OmegaConf.save(settings, run_dir / CONFIG)
    assert audit(run_dir, capsys)[2]["checkpoints"] == [2, 4]
    state = read_state(elsewhere / "global_step_4")
    write_state(elsewhere / "global_step_4", {**state, "baselines": {"values": []}})
    status, _, found = audit(run_dir, capsys)
    assert status == 1
    assert all(problem.startswith("checkpoint 4: baseline of ") for problem in found["problems"])


def test_checkpoints_of_another_history_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those beyond the tracker's, of a run that went back to an earlier step."""
    run_dir = make_run(tmp_path / "run")
    write_state(
        run_dir / "checkpoints" / "global_step_40",
        {"step": 40, "settings": {"seed": SEED}, "baselines": {"values": []}},
    )
    assert audit(run_dir, capsys)[0] == 0
