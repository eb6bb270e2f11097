"""What a player behind an endpoint spends: counted, estimated where it must be, and never beyond what it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.lab.opponents.api.endpoint_player import BudgetSpent
from recipe.spiral.lab.opponents.api.usage import Usage
from recipe.spiral.players.player import PlayerFailure
from tests.lab.evaluation.made_policies import Fakes, evaluation
from tests.lab.opponents.asking import Serve, player, respond
from tests.lab.opponents.endpoint import completion, good

pytest.importorskip("openai", reason="needs the extra 'api'")


def test_the_budget_is_asked_before_the_endpoint(serve: Serve) -> None:
    endpoint = serve(good())
    who = player(endpoint, budget_tokens=240)
    for _ in range(2):
        respond(who)
    with pytest.raises(BudgetSpent, match="budget_tokens") as info:
        respond(who)
    assert isinstance(info.value, PlayerFailure)
    assert len(endpoint.requests) == 2


def test_money_is_counted_too(serve: Serve) -> None:
    endpoint = serve(good())
    who = player(endpoint, budget_usd=0.001, price_in=1.0, price_out=15.0)  # 0.0004 a response
    for _ in range(3):
        respond(who)
    assert who.costs.of(who.name).cost == pytest.approx(0.0012)
    with pytest.raises(BudgetSpent, match="budget_usd"):
        respond(who)
    assert len(endpoint.requests) == 3


def test_an_evaluations_budget_holds_for_all_its_starts_and_can_be_raised(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(good())

    def start(budget: int) -> int:
        """How many games' answers were paid for; a start's first question is not."""
        before = len(endpoint.requests)
        about = f'name: gpt, model: some, base_url: "{endpoint.url}", api_key_env: SOME_KEY, budget_tokens: {budget}'
        few = ["policies=[random]", f"opponents=[{{kind: api, {about}, max_concurrency: 1}}]"]
        with pytest.raises(BudgetSpent):
            evaluation(tmp_path, Fakes(), *few).run()
        return len(endpoint.requests) - before - 1

    assert [start(240), start(240), start(360)] == [2, 0, 1]


def usage(read: object, written: object) -> dict[str, object]:
    return {"prompt_tokens": read, "completion_tokens": written}


@pytest.mark.parametrize("counts", [(0, 0), (100, 0), (0, 100), (10**4000, 20), (100, 10**12), (True, True)])
def test_a_budget_binds_where_the_endpoint_counts_nothing(serve: Serve, counts: tuple[int, int]) -> None:
    who = player(serve(good(completion("x" * 400, usage=usage(*counts)))), budget_tokens=350)
    for _ in range(2):
        assert 150 < Usage(**(respond(who).usage or {})).tokens < 300
    with pytest.raises(BudgetSpent):
        respond(who)
    assert who.costs.of(who.name).estimated
