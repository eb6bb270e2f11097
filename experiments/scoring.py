"""Plays games with a policy and computes every player's score: the gradient of the log-probability of its answers.

There are two policies with the same model. "free" is the model as self-play samples it: any text, legal or not.
"legal" draws among the legal answers only, by the model's probabilities at a temperature. It is for games that the
model was not made for: there it does not know the form of an answer, and at temperature 1 prefers a single wording.
Actions are always drawn from the policy whose gradient is taken, because only then the mean of a score is zero.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.estimates import Scores
from recipe.spiral.games import make
from recipe.spiral.lab.models.forest import Scored, Tree, log_probs
from recipe.spiral.lab.models.measure import Reader
from recipe.spiral.lab.models.sampler import Sampler
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Player, Position, Response
from recipe.spiral.players.policy import PolicyPlayer
from recipe.spiral.players.prompts import boxed
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.records import GameRecord, Turn
from recipe.spiral.players.seeds import GameKey

if TYPE_CHECKING:
    import torch


class Sketch:
    """A count sketch: a random linear map to shorter vectors that keeps inner products in expectation.

    Each coordinate is added, with a random sign, to a random one of m buckets. For the map P, E[P^T P] is the identity,
    so E<Px, Py> = <x, y> for all x and y. The map's own variance is below (|x|^2 |y|^2 + <x, y>^2) / m. (Charikar, Chen
    and Farach-Colton, Finding frequent items in data streams, 2002.)

    Args:
        length: of the vectors.
        buckets: m.
        seed: of the map.
    """

    def __init__(self, length: int, buckets: int, seed: int) -> None:
        import torch

        rng = torch.Generator().manual_seed(seed)
        self._places = torch.randint(buckets, (length,), generator=rng)
        self._signs = torch.randint(2, (length,), generator=rng).mul_(2).sub_(1).to(torch.float32)
        self._buckets = buckets

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """[count, length] -> [count, buckets]"""
        return vectors.new_zeros(len(vectors), self._buckets).index_add_(1, self._places, vectors * self._signs)


@dataclass(frozen=True)
class Choice:
    """A turn as its policy saw it.

    Attributes:
        prompt_ids: the prompt's tokens.
        responses: the tokens of the legal answers; or of the sampled answer alone, if it was sampled from all texts.
        chosen: the index of the chosen response.
        temperature: of the choice among ``responses``; None: it was sampled from all texts.
    """

    prompt_ids: list[int]
    responses: tuple[list[int], ...]
    chosen: int
    temperature: float | None


class LegalPlayer:
    """Draws among the legal answers by their probabilities under a model, at a temperature."""

    name = "policy"

    def __init__(self, reader: Reader, temperature: float) -> None:
        self._reader, self._temperature = reader, temperature
        self._known: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        #: Its choices, by observation and response.
        self.choices: dict[tuple[str, str], Choice] = {}

    async def respond(self, position: Position) -> Response:
        legal = position.game.legal_actions()
        seen = (position.observation, legal)
        prompt_ids = self._reader.prompt(position.observation)
        responses = tuple(self._reader.response(action) for action in legal)
        if seen not in self._known:
            self._known[seen] = self._probabilities(prompt_ids, responses)
        rng = random.Random(position.key.seed("sampling", position.player, position.turn))
        chosen = rng.choices(range(len(legal)), self._known[seen])[0]
        text = boxed(legal[chosen])
        self.choices[position.observation, text] = Choice(prompt_ids, responses, chosen, self._temperature)
        return Response(text)

    def _probabilities(self, prompt_ids: list[int], responses: Sequence[list[int]]) -> list[float]:
        import torch

        with torch.inference_mode():
            sums = _sums(self._reader, [Choice(prompt_ids, tuple(responses), 0, self._temperature)])[0]
            return [float(p) for p in torch.softmax(sums / self._temperature, 0)]


def play_groups(
    game_id: str, players: tuple[Player, Player], seed: int, groups: int, k: int, trainable: tuple[int, ...] = (0, 1)
) -> list[GameRecord]:
    """Play groups of k games, group after group; the games of a group have the same start."""

    async def all_games() -> list[GameRecord]:
        first = [place - place % k for place in range(groups * k)]
        keys = [GameKey("experiment", seed, 0, place, group=start) for place, start in enumerate(first)]
        games = [play(key, game_id, make(game_id, key.game_seed()), players, trainable, Rules()) for key in keys]
        return await asyncio.gather(*games)

    return asyncio.run(all_games())


def play_and_score(
    reader: Reader,
    game_id: str,
    temperature: float | None,
    seed: int,
    groups: int,
    k: int,
    buckets: int,
    tick: Callable[[], object] = lambda: None,
) -> tuple[Scores, list[GameRecord]]:
    """Play groups of k games in self-play and score them.

    Args:
        reader: the model with its tokenizer and template.
        game_id: the game.
        temperature: of the choice among legal answers; None: the policy is "free".
        seed: of the games; the sketch is the same for every seed.
        groups, k: the number of groups, and of games in each group.
        buckets: the sketch's size.
        tick: called after each group.
    """
    import torch

    player, choice = _player(reader, temperature)
    records = play_groups(game_id, (player, player), seed, groups, k)
    length = sum(weight.numel() for weight in reader.model.parameters())
    sketch = Sketch(length, buckets, seed=0)
    rewards = np.array([record.rewards for record in records]).reshape(groups, k, 2)
    products, sums = [], []
    for number in range(groups):
        scores = torch.zeros(k, 2, length)
        for place, record in enumerate(records[number * k : (number + 1) * k]):
            for role in (0, 1):
                if turns := record.turns_of(role):
                    scores[place, role] = score(reader, [choice(turn) for turn in turns])
        flat = scores.flatten(0, 1)
        outcomes = torch.from_numpy(rewards[number]).float().flatten()
        products.append((flat @ flat.T).double().numpy())
        sums.append(sketch(torch.stack([outcomes @ flat, *scores.sum(0)])).double().numpy())
        tick()
    return Scores(rewards, np.stack(products), np.stack(sums)), records


def random_outcomes(game_id: str, games: int, seed: int) -> list[GameRecord]:
    """Games between players that draw their moves uniformly."""
    return play_groups(game_id, (RandomPlayer(), RandomPlayer()), seed, games, 1, ())


def score(reader: Reader, turns: Sequence[Choice]) -> torch.Tensor:
    """The gradient of the sum of the log-probabilities of the chosen responses, by all weights. [weights]"""
    import torch

    logs = []
    for sums, turn in zip(_sums(reader, turns), turns, strict=True):
        among = sums if turn.temperature is None else torch.log_softmax(sums / turn.temperature, 0)
        logs.append(among[turn.chosen])
    weights = list(reader.model.parameters())
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(torch.stack(logs).sum(), weights)])


def _sums(reader: Reader, turns: Sequence[Choice]) -> list[torch.Tensor]:
    """The log-probabilities of each turn's responses. [number of responses] each"""
    import torch

    trees = [Tree.of([Scored(turn.prompt_ids, ids) for ids in turn.responses]) for turn in turns]
    by_turn = log_probs(reader.model, trees).split([len(tree.owners) for tree in trees])
    return [
        tokens.new_zeros(len(turn.responses)).index_add(0, torch.tensor(tree.owners), tokens)
        for tokens, tree, turn in zip(by_turn, trees, turns, strict=True)
    ]


def _player(reader: Reader, temperature: float | None) -> tuple[Any, Callable[[Turn], Choice]]:
    """The player, and a function from its turns to choices."""
    if temperature is not None:
        player = LegalPlayer(reader, temperature)
        return player, lambda turn: player.choices[turn.observation, turn.response]
    sampler = Sampler(reader.model, reader.tokenizer.eos_token_id, max_tokens=16)
    return (
        PolicyPlayer(
            sampler.generate,
            lambda observation, history: reader.prompt(observation),
            lambda ids: str(reader.tokenizer.decode(ids, skip_special_tokens=True)),
            {},
            prompt_length=reader.tokenizer.model_max_length,
        ),
        _sampled,
    )


def _sampled(turn: Turn) -> Choice:
    assert turn.tokens is not None
    return Choice(turn.tokens.prompt_ids, (turn.tokens.response_ids,), 0, None)
