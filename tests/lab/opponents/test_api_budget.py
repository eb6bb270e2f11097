"""What a player behind an endpoint spends: counted, estimated where it must be, and never beyond what it may."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from recipe.spiral.lab.opponents.api.endpoint_player import BudgetSpent
from recipe.spiral.lab.opponents.api.usage import Usage
from recipe.spiral.players.player import PlayerFailure, Response
from tests.lab.evaluation.made_policies import Fakes, evaluation
from tests.lab.opponents.asking import Serve, player, position, respond, run
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


def test_those_who_wait_see_what_was_spent_meanwhile(serve: Serve) -> None:
    """Beyond the limit goes at most one response for each place."""
    endpoint = serve(good(after=0.02))
    who = player(endpoint, budget_tokens=600, max_concurrency=3)

    async def main() -> list[Response | BaseException]:
        return await asyncio.gather(*(who.respond(position(index)) for index in range(30)), return_exceptions=True)

    results = run(main())
    answered = [result for result in results if isinstance(result, Response)]
    assert 5 <= len(answered) == len(endpoint.requests) <= 5 + 2
    assert all(isinstance(result, Response | BudgetSpent) for result in results)


def test_a_request_that_is_cancelled_is_counted_by_its_prompt(serve: Serve) -> None:
    who = player(serve(good(after=0.5)))
    with pytest.raises(TimeoutError):
        run(asyncio.wait_for(who.respond(position()), 0.2))
    assert 50 < who.costs.of(who.name).prompt_tokens < 200 and who.costs.of(who.name).estimated


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


@pytest.mark.parametrize("counts", [(1, 1), (100, 20), (100, 10**6)])
def test_the_endpoints_count_is_believed(serve: Serve, counts: tuple[int, int]) -> None:
    """Hidden reasoning counts as well."""
    assert respond(player(serve(good(completion("[4]", usage=usage(*counts)))))).usage == asdict(Usage(*counts))


def test_answers_that_are_no_use_are_paid_for_all_the_same(serve: Serve) -> None:
    who = player(serve(good(completion(None))))
    with pytest.raises(PlayerFailure):
        respond(who)
    assert who.costs.of(who.name) == Usage(100, 20)
