"""What reaches the console: a run's own lines, and nothing that libraries print."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from recipe.spiral.lab.run_progress import progress, steps_done
from recipe.spiral.processes.run_log import LOG
from recipe.spiral.processes.terminal import LIBRARIES_LOG, Follow, fail, prints_aside, quiet_logging


def test_libraries_print_into_a_file_and_the_runs_lines_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Follow(tmp_path), prints_aside(tmp_path):
        print("ray init kwargs: ...")
        warnings.warn("soon", FutureWarning, stacklevel=1)
        (tmp_path / LOG).write_text("step 1/2\n")
    print("done")
    assert capsys.readouterr() == ("step 1/2\ndone\n", "")
    assert (tmp_path / LIBRARIES_LOG).read_text() == "ray init kwargs: ...\n"


def test_what_strangers_wrote_does_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Follow(tmp_path):
        (tmp_path / LOG).write_text("3 games were void, the first: it says \x1b[2J\u202eok\n")
    assert fail("it says\n\x1b]0;title\x07", 1) == 1
    assert capsys.readouterr() == (
        "3 games were void, the first: it says \\x1b[2J\\u202eok\n",
        "spiral: it says \\x1b]0;title\\x07\n",
    )


def test_an_error_is_not_kept_back(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"), prints_aside(tmp_path):
        raise RuntimeError("failed")


def test_warnings_are_logged_and_chatter_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under Hydra, whose console handler shows everything."""
    console, root = logging.StreamHandler(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [console])
    quiet_logging()
    assert console.level == logging.WARNING
    assert not logging.getLogger("ray._private.authentication.authentication_token_setup").isEnabledFor(logging.WARNING)


def test_progress_is_a_line_for_each_tenth() -> None:
    lines: list[str] = []
    take = progress("job 1/2 seed=0", lines.append)
    for step in range(1, 41):
        take("validation at step 0: ...")
        take(f"step {step:>2}/40  0.1 s  ETA {40 - step}s")
    assert len(lines) == 10
    assert (lines[0], lines[-1]) == ("job 1/2 seed=0: step 4/40, ETA 36s", "job 1/2 seed=0: step 40/40, ETA 0s")


@pytest.mark.parametrize(("log", "steps"), [("step  3/40 x\nstep 4/40 y\nother", 4), ("going on after step 7 of 9", 7)])
def test_the_last_step_of_a_log(tmp_path: Path, log: str, steps: int) -> None:
    assert steps_done(tmp_path) == 0
    (tmp_path / LOG).write_text(log)
    assert steps_done(tmp_path) == steps
