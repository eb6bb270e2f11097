"""``--no-replay`` takes what games answered as recorded, says so, and checks all the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.players.records import GameRecord
from recipe.spiral.storage.record_folder import RecordFolder
from tests.lab.audit.test_audit import GAMES, STEPS, audit, make_run
from tests.made import unpacked


def test_a_run_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report, found = audit(make_run(tmp_path), capsys, "--no-replay")
    assert (status, found["problems"]) == (0, [])
    assert (
        sum(found["not_replayed"].values()) == sum(tally["games"] for tally in found["games"].values()) == STEPS * GAMES
    )
    assert "games were not replayed: TicTacToe: --no-replay" in report
    assert all(tally["replayed"] == 0 and tally["largest"]["advantage"] < 1e-6 for tally in found["games"].values())


@pytest.mark.parametrize("what", ["reward", "baseline", "advantage", "observation"])
def test_what_is_changed_is_found_without_a_replay_unless_the_game_alone_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """A reward that is changed contradicts the advantage; a text, under a digest of its own, the replay alone."""
    run_dir = make_run(tmp_path)
    file = RecordFolder(run_dir / "games").file("train", 3)
    lines = [json.loads(line) for line in unpacked(file).splitlines()]
    for line in lines:
        line.pop("digest")
    game = next(line for line in lines if line["turns"] and line["discarded"] is None)
    if what == "reward":
        game["rewards"] = [0.25, -0.25]
    elif what == "baseline":
        game["baselines"][game["turns"][0]["player"]] += 0.5
    else:
        game["turns"][0][what] = "another text" if what == "observation" else 7.0
    RecordFolder(run_dir / "games").write("train", 3, map(GameRecord.from_dict, lines))
    assert audit(run_dir, capsys)[0] == 1
    assert audit(run_dir, capsys, "--no-replay")[0] == int(what != "observation")
