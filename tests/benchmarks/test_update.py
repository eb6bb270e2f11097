"""Measurements of a run's update, and of its play, refuse in a line what they cannot measure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import rollout_efficiency, update
from recipe.spiral.storage.metrics_file import MetricsFile


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no tokens of step 2 are recorded; the run needs records.tokens=true"),
        (["--step", "999"], "no update of step 999"),
    ],
)
def test_a_step_without_an_update_or_without_tokens_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    MetricsFile(tmp_path).log({"timing_s/update_actor": 1.0}, 2)
    monkeypatch.setattr(sys, "argv", ["update.py", str(tmp_path), *options])
    with pytest.raises(SystemExit, match="2"):
        update.main()
    assert message in capsys.readouterr().err


def test_play_without_tokens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    monkeypatch.setattr(sys, "argv", ["rollout_efficiency.py", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        rollout_efficiency.main()
    assert "the run needs records.tokens=true" in capsys.readouterr().err
