"""Which evaluations a run's report shows, and what damaged ones do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.lab.report.evaluation_results import evaluations, folders


def test_evaluations_beside_the_run_are_its_own_by_their_policies_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, others = tmp_path / "spiral" / "a", tmp_path / "evaluation"
    run.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "spiral")
    inside = str(run / "pool" / "step_000020")
    told = {
        "of the run": {"policies": {"a": {"kind": "model", "run": str(run), "template": "chat"}}},
        "of a snapshot": {"policies": {"random": {"kind": "random"}, "step_20": {"path": inside}}},
        "of another": {"policies": {"ab": {"kind": "model", "run": f"{run}b"}}, "settings": {"note": str(run)}},
        "of nobody": {"policies": [str(run)]},
    }
    for name, manifest in told.items():
        (others / name).mkdir(parents=True)
        (others / name / "results.json").write_text(json.dumps({"manifest": manifest}))
    (others / "torn").mkdir()
    (others / "torn" / "results.json").write_text(f'{{"manifest": {{"policies": {{"a": {{"run": "{run}"}}')
    monkeypatch.chdir(run.parent)
    for folder in (run, tmp_path / "link" / "a", Path("a")):
        assert [place.name for place in folders(folder)] == ["of a snapshot", "of the run"]


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name, text in (("whole", '{"results": []}'), ("torn", '{"results": [')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(text)
    shown = evaluations([tmp_path / "whole", tmp_path / "torn"])
    assert [one["name"] for one in shown["evaluations"]] == ["whole"]
    assert shown["unreadable"] == ["torn: JSONDecodeError"]
