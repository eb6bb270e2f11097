"""How long games are: chains of turns, each with the tokens of its prompt and of its response.

They come from a run's records, or from random players with assumed responses.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from recipe.spiral.games import make
from recipe.spiral.match import Rules, play
from recipe.spiral.opponents.kinds import make_player
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.record_folder import RecordFolder

#: A turn: tokens of the prompt and of the response.
Turn = tuple[int, int]
Game = tuple[Turn, ...]
#: Draws a game.
Draw = Callable[[random.Random], Game]


def tokens(game: Game) -> int:
    """What is trained of a game: all its prompts and responses."""
    return sum(map(sum, game))


def of_run(run_dir: Path) -> dict[int, list[Game]]:
    """The trained games of a run's records, by step.

    Raises:
        ValueError: there are none, or they have no tokens.
    """
    steps: dict[int, list[Game]] = {}
    for record in RecordFolder(run_dir / "games").read("train"):
        if record.discarded is None:
            turns = [turn.tokens for turn in record.turns]
            game = tuple((len(turn.prompt_ids), len(turn.response_ids)) for turn in turns if turn is not None)
            if len(game) != len(turns):
                raise ValueError(f"{run_dir}: game {record.key} has no tokens; train with records.tokens=true")
            steps.setdefault(record.key.step, []).append(game)
    if not steps:
        raise ValueError(f"{run_dir}: has no records of trained games (games/train_step_*.jsonl.gz)")
    return steps


def of_random_players(names: Sequence[str], number: int, characters_a_token: float, template: int) -> list[Game]:
    """Games between random players, who move legally, without responses.

    Args:
        names: the games' ids, in equal parts.
        number: how many games.
        characters_a_token: what turns an observation's length into tokens.
        template: tokens of the prompt beside the observation.
    """
    player, games = make_player("random", {}, "random"), []
    for index in range(number):
        name, key = names[index % len(names)], GameKey("train", 0, 1, index)
        record = asyncio.run(play(key, name, make(name, key.game_seed()), (player, player), (0, 1), Rules()))
        prompts = [template + round(len(turn.observation) / characters_a_token) for turn in record.turns]
        games.append(tuple((prompt, 0) for prompt in prompts))
    return games


@dataclass(frozen=True)
class Responses:
    """Assumed lengths of responses: log-normal, cut at a limit.

    Attributes:
        mean: in tokens, before the cut.
        sigma: of the logarithm; 0: all are equally long.
        limit: in tokens.
    """

    mean: float
    sigma: float
    limit: int

    def draw(self, rng: random.Random) -> int:
        drawn = rng.lognormvariate(math.log(self.mean) - self.sigma**2 / 2, self.sigma)
        return max(1, min(round(drawn), self.limit))


def recorded(games: Sequence[Game]) -> Draw:
    """Any of these games."""
    return lambda rng: rng.choice(games)


def with_responses(games: Sequence[Game], responses: Responses) -> Draw:
    """Any of these games, with responses drawn anew."""
    return lambda rng: tuple((prompt, responses.draw(rng)) for prompt, _ in rng.choice(games))


def all_alike(draw: Draw, number: int = 2000) -> Draw:
    """Games that all have the mean number of turns, prompt and response of those drawn."""
    rng = random.Random(0)
    drawn = [draw(rng) for _ in range(number)]
    prompt, response = mean_turn(drawn)
    return lambda _: ((round(prompt), round(response)),) * round(mean_turns(drawn))


def mean_turns(games: Iterable[Game]) -> float:
    return fmean(map(len, games))


def mean_turn(games: Iterable[Game]) -> tuple[float, float]:
    """Mean tokens of a prompt and of a response."""
    turns = [turn for game in games for turn in game]
    return fmean(prompt for prompt, _ in turns), fmean(response for _, response in turns)
