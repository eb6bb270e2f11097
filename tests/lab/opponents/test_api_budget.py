"""What endpoints may spend: counted, estimated where it must be, and by all processes and starts together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral import rollout
from recipe.spiral.lab.opponents.api_costs import COSTS, Costs, Usage
from recipe.spiral.lab.opponents.api_player import NotAsked
from tests.lab.evaluation.made_policies import Fakes, evaluation
from tests.lab.opponents.endpoint import Serve, completion, good, player, respond

pytest.importorskip("openai", reason="needs the extra 'api'")


@pytest.mark.parametrize(
    ("budget", "answers"),
    [
        ({"budget_tokens": 240}, 2),  # 120 a response
        ({"budget_usd": 0.001, "price_in": 1.0, "price_out": 15.0}, 3),  # 0.0004 a response
    ],
)
def test_the_budget_is_asked_before_the_endpoint(serve: Serve, budget: dict[str, Any], answers: int) -> None:
    endpoint = serve(good())
    who = player(endpoint, **budget)
    for _ in range(answers):
        respond(who)
    with pytest.raises(NotAsked, match="budget_"):
        respond(who)
    assert len(endpoint.requests) == answers


@pytest.mark.parametrize("counts", [(0, 0), (100, 0), (0, 100), (10**4000, 20), (100, 10**12), (True, True)])
def test_a_budget_binds_where_the_endpoint_counts_nothing(serve: Serve, counts: tuple[int, int]) -> None:
    usage = dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True))
    who = player(serve(good(completion("x" * 400, usage=usage))), budget_tokens=350)
    for _ in range(2):
        usage = Usage(**(respond(who).usage or {}))
        assert usage.estimated and 150 < usage.prompt_tokens + usage.response_tokens < 300
    with pytest.raises(NotAsked):
        respond(who)


def test_an_evaluations_budget_holds_for_all_its_starts_and_can_be_raised(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(good())

    def start(budget: int) -> int:
        """How many games' answers were paid for; a start's first question is not."""
        before = len(endpoint.requests)
        about = f'name: gpt, model: some, base_url: "{endpoint.url}", api_key_env: SOME_KEY, budget_tokens: {budget}'
        few = ["policies=[random]", f"opponents=[{{kind: api, {about}, max_concurrency: 1}}]"]
        with pytest.raises(NotAsked):
            evaluation(tmp_path, Fakes(), *few).run()
        return len(endpoint.requests) - before - 1

    assert [start(240), start(240), start(360)] == [2, 0, 1]


def test_processes_see_what_the_others_spend(tmp_path: Path) -> None:
    mine, other = Costs(tmp_path / COSTS), Costs(tmp_path / COSTS)
    for i in range(3):
        mine.add("gpt", Usage(10, 1, 0.5))
        other.add("claude" if i else "gpt", Usage(1, 1, None, True))
        assert mine.of("gpt") == other.of("gpt") == (11 * i + 13, 0.5 * (i + 1))
    assert mine.of("claude") == (4, 0.0)


def test_damaged_costs_are_not_nothing(tmp_path: Path) -> None:
    line = json.dumps({"name": "gpt", "prompt_tokens": 5})
    (tmp_path / COSTS).write_text(f"{line}\n{line[:-3]}", encoding="utf-8")
    assert Costs(tmp_path / COSTS).of("gpt") == (5, 0.0), "a process was killed within a line"
    (tmp_path / COSTS).write_text(f"{line[:-3]}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=COSTS):
        Costs(tmp_path / COSTS).of("gpt")


def test_a_budget_is_that_of_the_run(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """120 tokens a turn. Another process, or start, of the run goes on with what was spent."""
    endpoint = serve(good())
    place = {"kind": "api", "name": "gpt", "model": "m", "base_url": endpoint.url, "api_key_env": "SOME_KEY"}
    config = OmegaConf.create({"opponents": [{**place, "share": 0.5, "budget_tokens": 240}], "run_dir": str(tmp_path)})
    for answers in (2, 0):
        monkeypatch.setattr(rollout, "_players", {})
        who: Any = rollout.fixed_player("gpt", config)
        for _ in range(answers):
            respond(who)
        with pytest.raises(NotAsked, match="budget_tokens=240"):
            respond(who)
    assert len(endpoint.requests) == 2 and Costs(tmp_path / COSTS).of("gpt") == (240, 0.0)
