"""Which evaluations a run's report shows, and what damaged ones do."""

from __future__ import annotations

from pathlib import Path

from recipe.spiral.report.evaluation import evaluations


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, field in (("whole", "x"), ("long", "x" * 200_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text('{"results": []}')
        (tmp_path / name / "actions.csv").write_text(f"policy,game\n{field},KuhnPoker\n")
    shown = evaluations(tmp_path, [tmp_path / "whole", tmp_path / "long"])
    assert [one["name"] for one in shown["evaluations"]] == ["whole"]
    assert shown["unreadable"] == ["long: Error"]
