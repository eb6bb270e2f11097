"""The simulated runs of docs/scaling.md: Qwen3-4B on H100s, in the three modes, and what each part holds up.

A part's share in holding up a run is what the run gains if the part costs nothing. The part that gains most is the
bottleneck: a part may be busy most of the time, and yet nobody waits for it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from . import games
from .figures import H100, PARTS, QWEN3_4B, Host, h100
from .games import Draw, Game
from .run import COLOCATE, DROP, MODES, SEPARATE, SYNC, WAIT, Result, Setup, simulate

#: What the presets for Qwen3-4B play.
GAMES = ("TicTacToe", "KuhnPoker-5")
SIZES = (8, 64, 512)
#: Games of a step for each device, and in the runs whose batch is the same on any number of devices.
GAMES_A_DEVICE, FIXED = 16, 128
#: Simulated steps, by the number of devices.
STEPS = {8: 32, 64: 12, 512: 6}
#: Shares of the devices that engines may have in separate_async; the best one on few devices is taken.
ENGINE_SHARES = (0.25, 0.5, 0.75)
#: Games of the same length, instead of some that are longer than others.
ALIKE = "longest games"
#: In the table of long games one game in so many lasts so many times as long; and the simulated steps.
LONG_ONE_IN, LONG_TIMES, LONG_STEPS = 1000, 50, 80
#: The paper's run: 128 turns a step, 225 s a step (400 steps in about 25 hours on eight H100).
PAPER_TURNS, PAPER_SECONDS = 128, 225.0


@dataclass(frozen=True)
class Machine:
    """H100s with the measured host, and the games that are played on them."""

    host: Host
    drawn: Draw
    alike: Draw
    context: float

    @classmethod
    def of(cls, host: Host) -> Machine:
        m = {key: figure.value for key, figure in QWEN3_4B.items()}
        played = games.of_random_players(GAMES, 1000, m["characters"], int(m["template"]))
        responses = games.Responses(m["response_mean"], m["response_sigma"], int(m["response_limit"]))
        drawn = games.with_responses(played, responses)
        rng = random.Random(0)
        turns = [turn for _ in range(2000) for turn in drawn(rng)]
        # tokens that a running sequence has, on average over the tokens that are written
        context = sum(r * (p + r / 2) for p, r in turns) / sum(r for _, r in turns)
        return cls(host, drawn, games.all_alike(drawn), context)

    def run(self, one: Setup, without: str | None = None, draw: Draw | None = None) -> Result:
        """A run's result, with a part that costs nothing, or with other games."""
        costs = h100(self.host, one.engines, one.learner, self.context)
        return simulate(one, costs if without is None else costs.without(without), draw or self.drawn)


def setup(mode: str, devices: int, batch: int, engine_share: float) -> Setup:
    engines = round(devices * engine_share) if mode == SEPARATE else devices
    learner = devices - engines if mode == SEPARATE else devices
    storages = -(-devices // int(H100["node"].value))
    return Setup(mode, engines, learner, batch, steps=STEPS[devices], storages=storages)


def predict(host: Host, known: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """The results of the page, more of them after each run that is simulated; all take minutes.

    The gain of a part is the share of games that a run plays more in the same time if the part costs nothing.

    Args:
        host: what is measured.
        known: results that an earlier call gave for the same host; it goes on from there.
    """
    machine, measured = Machine.of(host), json.loads(json.dumps(asdict(host)))
    if known is None or known["host"] != measured:
        rng = random.Random(0)
        drawn = [machine.drawn(rng) for _ in range(2000)]
        prompt, response = games.mean_turn(drawn)
        lengths = {"turns": games.mean_turns(drawn), "prompt": prompt, "response": response, "context": machine.context}
        known = {"host": measured, "games": lengths, "engine_share": best_share(machine), "paper": paper(machine)}
        known |= {"scaled": [], "fixed": [], "long": long_games(machine, known["engine_share"])}
    scaled, share = known["scaled"], known["engine_share"]
    for devices, mode in list(product(SIZES, MODES))[len(scaled) :]:
        one = setup(mode, devices, devices * GAMES_A_DEVICE, share)
        if one.batch != FIXED:
            small = replace(one, batch=FIXED)
            known["fixed"].append(row(small, machine.run(small)))
        scaled.append(row(one, machine.run(one)) | {"gains": {}})
        yield known
    for found in scaled:
        one = setup(found["mode"], found["devices"], found["batch"], share)
        for part in (*PARTS, ALIKE):
            if part not in found["gains"]:
                without = machine.run(one, draw=machine.alike) if part == ALIKE else machine.run(one, part)
                found["gains"][part] = without.games / found["result"]["games"] - 1
                yield known


def best_share(machine: Machine) -> float:
    """The share of eight devices with which separate_async plays most games."""
    few = min(SIZES)
    return max(ENGINE_SHARES, key=lambda share: machine.run(setup(SEPARATE, few, few * GAMES_A_DEVICE, share)).games)


def row(one: Setup, result: Result) -> dict[str, Any]:
    shown = {"devices": one.devices, "mode": one.mode, "engines": one.engines, "batch": one.batch, "steps": one.steps}
    return shown | {"on_stale": one.on_stale, "result": result.to_dict()}


def long_games(machine: Machine, share: float) -> list[dict[str, Any]]:
    """Eight devices, where few games last much longer than the others."""

    def draw(rng: random.Random) -> Game:
        game = machine.drawn(rng)
        return game * LONG_TIMES if rng.randrange(LONG_ONE_IN) == 0 else game

    rows = []
    for mode, on_stale in ((SYNC, WAIT), (COLOCATE, WAIT), (COLOCATE, DROP), (SEPARATE, WAIT), (SEPARATE, DROP)):
        devices = min(SIZES)
        one = replace(setup(mode, devices, devices * GAMES_A_DEVICE, share), on_stale=on_stale, steps=LONG_STEPS)
        rows.append(row(one, machine.run(one, draw=draw)))
    return rows


def paper(machine: Machine) -> dict[str, float]:
    """The paper's batch on eight devices in sync mode, beside what the paper reports of its own program."""
    turns = sum(len(machine.drawn(random.Random(index))) for index in range(2000)) / 2000
    one = setup(SYNC, 8, max(round(PAPER_TURNS / turns), 1), 0.5)
    return {"batch": one.batch, "seconds": machine.run(one).seconds, "reported": PAPER_SECONDS}
