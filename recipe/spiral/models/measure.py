"""How good a small model is: how often it moves legally, whether it sees, and how it fares against random play."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..games import make
from ..match import Rules, play
from ..players import Player, PolicyPlayer, RandomPlayer
from ..prompts import Template
from ..records import GameRecord
from ..seeds import GameKey
from .examples import Seen, boxed
from .sampler import Sampler

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Responses scored in one forward pass.
CHUNK = 512


def probabilities(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    pairs: Sequence[tuple[str, str]],
) -> list[float]:
    """The probability at temperature 1 of each response, end token included, to its observation."""
    import torch

    encoded = [encode_pair(tokenizer, template, *pair) for pair in pairs]
    result = [0.0] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda i: len(encoded[i][0]) + len(encoded[i][1]))
    with torch.inference_mode():
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            log_p = response_log_probs(model, [encoded[i] for i in rows])
            for i, value in zip(rows, log_p.sum(dim=1).exp().tolist(), strict=True):
                result[i] = value
    return result


def encode_pair(
    tokenizer: PreTrainedTokenizerBase, template: Template, observation: str, response: str
) -> tuple[list[int], list[int]]:
    """Prompt ids and response ids, the end token included."""
    ids = tokenizer.encode(response, add_special_tokens=False)
    return template.encode(tokenizer, observation), [*ids, tokenizer.eos_token_id]


def response_log_probs(model: PreTrainedModel, pairs: Sequence[tuple[list[int], list[int]]]) -> Any:
    """Log-probabilities [batch, longest response] of the responses' tokens; 0 behind a response's end.

    Rows are padded on the right: what is causal needs no mask then.
    """
    import torch

    longest = max(len(prompt) + len(response) for prompt, response in pairs)
    width = max(len(response) for _, response in pairs)
    ids = torch.zeros(len(pairs), longest, dtype=torch.long)
    targets = torch.full((len(pairs), width), -100, dtype=torch.long)
    places = torch.zeros(len(pairs), width, dtype=torch.long)
    for row, (prompt, response) in enumerate(pairs):
        ids[row, : len(prompt) + len(response)] = torch.tensor(prompt + response)
        targets[row, : len(response)] = torch.tensor(response)
        places[row, : len(response)] = torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1)
    device = model.device
    targets, places = targets.to(device), places.to(device)
    hidden = model.model(input_ids=ids.to(device), use_cache=False).last_hidden_state
    hidden = hidden.gather(1, places[:, :, None].expand(-1, -1, hidden.shape[-1]))
    loss = torch.nn.functional.cross_entropy(
        model.lm_head(hidden).float().flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="none"
    )
    return -loss.view(targets.shape)


def read_back(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: Template, positions: Iterable[Seen]
) -> dict[str, float]:
    """How often it answers right at temperature 1, by "game/kind of question": the right answer's mean probability."""
    asked = [(f"{seen.game}/{q.kind}", q.about(seen.observation), q.answer) for seen in positions for q in seen.questions]
    p = probabilities(model, tokenizer, template, [(text, boxed(answer)) for _, text, answer in asked])
    by_kind = defaultdict(list)
    for (kind, _, _), value in zip(asked, p, strict=True):
        by_kind[kind].append(value)
    return {kind: sum(values) / len(values) for kind, values in by_kind.items()}


def legal(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: Template, positions: Iterable[Seen]
) -> dict[str, float]:
    """How often it answers with a legal action in canonical form, by game: the mean over positions."""
    moves = [(seen, action) for seen in positions for action in seen.legal]
    p = probabilities(model, tokenizer, template, [(seen.observation, boxed(action)) for seen, action in moves])
    total: dict[str, float] = defaultdict(float)
    number: dict[str, set[str]] = defaultdict(set)
    for (seen, _), value in zip(moves, p, strict=True):
        total[seen.game] += value
        number[seen.game].add(seen.observation)
    return {game: total[game] / len(number[game]) for game in total}


def play_games(players: Sequence[Player], game_id: str, games: int, seed: int) -> list[GameRecord]:
    """So many games side by side, each with its own key."""

    async def all_games() -> list[GameRecord]:
        keys = [GameKey("measure", seed, 0, index) for index in range(games)]
        return await asyncio.gather(
            *(play(key, game_id, make(game_id, key.seed("game")), players, (), Rules()) for key in keys)
        )

    return asyncio.run(all_games())


def in_play(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    game_id: str,
    games: int,
    seed: int,
    max_tokens: int = 16,
) -> dict[str, dict[str, float]]:
    """Play against itself and, in both roles, against random play, at temperature 1; random against random besides.

    Returns:
        By match-up ("self", "p0", "p1": the model's role against random play, "random"): the fraction of the model's turns
        that were legal, and how often player 0 ("self", "random") or the model ("p0", "p1") won, drew and lost.
    """
    sampler = Sampler(model, tokenizer.eos_token_id, max_tokens)
    policy = PolicyPlayer(
        sampler.generate,
        lambda observation: template.encode(tokenizer, observation),
        lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
        {},
        prompt_length=tokenizer.model_max_length,
    )
    rival = RandomPlayer()
    matchups: dict[str, tuple[Player, Player]] = {
        "self": (policy, policy),
        "p0": (policy, rival),
        "p1": (rival, policy),
        "random": (rival, rival),
    }
    return {name: _summary(play_games(pair, game_id, games, seed), pair, name == "p1") for name, pair in matchups.items()}


def _summary(records: list[GameRecord], pair: tuple[Player, Player], of_player: int) -> dict[str, float]:
    counted = [player for player in (0, 1) if pair[player].name == "policy"]
    verdicts = Counter(turn.verdict for record in records for turn in record.turns if turn.player in counted)
    results = Counter(record.result(of_player) for record in records)
    summary = {result: results[result] / len(records) for result in ("win", "draw", "loss")}
    if counted:
        summary["turns"] = verdicts.total()
        summary["legal"] = verdicts["legal"] / verdicts.total()
    return summary
