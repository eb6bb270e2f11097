"""The audit: a run that is in order is found to be so, and whatever is changed in one is found, in every mode."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.audit.__main__ import main, report
from recipe.spiral.lab.audit.auditor import Auditor
from recipe.spiral.lab.audit.recompute import Settings
from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, PromptTooLong, Response
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.checkpoints import write_state
from recipe.spiral.storage.run_files import CONFIG
from tests.lab.audit.recorded_runs import GAMES, MEMBER, SEED, STEPS, Sampler, config, make_run, rewrite
from tests.made import repack, unpacked

Games = list[GameRecord]
COLOCATE, TURNS = "trainer.v1.trainer_mode=colocate_async", "batch_unit=turns"
OPPONENTS = ["games=[TicTacToe]", "draw_retry.enabled=true", "draw_retry.max_retries=2"]
#: By name: what is set. The first game of each step counts.
RUNS = {
    "games": [],
    "turns": [TURNS, "data.train_batch_size=40"],
    "asynchronous": [COLOCATE],
    "separate": ["trainer.v1.trainer_mode=separate_async"],
    "asynchronous turns": [TURNS, COLOCATE],
    "batch": ["algorithm.rae.update=batch", "algorithm.rae.initial=0.25", "algorithm.rae.decay=0.5"],
    "filters": ["algorithm.filter_draws=true", "algorithm.filter_zero_advantages=true", "rules.truncated=mask"],
    "groups": ["algorithm.adv_estimator=grpo_role", "data.games_per_start=4", "data.train_batch_size=3"],
    "every second": ["records.every=2"],
    "openings": ["games=[TicTacToe,{id: KuhnPoker, random_opening: 1}]", "algorithm.gamma=0.9"],
    "opponents": OPPONENTS,
    "opponents, one baseline": [*OPPONENTS, "algorithm.rae.by_opponent=false"],
    "rejects": ["algorithm.rollout_correction.rollout_rs=seq_mean_k3"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes each run once."""
    folder = tmp_path_factory.mktemp("runs")
    return cache(lambda name: make_run(folder / name, *RUNS[name], opponents="opponents" in name))


@pytest.fixture
def run(made: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a run, to change."""
    return lambda name: Path(shutil.copytree(made(name), tmp_path / "run"))


def audit(run_dir: Path) -> Auditor:
    auditor = Auditor(Settings(run_dir), run_dir)
    auditor.run()
    return auditor


@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_order(made: Callable[[str], Path], name: str) -> None:
    found = audit(made(name))
    assert found.problems == [] and found.checkpoints == [2, 4]
    games = sum(tally["games"] for tally in found.tallies.values())
    replayed = sum(tally["replayed"] for tally in found.tallies.values())
    assert games > 20 and replayed == games + sum(found.discarded.values()) - found.discarded["void"]
    assert report(found).splitlines()[-1].startswith(f"audit: ok, {games} games, ")
    dropped = {"turns": "surplus", "asynchronous": "stale", "separate": "stale", "opponents": "draw"}
    assert found.discarded[dropped.get(name.split()[0], "void")] > 0


# -- what is changed is found: each takes the games of step 3, whose first game counts and has turns -------------------


def _first(name: str, to: Any) -> Callable[[Games], None]:
    """Set a value of the step's first game; a path may go on into its first turn and that turn's tokens."""

    def change(games: Games) -> None:
        *path, last = name.split(".")
        place: Any = games[0]
        for part in path:
            place = place.turns[0] if part == "turn" else getattr(place, part)
        object.__setattr__(place, last, to(getattr(place, last)) if callable(to) else to)

    return change


def _add(number: float, place: int = 0) -> Callable[[Any], Any]:
    return lambda values: tuple(value + number * (place == at) for at, value in enumerate(values))


def _void(games: Games) -> GameRecord:
    return next(game for game in games if game.discarded == "void")


def _swap(games: Games) -> None:
    """In two games that were played as each other's."""
    games[4].key, games[5].key = games[5].key, games[4].key


def _self_play_given_up(games: Games) -> None:
    game = next(game for game in games if game.opponent == "self" and game.discarded is None)
    game.discarded, game.turns, game.baselines = "void", [], (None, None)


def _against(kind: str, **tokens: Any) -> Callable[[Games], None]:
    """Say of who does not learn, or in self-play of player 0, what wrote a turn."""

    def change(games: Games) -> None:
        game = next(game for game in games if game.opponent == kind and game.discarded is None)
        turn = next(turn for turn in game.turns if kind == "self" or turn.player not in game.trainable)
        assert turn.tokens is not None
        turn.tokens = replace(turn.tokens, **tokens)
        turn.advantage = turn.advantage if tokens else 1.0

    return change


def _draws_count(games: Games) -> None:
    retried = {game.key.index for game in games if game.discarded == "draw"}
    games[:] = [game for game in games if game.key.index not in retried or game.key.retry == 0]
    for game in games:
        game.discarded = None if game.key.index in retried else game.discarded


def _ages(first: int, last: int, place: int = 0) -> Callable[[Games], None]:
    def change(games: Games) -> None:
        for turn in games[place].turns:
            assert turn.tokens is not None
            turn.tokens = replace(turn.tokens, weight_versions=(first, last))

    return change


def _twice(games: Games) -> None:
    games.append(replace(copy.deepcopy(games[0]), key=replace(games[0].key, index=games[0].key.index + GAMES)))


def _opening_lost(games: Games) -> None:
    next(game for game in games if game.past).past = []


CHANGES: dict[str, tuple[str, Callable[[Games], Any], str]] = {
    "reward": ("games", _first("rewards", _add(0.25)), "game train-5-3-0-0 of .*, player 0: reward"),
    "advantage": ("games", _first("turn.advantage", lambda a: a + 1e-5), "turn 0 of player 0: advantage"),
    "no advantage": ("games", _first("turn.advantage", None), "turn 0 of player 0: advantage None"),
    "baseline": ("games", _first("baselines", _add(1e-5)), "train-5-3-0-0 .*, player 0: baseline"),
    "role": ("games", _first("turn.player", 1), "turn 0 of player 1: player 1 is 0 in the replay"),
    "action": ("games", _first("turn.action", "[none]"), r"turn 0 of player 0: action '\[none\]' is "),
    "verdict": ("games", _first("turn.verdict", "illegal"), "turn 0 of player 0: verdict 'illegal' is 'legal'"),
    "response": ("games", _first("turn.response", "none"), "turn 0 of player 0: verdict 'legal' is 'no_answer'"),
    "seen": ("games", _first("turn.observation", lambda seen: f"{seen} "), "turn 0 of player 0: observation"),
    "left out": ("games", _first("turn.left_out", "draw"), "left out for draw"),
    "termination": ("games", _first("termination", "turn_cap"), "termination 'turn_cap' is "),
    "turns lost": ("games", lambda games: games[0].turns.pop(), "goes on after the last"),
    "seed": ("games", _first("key.run_seed", 6), "is none of this run's and step's"),
    "another game": ("games", _first("game", "Nim"), r"is not what the seed drew: .* \('Nim', None, \(0, 1\)\) should"),
    "trainable": ("games", _first("trainable", (0,)), "of player 1: advantage .* should be None"),
    "weights": ("games", _ages(1, 2), r"turn 0 of player 0: weights \(1, 2\) should be \(2, 2\)"),
    "log-probabilities": ("games", _first("turn.tokens.log_probs", [0.5] * 9), "9 log-probabilities of "),
    "no tokens": ("games", _first("turn.tokens", None), "turn 0 of player 0: no tokens"),
    "game left out": ("games", lambda games: games.pop(), r"step 3: no game of index 11 \(1 missing\)"),
    "game twice": ("games", lambda games: games.append(copy.deepcopy(games[0])), "is there more than once"),
    "game added": ("games", _twice, "has no place in a step of 12"),
    "first try left out": ("games", lambda games: games.remove(_void(games)), "in place of a game that is not there"),
    "void trained": ("games", lambda games: setattr(_void(games), "baselines", (0.0, 0.0)), "baseline 0.0 should be N"),
    "other games' names": ("games", _swap, "of player . is |observation|not what the seed drew"),
    "opening": ("openings", _opening_lost, r"its start \[\] is \["),
    "a baseline of groups": ("groups", _first("baselines", _add(1e-5)), "player 0: baseline"),
    "surplus trained": ("turns", lambda games: setattr(games[-1], "discarded", None), "was trained, behind"),
    "trained is surplus": ("turns", _first("discarded", "surplus"), "is surplus, behind 0 turns of 40"),
    "a place beyond all": ("turns", lambda games: _first("key.index", 10**15)(games[-1:]), "is none of this run's"),
    "few turns": ("turns", lambda games: games.__delitem__(slice(2, None)), "fewer than 40"),
    "lost in flight": ("asynchronous", lambda games: games.pop(), "1 games are lost: neither in flight nor in the fi"),
    "too old": ("asynchronous", _ages(0, 2), "was trained with staleness 2, more than 1"),
    "from the future": ("separate", _ages(1, 3), "that step 3 trains: the last version is 2"),
    "dropped too soon": ("asynchronous", _ages(1, 2, place=4), "was dropped as stale, and has staleness 1 of 1"),
    "dropped trained": ("separate", lambda games: setattr(games[4], "discarded", None), "13 games were sampled"),
    "a member for the policy": ("opponents", _against("self", answered_by=MEMBER), f"by {MEMBER}, should be None"),
    "the policy for a member": ("opponents", _against("pool", answered_by=None), f"by None, should be {MEMBER}"),
    "a member's turn is trained": ("opponents", _against("pool"), "advantage 1.0 should be None"),
    "draws count": ("opponents", _draws_count, "is a draw after 0 draws, and should have been played again"),
    "given up": ("opponents", _self_play_given_up, r"was discarded \(void\) and not played again"),
    "rejected, and trained": ("rejects", _first("turn.left_out", "rejected"), "advantage .* should be None"),
    "rejected": ("games", _first("turn.left_out", "rejected"), "left out for rejected, should be for None"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found(run: Callable[[str], Path], change: str) -> None:
    name, tamper, expected = CHANGES[change]
    run_dir = run(name)
    for step in range(1, STEPS + 1) if change == "draws count" else (3,):  # not every step has a draw
        rewrite(run_dir, step, tamper)
    found = audit(run_dir)
    assert any(re.search(expected, problem) for problem in found.problems), found.problems
    assert len(found.problems) < 30, "one change is not a problem of every later game"


def test_a_game_that_is_trained_twice_and_steps_in_another_order(run: Callable[[str], Path]) -> None:
    run_dir = run("asynchronous")
    folder = RecordFolder(run_dir / "games")
    first, second = (list(folder.read_step("train", step)) for step in (1, 2))
    rewrite(run_dir, 4, lambda games: games.append(first[0]))
    assert any(f"game {first[0].key} is there again: step 1 has it" in line for line in audit(run_dir).problems)
    folder.write("train", 1, second)
    folder.write("train", 2, first)
    assert any("baseline" in line for line in audit(run_dir).problems)


def test_verls_rejections_are_known_where_the_config_rejects(run: Callable[[str], Path]) -> None:
    run_dir = run("rejects")

    def reject(games: Games) -> None:
        for game in games[:3]:
            game.turns[0].left_out, game.turns[0].advantage = "rejected", None

    rewrite(run_dir, 3, reject)
    found = audit(run_dir)
    assert found.problems == [] and "note: 3 turns were left out by rollout_rs" in report(found)


# -- files and folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda lines: lines.reverse(), "stands behind .*: not in their order"),
        (
            lambda lines: lines.__setitem__(0, lines[0].replace('"response_ids":[', '"response_ids":[7,')),
            ":1: .*written",
        ),
        (
            lambda lines: lines.__setitem__(0, re.sub(',"digest":"[^"]*"', "", lines[0])),
            ":1: game .* as it was written",
        ),
        (lambda lines: lines.__setitem__(0, lines[0].replace('"rewards":[', '"rewards":["')), ":1: not a game's rec"),
        (lambda lines: lines.__setitem__(-1, lines[-1][:-60]), ":13: not a game's record"),
        (
            lambda lines: lines.__setitem__(0, lines[0].replace('"trainable":[0,1]', '"trainable":[7]')),
            ":1: not a game",
        ),
    ],
)
def test_a_changed_line_is_found(run: Callable[[str], Path], change: Callable[[list[str]], Any], expected: str) -> None:
    run_dir = run("games")
    file = RecordFolder(run_dir / "games").file("train", 3)
    lines = [line.decode() for line in unpacked(file).splitlines()]
    change(lines)
    repack(file, "\n".join(lines) + "\n")
    problems = audit(run_dir).problems
    assert any(re.search(expected, problem) for problem in problems), problems


def test_a_file_that_is_cut_short_gone_or_another_runs(run: Callable[[str], Path], tmp_path: Path) -> None:
    run_dir = run("games")
    folder = RecordFolder(run_dir / "games")
    whole = {step: folder.file("train", step).read_bytes() for step in range(1, STEPS + 1)}
    folder.file("train", 2).write_bytes(whole[2][:-100])
    cut = audit(run_dir).problems
    assert any(re.search(r"^train_step_000002\.jsonl\.gz:\d+: .* is cut short", problem) for problem in cut)
    folder.file("train", 2).write_bytes(whole[2])
    for step in whole:
        folder.file("train", step).unlink()
        assert audit(run_dir).problems == [f"step {step}: no file of games"]
        folder.file("train", step).write_bytes(whole[step])
    folder.file("train", 3).write_bytes(whole[2])
    assert sum("is none of this run's and step's" in problem for problem in audit(run_dir).problems) == GAMES + 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda state: state["baselines"]["values"][0].__setitem__(3, 0.5), "baseline of KuhnPoker, player 0: 0.5 sh"),
        (lambda state: state["baselines"]["values"].pop(), "baseline of TicTacToe, player 1: 0 should be"),
        (lambda state: state.update(step=3), "is of step 3 and seed 5"),
        (lambda state: state.pop("baselines"), "KeyError: 'baselines'"),
        (lambda state: state.update(baselines={"values": [[5, 0, "self", 0]]}), "baseline of "),
    ],
)
def test_a_checkpoint_that_differs(run: Callable[[str], Path], change: Callable[[Any], Any], expected: str) -> None:
    run_dir = run("games")
    file = run_dir / "checkpoints" / "global_step_4" / "spiral.json"
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))
    problems = audit(run_dir).problems
    assert problems and problems[0].startswith("checkpoint 4: ")
    assert any(problem.startswith(f"checkpoint 4: {expected}") for problem in problems)


def test_a_checkpoint_that_names_a_trained_game_or_is_damaged(run: Callable[[str], Path]) -> None:
    run_dir = run("asynchronous")
    key = next(RecordFolder(run_dir / "games").read_step("train", 1)).key
    file = run_dir / "checkpoints" / "global_step_4" / "spiral.json"
    state = json.loads(file.read_text())
    state["in_flight"].append([key.step, key.index, None])
    file.write_text(json.dumps(state))
    assert any("1 games in flight were trained" in problem for problem in audit(run_dir).problems)
    file.write_text("[" * 100_000)
    assert len(audit(run_dir).problems) == 1


def test_checkpoints_elsewhere_and_those_of_another_history(run: Callable[[str], Path], tmp_path: Path) -> None:
    run_dir, elsewhere = run("games"), tmp_path / "elsewhere"
    (run_dir / "checkpoints").rename(elsewhere)
    OmegaConf.save(config(tmp_path, f"trainer.default_local_dir={elsewhere}"), run_dir / CONFIG)
    # beyond the tracker's, of a run that went back to an earlier step
    state = {"step": 40, "settings": {"seed": SEED}, "baselines": {"values": []}}
    write_state(elsewhere / "global_step_40", state)
    found = audit(run_dir)
    assert (found.checkpoints, found.problems) == ([2, 4], [])


@pytest.mark.parametrize("change", [{"adv_estimator": "gae"}, {"use_kl_in_reward": True}])
def test_advantages_that_do_not_follow_from_outcomes(run: Callable[[str], Path], change: dict[str, Any]) -> None:
    run_dir = run("games")
    settings = OmegaConf.load(run_dir / CONFIG)
    OmegaConf.update(settings, "algorithm", change)
    OmegaConf.save(settings, run_dir / CONFIG)
    found = audit(run_dir)
    assert "note: advantages were not recomputed" in report(found)
    assert not any("advantage" in problem for problem in found.problems)


def test_the_commands_statuses(run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0: in order; 1: problems; 2, with one line: what is no run."""
    run_dir = run("games")
    assert main([str(run_dir)]) == 0
    rewrite(run_dir, 3, lambda games: games.pop())
    assert main([str(run_dir)]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("audit: 1 problem, ")
    assert main([str(tmp_path / "none")]) == 2
    for content in ("seed: [", "trainer: {}"):
        (run_dir / CONFIG).write_text(content)
        assert main([str(run_dir)]) == 2
    shutil.rmtree(run_dir / "games")
    OmegaConf.save(config(tmp_path), run_dir / CONFIG)
    assert main([str(run_dir)]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and error.count("spiral: ") == 4


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
