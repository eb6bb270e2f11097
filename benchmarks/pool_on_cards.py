"""Estimates what a pool with full weights costs on several cards: one engine for each member, and one on every card.

    python benchmarks/pool_on_cards.py [--cards 8] [--games 32 512] [--members 1 2 8] [--gigabytes 8] ...

No engine runs: steps are simulated, with times and sizes that are guesses (the options' defaults: Qwen3-4B on cards of
80 GB). Half of the games are self-play, half are against the members of the step. An engine writes a token of all its
responses at a time; the device's part of that time is shared by the engines that are busy on the same card. A member's
engine has room for some responses at a time; others wait. Loading reads the weights from the host's page cache, and
waking copies them from its pinned memory. How many slots there are and who is in which is the trainer's own code.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace

from recipe.spiral.opponents.engine_settings import number_of_slots
from recipe.spiral.processes.arguments import Arguments, within
from recipe.spiral.workers.engine.slots import assign

OPTIONS = {
    "cards": (8, "number of cards"),
    "turns": (6, "mean number of turns of a game, both players together"),
    "tokens": (600.0, "mean number of tokens of a response"),
    "host-ms": (3.0, "milliseconds of a token that no device is needed for"),
    "device-ms": (3.5, "milliseconds of a token on the device: reading the weights"),
    "response-ms": (0.05, "milliseconds more on the device for each response of the engine: reading its cache"),
    "room": (32, "responses at a time in a member's engine: what is left of a fifth of the memory, as key-value cache"),
    "gigabytes": (8.0, "size of a member's weights"),
    "load": (3.0, "GB/s at which one engine loads weights"),
    "all-load": (20.0, "GB/s at which all engines of a host load together"),
    "copy": (20.0, "GB/s at which a card copies weights to or from the host"),
    "steps": (10, "number of simulated steps, whose means are shown"),
}


@dataclass
class Response:
    """One that is being written, or waits for room: its game, its engine, and how many tokens are missing."""

    game: int
    engine: str
    left: float


def main() -> int:
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("--games", type=within(int, 1), nargs="+", default=[32, 512], help="numbers of games of a step")
    parser.add_argument(
        "--members", type=within(int, 1), nargs="+", default=[1, 2, 8], help="numbers of members of a step"
    )
    for name, (default, text) in OPTIONS.items():
        kind = within(int, 1) if isinstance(default, int) else within(float, 1e-9)
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({default})")
    options = parser.parse_args()
    print("seconds of a step without its update\n")
    print("| games | members | their engines | play | with loading them anew | with their sleep and waking |")
    print("| --- | --- | --- | --- | --- | --- |")
    for games in options.games:
        for members in options.members:
            kinds = [SimpleNamespace(devices="shared", replicas=replicas) for replicas in (1, None)]
            for slots in sorted({number_of_slots(kind, members, options.cards, 1) for kind in kinds}):
                playing = fmean(play(options, games, members, slots, seed) for seed in range(options.steps))
                loading = options.gigabytes / min(options.load, options.all_load / slots)
                copying = 2 * options.gigabytes / options.copy  # to the host and back
                print(
                    f"| {games} | {members} | {slots} | {playing:.1f} | {playing + loading:.1f} | "
                    f"{playing + copying:.1f} |"
                )
    return 0


def play(options: argparse.Namespace, games: int, members: int, slots: int, seed: int) -> float:
    """Seconds until the last game of a step is over."""
    draw = random.Random(seed)
    assigned = assign([None] * slots, [f"member {i}" for i in range(members)])
    seated = Counter[int]()
    engines: list[tuple[str, str]] = []  # of each game, one for each player
    for game in range(games):
        policy = f"policy {game % options.cards}"
        other = policy
        if draw.random() < 0.5:
            name = f"member {draw.randrange(members)}"
            slot = min((slot for slot in range(slots) if assigned[slot] == name), key=lambda slot: seated[slot])
            seated[slot] += 1
            other = f"slot {slot}"
        engines.append((policy, other) if draw.random() < 0.5 else (other, policy))
    turns = [max(2, round(draw.gauss(options.turns, options.turns / 4))) for _ in engines]
    return simulate(options, engines, [[draw.expovariate(1 / options.tokens) + 1 for _ in range(n)] for n in turns])


def simulate(
    options: argparse.Namespace, engines: Sequence[tuple[str, str]], lengths: Sequence[Sequence[float]]
) -> float:
    """Go from one response's end to the next; a game's next turn begins when the one before has ended."""
    done = [0] * len(engines)
    responses = [Response(game, engines[game][0], lengths[game][0]) for game in range(len(engines))]
    now = 0.0
    while responses:
        batch = Counter[str]()
        writing: list[Response] = []
        for response in responses:  # in the order in which they came
            if response.engine.startswith("policy") or batch[response.engine] < options.room:
                batch[response.engine] += 1
                writing.append(response)
        busy = Counter(card(engine, options.cards) for engine in batch)
        seconds = {
            engine: (
                options.host_ms + (options.device_ms + options.response_ms * count) * busy[card(engine, options.cards)]
            )
            / 1000
            for engine, count in batch.items()
        }
        passed = min(response.left * seconds[response.engine] for response in writing)
        now += passed
        for response in writing:
            response.left -= passed / seconds[response.engine]
        ended = [response.game for response in writing if response.left < 1e-9]
        responses = [response for response in responses if response.left >= 1e-9]
        for game in ended:
            done[game] += 1
            if (turn := done[game]) < len(lengths[game]):
                responses.append(Response(game, engines[game][turn % 2], lengths[game][turn]))
    return now


def card(engine: str, cards: int) -> int:
    """Where an engine is: they are given the cards in turn."""
    return int(engine.split()[1]) % cards


if __name__ == "__main__":
    sys.exit(main())
