"""Policies that are known, read: exactly from their log-probabilities, within intervals from their answers."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from recipe.spiral.evaluation.equilibrium import kuhn_poker
from recipe.spiral.evaluation.exploitability import measure
from recipe.spiral.evaluation.information_sets import ENUMERATED, game_tree
from recipe.spiral.evaluation.policy_reading import read_player, read_records, read_scores, ways, wilson
from recipe.spiral.evaluation.tabulated import uniform
from recipe.spiral.games import make
from recipe.spiral.match import Rules
from recipe.spiral.players import Position, RandomPlayer, Response
from recipe.spiral.prompts import extract_answer
from recipe.spiral.seeds import GameKey
from tests.made import boxed, run_match

KUHN = game_tree("KuhnPoker")
#: What is said at an observation, with probabilities.
Says = Mapping[str, Mapping[str, float]]


class FakeModel:
    """Answers from a known distribution over texts; can be scored, and can sit at the table."""

    name = "policy"

    def __init__(self, says: Says, cut_off: bool = False) -> None:
        self.says, self.cut_off = says, cut_off
        self.asked: list[str] = []

    def score(self, questions: Sequence[tuple[str, Sequence[str]]]) -> list[list[float]]:
        self.asked += [seen for seen, _ in questions]
        probabilities = [[self.says[seen].get(answer, 0.0) for answer in answers] for seen, answers in questions]
        return [[math.log(p) if p else -math.inf for p in row] for row in probabilities]

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("fake", position.player, position.turn))
        said = self.says[position.observation]
        return Response(rng.choices(list(said), list(said.values()))[0], cut_off=self.cut_off)


def model(table: np.ndarray, illegal: str = "I do not know.") -> FakeModel:
    """Says each action in two ways, one of them three times as often; and what is left over, something else."""
    says = {}
    for found, row in zip(KUHN.information_sets, table, strict=True):
        said = {illegal: 1 - row.sum()}
        for action, probability in zip(found.actions, row, strict=True):
            said |= {boxed(action): 0.75 * probability, boxed(action.strip("[]")): 0.25 * probability}
        says[found.observation] = said
    return FakeModel(says)


def test_scores_are_read_exactly() -> None:
    table = np.random.default_rng(0).dirichlet((1, 1, 1), size=12)[:, :2]
    fake = model(table)
    reading = read_scores(KUHN, fake.score)
    assert reading.table == pytest.approx(table)
    assert reading.illegal == pytest.approx(1 - table.sum(axis=1))
    assert reading.coverage == pytest.approx(table.sum(axis=1))
    low, high = reading.intervals()
    assert np.array_equal(low, high) and low[:, :2] == pytest.approx(table)


def test_what_is_said_otherwise_is_not_covered() -> None:
    only_boxed = read_scores(KUHN, model(uniform(KUHN)).score, ways=lambda game, action: (boxed(action),))
    assert only_boxed.coverage == pytest.approx(np.full(12, 0.75))


def test_an_equilibrium_is_measured_as_one() -> None:
    pytest.importorskip("pyspiel", reason="needs open-spiel")
    assert measure(read_scores(KUHN, model(kuhn_poker(0.2)).score)).nash_conv == pytest.approx(0, abs=1e-9)


def test_each_observation_is_asked_once() -> None:
    nim = game_tree("Nim")
    fake = FakeModel({found.observation: {boxed(found.actions[0]): 1.0} for found in nim.information_sets})
    reading = read_scores(nim, fake.score)
    assert len(fake.asked) == len(set(fake.asked)) == 119
    assert (reading.table[:, 0] == 1).all()


@pytest.mark.parametrize("game_id", ENUMERATED)
def test_every_way_is_read_as_its_action(game_id: str) -> None:
    game = make(game_id, 0)
    for action in game.actions:
        said = ways(game, action)
        assert boxed(action) in said and len(said) == len(set(said)) >= 2
        assert {game.parse(extract_answer(text) or "") for text in said} == {action}


def test_bad_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="0 lists of log-probabilities for 12 observations"):
        read_scores(KUHN, lambda questions: [])
    with pytest.raises(ValueError, match="1 log-probabilities for 4 answers"):
        read_scores(KUHN, lambda questions: [[-1.0]] * len(questions))
    for bad in (0.5, math.nan):
        with pytest.raises(ValueError, match="is no log-probability"):
            read_scores(KUHN, lambda questions, bad=bad: [[bad] * len(answers) for _, answers in questions])
    with pytest.raises(ValueError, match="more than 1 means that two of them are the same answer"):
        read_scores(KUHN, lambda questions: [[-0.1] * len(answers) for _, answers in questions])
    with pytest.raises(ValueError, match=r"no way is given to say \[check\]"):
        read_scores(KUHN, model(uniform(KUHN)).score, ways=lambda game, action: ())


def test_samples_are_judged_by_the_match() -> None:
    """No box, no action of the game, a box that is not closed: all the same. So is an action not possible now."""
    samples = 100
    for illegal in ("[bet]", boxed("raise"), "\\boxed{[bet"):
        reading = asyncio.run(read_player(KUHN, model(0.6 * uniform(KUHN), illegal), samples))
        assert reading.counts is not None
        assert (reading.counts.sum(axis=1) == samples).all()
        assert reading.illegal.mean() == pytest.approx(0.4, abs=0.06)
        assert reading.table.mean() == pytest.approx(0.3, abs=0.04)
    calls = asyncio.run(
        read_player(KUHN, FakeModel({found.observation: {boxed("[call]"): 1} for found in KUHN.information_sets}), 1)
    )
    for found, legal in zip(KUHN.information_sets, calls.coverage, strict=True):
        assert legal == ("[call]" in found.actions)


def test_samples_are_reproducible_and_differ_by_seed() -> None:
    first, again, other = (asyncio.run(read_player(KUHN, RandomPlayer(), 30, seed)).table for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_cut_off_answers() -> None:
    says = model(uniform(KUHN)).says
    judged = asyncio.run(read_player(KUHN, FakeModel(says, cut_off=True), 2))
    assert (judged.illegal == 1).all()
    read = asyncio.run(read_player(KUHN, FakeModel(says, cut_off=True), 2, rules=Rules(cut_off="read")))
    assert (read.illegal == 0).all()


def test_intervals_cover() -> None:
    """95% nominally, over 20 readings of 12 information sets with 3 shares each."""
    table = np.random.default_rng(1).dirichlet((2, 2, 1), size=12)[:, :2]
    truth = np.column_stack([table, 1 - table.sum(axis=1)])
    held = []
    for seed in range(20):
        low, high = asyncio.run(read_player(KUHN, model(table), 30, seed)).intervals()
        held.append((low <= truth) & (truth <= high))
    assert 0.92 < np.mean(held) < 0.98


def test_wilson() -> None:
    """Against the figures of Newcombe (1998): 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    for count, total, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert [float(limit) for limit in wilson(np.array(count), np.array(total))] == pytest.approx(
            [low, high], abs=5e-5
        )
    assert [float(limit) for limit in wilson(np.array(0), np.array(0))] == [0, 1]
    assert float(wilson(np.array(9), np.array(9))[1]) == 1


def test_read_off_games_that_were_played() -> None:
    fake = model(uniform(KUHN))
    records = [
        run_match(make("KuhnPoker", seed), (fake, fake), key=GameKey("train", 7, 1, seed)) for seed in range(300)
    ]
    reading = read_records(KUHN, records, player="policy")
    assert reading.counts is not None and reading.counts.sum() == sum(len(record.turns) for record in records)
    with pytest.raises(ValueError, match="no turn at 12 of 12 information sets"):
        read_records(KUHN, records, player="somebody else")
    with pytest.raises(ValueError, match="this is not TicTacToe"):
        read_records(game_tree("TicTacToe"), records)


def test_no_samples() -> None:
    with pytest.raises(ValueError, match="samples=0: must be at least 1"):
        asyncio.run(read_player(KUHN, RandomPlayer(), 0))
