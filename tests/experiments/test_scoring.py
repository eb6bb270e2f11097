"""Scores are gradients of the policy that played, and their inner products survive the sketch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recipe.spiral.games import make

torch = pytest.importorskip("torch")

from experiments.scoring import Choice, Sketch, play_and_score, random_outcomes, score  # noqa: E402
from recipe.spiral.lab.models.measure import Reader  # noqa: E402


def choices(reader: Reader, temperature: float | None) -> list[Choice]:
    """Every choice in the first position of Kuhn poker."""
    game = make("KuhnPoker", 0)
    responses = tuple(reader.response(action) for action in game.legal_actions())
    prompt = reader.prompt(game.observation(0))
    if temperature is None:
        return [Choice(prompt, (response,), 0, None) for response in responses]
    return [Choice(prompt, responses, chosen, temperature) for chosen in range(len(responses))]


def log_prob(reader: Reader, prompt: list[int], response: list[int]) -> Any:
    """As the model itself says it, without trees."""
    logits = reader.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None]).sum()


def test_a_free_score_is_the_gradient_of_the_responses_log_probability(reader: Reader) -> None:
    first, second = choices(reader, None)
    both = sum(log_prob(reader, turn.prompt_ids, turn.responses[0]) for turn in (first, second))
    weights = list(reader.model.parameters())
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(both, weights)])
    torch.testing.assert_close(score(reader, [first, second]), expected, rtol=1e-3, atol=1e-5)


def test_the_legal_policys_score_has_mean_zero(reader: Reader) -> None:
    turns = choices(reader, 2.0)
    logs = torch.stack([log_prob(reader, turns[0].prompt_ids, ids) for ids in turns[0].responses])
    weights = torch.softmax(logs.detach() / 2.0, 0)
    scores = torch.stack([score(reader, [turn]) for turn in turns])
    assert (weights @ scores).norm() < 1e-4 * scores.norm()


def test_groups_share_their_start_and_nothing_else(reader: Reader) -> None:
    scores, records = play_and_score(reader, "KuhnPoker", 2.0, seed=3, groups=3, k=4, buckets=64)
    assert scores.rewards.shape == (3, 4, 2) and scores.products.shape == (3, 8, 8) and scores.sums.shape == (3, 3, 64)
    assert {turn.verdict for record in records for turn in record.turns} == {"legal"}
    starts = [{record.turns[0].observation for record in records[i : i + 4]} for i in (0, 4, 8)]
    assert all(len(start) == 1 for start in starts)
    assert len({tuple(turn.action for turn in record.turns) for record in records}) > 1
    again, _ = play_and_score(reader, "KuhnPoker", 2.0, seed=3, groups=3, k=4, buckets=64)
    np.testing.assert_array_equal(scores.products, again.products)


def test_a_free_player_that_errs_is_scored_and_the_other_has_no_score(reader: Reader) -> None:
    scores, records = play_and_score(reader, "KuhnPoker", None, seed=0, groups=2, k=2, buckets=64)
    assert {record.termination for record in records} == {"illegal"}
    sizes = np.diagonal(scores.products, axis1=1, axis2=2).reshape(2, 2, 2)
    movers = np.array([records[i].turns[0].player for i in range(4)]).reshape(2, 2)
    for group, game in np.ndindex(2, 2):
        assert sizes[group, game, movers[group, game]] > 0
        assert sizes[group, game, 1 - movers[group, game]] == 0


def test_random_play_has_its_known_edge() -> None:
    records = random_outcomes("TicTacToe", 500, seed=0)
    wins = np.mean([record.result(0) == "win" for record in records])
    assert 0.5 < wins < 0.65  # docs/games.md: 57.7%


def test_a_sketch_keeps_inner_products_in_expectation() -> None:
    torch.manual_seed(0)
    first, other = torch.randn(2, 3000)
    second = first + other  # their product is near |first|^2
    products = [torch.mul(*Sketch(3000, 256, seed)(torch.stack([first, second]))).sum().item() for seed in range(100)]
    exact, bound = float(first @ second), float(np.sqrt(float(first @ first * (second @ second)) * 2 / 256))
    assert np.mean(products) == pytest.approx(exact, abs=4 * bound / np.sqrt(100))
    assert np.std(products) < 1.2 * bound
