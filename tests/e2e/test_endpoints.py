"""An endpoint whose quota is spent in the middle of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.opponents.endpoint import KEY, Endpoint, good, send

from .conftest import Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
WORDS = "You exceeded your current quota, please check your plan and billing details."


def test_a_run_says_what_an_endpoint_says_and_stops(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    refusal = json.dumps({"error": {"message": f"{WORDS} ({KEY})", "code": "insufficient_quota"}}).encode()
    endpoint = Endpoint(*(good() for _ in range(20)), send(429, refusal))
    with endpoint.serving():
        entry = f"{{kind: api, name: gpt, model: m, base_url: '{endpoint.url}', api_key_env: SOME_KEY, share: 0.25}}"
        settings = [f"opponents=[{entry}]", "trainer.total_training_steps=30", "validation.opponents=[random]"]
        runs.append(run := Run(tmp_path / "run", *small(model, *settings), environment={"SOME_KEY": KEY}))
        assert run.wait() == 3, run.output[-4000:]
    assert WORDS in run.last_line and "by max_void_steps=3: gpt: " in run.last_line
    assert f"games were void, the first: m: HTTP 429: {WORDS} (***)" in run.output
    assert len(endpoint.requests) < 200, "a few in each step by each process, with their retries"
    assert (tmp_path / "run/checkpoints/latest_checkpointed_iteration.txt").is_file()
    assert KEY not in run.output
    assert not any(KEY.encode() in file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file())
