"""The simulation of runs: limits that can be computed by hand, conservation of games, and the same result each time."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.clock import Clock, Process, Servers, Signal, Stuck
from benchmarks.scaling.engine import Engine
from benchmarks.scaling.figures import PARTS, Costs, EngineCosts, Host, LearnerCosts, h100
from benchmarks.scaling.games import Draw, Game, Responses, all_alike, of_random_players, recorded
from benchmarks.scaling.run import COLOCATE, DROP, MODES, SEPARATE, SYNC, WAIT, Result, Setup, simulate

ENGINE = EngineCosts(iteration=0.01, sequence=0.001, prompt_token=0.0001)
#: A poll that takes no time worth counting.
COSTS = Costs(ENGINE, LearnerCosts(fixed=1.0, token=0.001), update=0.5, poll=1e-3, retry=0.0)
#: Four turns of 100 and 20 tokens.
GAME: Game = ((100, 20),) * 4


def alike(_: random.Random) -> Game:
    return GAME


def mixed(rng: random.Random) -> Game:
    return tuple((rng.randint(50, 150), rng.randint(1, 60)) for _ in range(rng.randint(1, 9)))


def seconds_of(games: int, turns: int = 4, prompt: int = 100, response: int = 20) -> float:
    """Of so many equal games on one engine, which all start at once and so run side by side."""
    reading, writing = games * prompt * ENGINE.prompt_token, response * (ENGINE.iteration + ENGINE.sequence * games)
    return turns * (reading + writing)


def one(mode: str = SYNC, **changes: object) -> Setup:
    return replace(Setup(mode, engines=1, learner=1, batch=8, steps=12), **changes)  # type: ignore[arg-type]


# -- the clock and the engine ------------------------------------------------------------------------------------------


def test_processes_go_on_in_the_order_of_their_times_and_of_their_plans() -> None:
    clock, seen = Clock(), []

    def process(name: str, until: float) -> Process:
        yield until
        seen.append((name, clock.now))
        return name

    ended = [clock.start(process(name, until)) for name, until in (("b", 2.0), ("a", 1.0), ("c", 2.0))]
    clock.run(ended[2])
    assert seen == [("a", 1.0), ("b", 2.0), ("c", 2.0)]
    assert ended[0].value == "b"
    with pytest.raises(Stuck):
        clock.run(Signal())


def test_servers_serve_in_the_order_of_arrival() -> None:
    servers = Servers(Clock(), 2)
    assert [servers.serve(2.0), servers.serve(3.0), servers.serve(1.0)] == [2.0, 3.0, 3.0]
    assert servers.busy == 6.0


def finished(clock: Clock, signal: Signal) -> tuple[float, tuple[int, int]]:
    clock.run(signal)
    return clock.now, signal.value


def test_an_engine_writes_slower_for_more_sequences() -> None:
    clock = Clock()
    engine = Engine(clock, ENGINE)
    short, long = engine.generate(100, 20), engine.generate(100, 50)
    # both prompts, then 20 tokens of two sequences, then 30 of one
    assert finished(clock, short)[0] == pytest.approx(0.02 + 20 * 0.012)
    assert finished(clock, long)[0] == pytest.approx(0.02 + 20 * 0.012 + 30 * 0.011)
    engine.account()
    assert engine.tokens == pytest.approx(70)
    assert engine.busy == pytest.approx(clock.now)


def test_an_engine_lets_sequences_wait_that_are_too_many() -> None:
    clock = Clock()
    engine = Engine(clock, replace(ENGINE, most_sequences=1))
    first, second = engine.generate(0, 20), engine.generate(0, 20)
    assert finished(clock, first)[0] == pytest.approx(20 * 0.011)
    assert finished(clock, second)[0] == pytest.approx(2 * 20 * 0.011)


def test_a_response_that_is_broken_off_goes_on_with_other_weights_and_reads_what_it_has_again() -> None:
    clock = Clock()
    engine = Engine(clock, ENGINE, version=3)
    response = engine.generate(100, 20)

    def update() -> Process:
        yield 0.01 + 5 * 0.011
        broken_off = engine.pause()
        assert [(request.prompt, request.left) for request in broken_off] == [pytest.approx((105, 15))]
        yield clock.now + 1.0
        engine.resume(4)
        for request in broken_off:
            engine.take(request)

    clock.start(update())
    seconds, versions = finished(clock, response)
    assert seconds == pytest.approx(0.01 + 5 * 0.011 + 1.0 + 0.0105 + 15 * 0.011)
    assert versions == (3, 4)
    engine.account()
    assert engine.tokens == pytest.approx(20)


# -- limits that can be computed by hand -------------------------------------------------------------------------------


def test_sync_with_equal_games_on_one_device() -> None:
    result = simulate(one(), COSTS, alike)
    play, learn = seconds_of(8), 1.0 + 8 * 480 * 0.001
    seconds = play + learn + 0.5
    assert result.play == pytest.approx(play, abs=2e-3)
    assert result.seconds == pytest.approx(seconds, abs=2e-3)
    assert result.games == pytest.approx(8 / seconds, rel=1e-3)
    assert (result.turns, result.response_tokens) == pytest.approx((4 * result.games, 80 * result.games))
    assert result.engine_idle == pytest.approx(1 - play / seconds, rel=1e-3)
    assert result.learner_idle == pytest.approx(1 - learn / seconds, rel=1e-3)
    assert result.running == pytest.approx(8)
    assert result.staleness == {0: 1.0}


def test_twice_the_devices_play_and_train_half_as_long_but_for_what_is_fixed() -> None:
    result = simulate(one(engines=2, learner=2, workers=1), COSTS, alike)
    assert result.play == pytest.approx(seconds_of(4), abs=2e-3)
    assert result.learn == pytest.approx(1.0 + 4 * 480 * 0.001)


@pytest.mark.parametrize("mode", MODES)
def test_an_infinitely_fast_learner_leaves_the_engines_speed(mode: str) -> None:
    costs = replace(COSTS, learner=LearnerCosts(0.0, 0.0), update=0.0)
    costs = replace(costs, engine=replace(ENGINE, sequence=0.01, iteration=0.0, prompt_token=0.0))
    result = simulate(one(mode, steps=40), costs, alike)
    # an iteration takes 0.01 s for each of its sequences, so that a token takes as long however many there are
    assert result.response_tokens == pytest.approx(1 / 0.01, rel=0.02)
    assert result.learner_idle == pytest.approx(1.0)
    assert result.engine_idle == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("mode", (COLOCATE, SEPARATE))
def test_an_infinitely_fast_engine_leaves_the_learners_speed(mode: str) -> None:
    result = simulate(one(mode), COSTS.without("engine"), alike)
    learn = 1.0 + 8 * 480 * 0.001
    assert result.seconds == pytest.approx(learn + 0.5, rel=1e-3)
    assert result.learner_idle == pytest.approx(0.5 / (learn + 0.5), rel=1e-2)


def test_separate_async_takes_as_long_as_the_slower_of_both() -> None:
    """Whatever is played ahead, games are broken off for the weights alone, which take no time here."""
    slow = replace(COSTS, update=0.0, learner=LearnerCosts(10.0, 0.0))
    assert simulate(one(SEPARATE), slow, alike).seconds == pytest.approx(10.0, rel=1e-3)
    fast = replace(COSTS, update=0.0, learner=LearnerCosts(0.1, 0.0))
    assert simulate(one(SEPARATE, steps=40), fast, alike).engine_idle < 0.05
    assert simulate(one(SEPARATE), slow, alike).staleness == {1: 1.0}


def with_one_long_game(rng: random.Random) -> Game:
    """One of 60 games lasts 50 times as long."""
    return GAME * (50 if rng.randrange(60) == 0 else 1)


def test_sync_waits_for_a_game_that_is_50_times_as_long() -> None:
    result = simulate(one(steps=60), COSTS, with_one_long_game)
    alone = seconds_of(1, turns=49 * 4)
    assert result.longest_wait >= alone
    assert simulate(one(steps=60), COSTS, alike).longest_wait < alone / 20


@pytest.mark.parametrize("mode", (COLOCATE, SEPARATE))
def test_what_becomes_of_a_game_that_is_50_times_as_long(mode: str) -> None:
    settings = one(mode, steps=60, max_staleness=4)
    waiting = simulate(settings, COSTS, with_one_long_game)
    dropping = simulate(replace(settings, on_stale=DROP), COSTS, with_one_long_game)
    any_age = simulate(replace(settings, max_staleness=None), COSTS, with_one_long_game)
    assert waiting.dropped == any_age.dropped == 0
    assert dropping.dropped > 0
    assert max(waiting.staleness) <= 4 and max(dropping.staleness) <= 4 < max(any_age.staleness)
    assert waiting.games < dropping.games
    assert simulate(one(steps=60), COSTS, with_one_long_game).games < dropping.games


def test_each_rollout_worker_asks_the_replica_with_the_fewest_of_its_own_requests() -> None:
    """Eight workers with a game each know nothing of each other; one with eight games shares them out evenly."""
    assert simulate(one(engines=8, workers=1), COSTS, alike).running == pytest.approx(1.0)
    assert 1.2 < simulate(one(engines=8, workers=8), COSTS, alike).running < 3.0


@pytest.mark.parametrize(
    ("part", "costs"),
    [
        ("engine", COSTS),
        ("learner", COSTS),
        ("weight update", COSTS),
        ("rollout workers", replace(COSTS, worker_turn=0.1)),
        ("TransferQueue", replace(COSTS, queue_row=0.1, queue_byte=1e-5, token_bytes=50)),
        ("driver", replace(COSTS, driver_step=0.5, driver_row=0.1)),
    ],
)
def test_a_part_without_cost_makes_a_run_faster(part: str, costs: Costs) -> None:
    settings = one(COLOCATE, workers=1)
    assert simulate(settings, costs.without(part), mixed).games > 1.02 * simulate(settings, costs, mixed).games


def test_every_part_can_be_free() -> None:
    for part in PARTS:
        COSTS.without(part)
    with pytest.raises(ValueError, match="'luck': is no part; known: engine, learner"):
        COSTS.without("luck")


# -- what always holds -------------------------------------------------------------------------------------------------

setups = st.builds(
    Setup,
    mode=st.sampled_from(MODES),
    engines=st.integers(1, 3),
    learner=st.integers(1, 2),
    batch=st.integers(1, 9),
    steps=st.integers(4, 9),
    ahead=st.sampled_from((0.5, 1.0, 2.0)),
    max_staleness=st.sampled_from((2, 3, None)),
    on_stale=st.sampled_from((WAIT, DROP)),
    workers=st.integers(1, 2),
    seed=st.integers(0, 99),
)
slow = replace(COSTS, worker_turn=0.02, queue_row=0.01, driver_row=0.01, driver_key=1e-4, retry=1.0, poll=0.2)


@settings(max_examples=60, deadline=None)
@given(setups)
def test_no_game_is_lost_or_trained_twice(setup: Setup) -> None:
    result = simulate(setup, slow, mixed)
    assert result.trained == setup.steps * setup.batch
    assert result.launched == result.trained + result.dropped + result.in_flight
    assert result.in_flight == int(setup.ahead_batches * setup.batch)
    assert sum(result.staleness.values()) == pytest.approx(1.0)
    assert setup.max_staleness is None or max(result.staleness) <= setup.max_staleness
    assert 0 <= result.engine_idle <= 1 and 0 <= result.learner_idle <= 1
    assert setup.on_stale == DROP or result.dropped == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_gives_the_same_run(mode: str) -> None:
    def run(seed: int) -> Result:
        return simulate(one(mode, seed=seed), slow, mixed)

    assert run(1) == run(1) != run(2)


def test_games_have_the_same_lengths_in_every_mode() -> None:
    def lengths(mode: str) -> list[Game]:
        drawn: list[Game] = []

        def draw(rng: random.Random) -> Game:
            drawn.append(mixed(rng))
            return drawn[-1]

        simulate(one(mode), COSTS, draw)
        return drawn[:96]

    assert lengths(SYNC) == lengths(COLOCATE) == lengths(SEPARATE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "async"}, "mode='async': must be one of sync"),
        ({"on_stale": "keep"}, "on_stale='keep'"),
        ({"skip": 12}, "skip=12: must be from 0 to steps - 1, 11"),
        ({"mode": SEPARATE, "max_staleness": 1, "ahead": 2.0}, "max_staleness=1: must be at least ahead, 2"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one(**changes)  # type: ignore[arg-type]


# -- games and figures -------------------------------------------------------------------------------------------------


def test_games_of_random_players_have_their_own_lengths() -> None:
    games = of_random_players(["TicTacToe", "KuhnPoker"], 200, characters_a_token=4.0, template=60)
    tictactoe, kuhn = games[::2], games[1::2]
    assert {len(game) for game in tictactoe} <= set(range(5, 10)) and {len(game) for game in kuhn} == {2, 3}
    assert all(prompt > 60 and response == 0 for game in games for prompt, response in game)
    assert games == of_random_players(["TicTacToe", "KuhnPoker"], 200, characters_a_token=4.0, template=60)


def test_responses_have_their_mean_and_limit() -> None:
    rng, responses = random.Random(0), Responses(mean=1000, sigma=0.7, limit=100_000)
    drawn = [responses.draw(rng) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(1000, rel=0.03)
    assert max(replace(responses, limit=1500).draw(rng) for _ in range(1000)) == 1500
    assert {replace(responses, sigma=0.0).draw(rng) for _ in range(10)} == {1000}


def test_games_that_are_alike_have_the_others_means() -> None:
    draw: Draw = recorded([((10, 5),) * 2, ((30, 15),) * 4])
    game = all_alike(draw)(random.Random(0))
    assert len(game) == 3 and len(set(game)) == 1
    assert game[0] == pytest.approx((23, 12), abs=1)


HOST = Host(0.0005, 0.0005, 1e-9, 48, 1e-6, 0.1, 0.001)


def test_an_h100s_costs_follow_from_its_figures() -> None:
    costs = h100(HOST, engines=8, learner=8, context=1000)
    assert costs.engine.iteration == pytest.approx(0.002 + 8.04e9 / (0.7 * 3.35e12))
    assert costs.learner.token == pytest.approx(18 * 4.02e9 / (0.4 * 989e12))
    # long batches are bound by computing, short ones by gathering the weights
    long, short = costs.learner.seconds(8 * 160_000, 8) - 1.0, costs.learner.seconds(800, 8) - 1.0
    assert long == pytest.approx(160_000 * costs.learner.token)
    assert short == pytest.approx(costs.learner.micro_batch) and short > 10 * 100 * costs.learner.token
    further = [h100(HOST, number, number, 1000).learner.micro_batch for number in (1, 8, 16, 512)]
    assert further[0] == 0 and further[1] < further[2] == further[3]
    assert all(less <= more for less, more in pairwise(h100(HOST, n, n, 1000).update for n in (1, 8, 64)))
