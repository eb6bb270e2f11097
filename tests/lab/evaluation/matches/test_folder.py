"""An evaluation's folder: what a kill leaves, and what may be continued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.evaluation.evaluation_folder import (
    GAMES,
    EvaluationFolder,
    Manifest,
    read_games,
)
from recipe.spiral.match import Rules
from tests.lab.evaluation.made import at_random, game_of, manifest, plan

MINE = manifest("a", "random", sampling={"top_p": 1.0}, max_response_length=None)
GAME, *_ = plan()


def filled(folder: Path, told: Manifest = MINE) -> Manifest:
    """Add a game, and return what the folder is then."""
    with EvaluationFolder(folder, told) as made:
        made.add(game_of(GAME))
        return made.manifest


def test_what_a_kill_cut_off_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    records = [*map(at_random, plan(3)), replace(game_of(GAME), reason="\u2028\x00\r\n")]
    with EvaluationFolder(tmp_path, MINE) as folder:
        for record in records:
            folder.add(record)
    whole = (tmp_path / GAMES).read_bytes()
    for cut in (1, 60):
        (tmp_path / GAMES).write_bytes(whole + whole[:-cut][-100_000:].splitlines()[-1][:-cut])
        assert list(read_games(tmp_path)) == records, "whoever reads meanwhile does not see it"
        EvaluationFolder(tmp_path, MINE).close()
        assert (tmp_path / GAMES).read_bytes() == whole
    for record in records[:-1]:
        assert differences(record, replay(record, Rules())) == []


@pytest.mark.parametrize("change", [(b'"rewards":[1.0', b'"rewards":[0.0'), (b'"game"', b'"gam"')])
def test_a_line_that_was_changed_is_named(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    filled(tmp_path)
    filled(tmp_path)
    first, second = (tmp_path / GAMES).read_bytes().splitlines(keepends=True)
    (tmp_path / GAMES).write_bytes(first + second.replace(*change))
    with pytest.raises(ValueError, match=r"games\.jsonl: line 2 "):
        list(read_games(tmp_path))
