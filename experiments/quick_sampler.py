"""Samples from a small model without an engine, and computes nothing twice: not even what the loss needs.

The distribution after a text changes only with the weights. In a small game nearly every text comes again, so after the
first games of a step sampling is a look-up. The graph of each distribution is kept, so that the update needs no forward
pass of its own. Texts that begin alike go through the model as a tree.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Coroutine, Iterable, Sequence
from math import log
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from recipe.spiral.lab.models.answer_scores import Scored, Tree, distributions
from recipe.spiral.players.player import Generation
from recipe.spiral.players.records import Tokens

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Text = tuple[int, ...]
#: A prompt and a response.
Row = tuple[Text, Text]
Finished = TypeVar("Finished")
#: A tree of texts gets no further one beyond this many tokens: attention is computed between all of them.
TREE_TOKENS = 256
#: At most so many responses to a prompt are computed before they are sampled.
USUAL = 16
#: In a game with at most so many prompts all of them are computed at once.
FEW = 32


class Distributions:
    """The distributions of the next token after texts, each computed once until ``forget`` is called.

    Args:
        model: a causal language model; its weights may change between two calls of ``forget``.
        trained: whether the distributions keep the graph that a loss needs.
        temperature: by which logits are divided.
    """

    def __init__(self, model: PreTrainedModel, trained: bool, temperature: float = 1.0) -> None:
        self.model, self.trained, self.temperature = model, trained, temperature
        #: By text: which row of the tensors of ``_log_p``, one after another, has its distribution.
        self._places: dict[Text, int] = {}
        self._log_p: list[torch.Tensor] = []
        #: By text: the cumulative probabilities of the next token.
        self.sums: dict[Text, np.ndarray[Any, Any]] = {}

    def forget(self) -> None:
        """Call this when the weights have changed."""
        self._places, self._log_p, self.sums = {}, [], {}

    def look_up(self, rows: Iterable[Row]) -> None:
        """Compute what is not known yet of the distributions that sample these responses to these prompts, and of those
        that follow the prompts."""
        import torch

        missing: defaultdict[Text, list[Text]] = defaultdict(list)
        for prompt, response in sorted(set(rows)):
            # what follows the last token is not sampled; an empty response asks for what follows the prompt
            if any(prompt + response[:end] not in self._places for end in range(max(1, len(response)))):
                missing[prompt].append(response or (0,))
        if not missing:
            return
        groups: list[list[Scored]] = [[]]
        tokens = 0
        for prompt, responses in missing.items():
            if tokens > TREE_TOKENS:
                groups.append([])
                tokens = 0
            groups[-1] += [Scored(list(prompt), list(response)) for response in responses]
            tokens += len(prompt) + sum(map(len, responses))
        trees = list(map(Tree, groups))
        with torch.set_grad_enabled(self.trained):
            log_p, which = distributions(self.model, trees)
            if self.temperature != 1:
                log_p = torch.log_softmax(log_p / self.temperature, dim=-1)
        sums = log_p.detach().double().exp().cumsum(-1).cpu().numpy()
        start, target = sum(map(len, self._log_p)), iter(which.tolist())
        for context, continuation, *_ in (scored for group in groups for scored in group):
            for end in range(len(continuation)):
                text, row = (*context, *continuation[:end]), next(target)
                if text not in self._places:
                    self._places[text] = start + row
                    self.sums[text] = sums[row]
        self._log_p.append(log_p)

    def of(self, rows: Collection[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The distributions that sample responses.

        Returns:
            Log-probabilities of all tokens at each place of the responses [rows, longest, vocabulary], those of the
            tokens that were sampled [rows, longest], and a mask of these [rows, longest].
        """
        import torch

        self.look_up(rows)
        longest = max(len(response) for _, response in rows)
        places, ids = torch.zeros((2, len(rows), longest), dtype=torch.long)
        mask = torch.zeros((len(rows), longest))
        for i, (prompt, response) in enumerate(rows):
            ids[i, : len(response)] = torch.tensor(response)
            places[i, : len(response)] = torch.tensor(
                [self._places[prompt + response[:j]] for j in range(len(response))]
            )
            mask[i, : len(response)] = 1.0
        device = self.model.device
        log_p = torch.cat(self._log_p)[places.to(device)]
        return log_p, log_p.gather(-1, ids.to(device)[..., None])[..., 0], mask.to(device)


class CachedSampler:
    """``generate`` for ``PolicyPlayer``, from the whole vocabulary.

    Args:
        model: its mode and its device stay as they are.
        eos: the token that ends a response, kept in it.
        max_tokens: the longest response, in tokens.
        trained: whether the distributions keep the graph that a loss needs.
        temperature: of sampling, and of the distributions.
    """

    def __init__(
        self, model: PreTrainedModel, eos: int, max_tokens: int, trained: bool = False, temperature: float = 1.0
    ) -> None:
        self.eos, self.max_tokens = eos, max_tokens
        self.distributions = Distributions(model, trained, temperature)
        #: By prompt: how often each response was given so far.
        self._given: defaultdict[Text, Counter[Text]] = defaultdict(Counter)
        #: The responses that were given most, to any prompt.
        self._usual: list[Text] = [()]

    def forget(self) -> None:
        """Call this when the weights have changed."""
        self.distributions.forget()
        given: Counter[Text] = Counter()
        for responses in self._given.values():
            given.update(responses)
        self._usual = _most(given) or [()]

    async def generate(self, prompt_ids: list[int], sampling: Any) -> Generation:
        return await _Request(self, prompt_ids, int(sampling["seed"]))

    def sample(self, prompts: Sequence[list[int]], seeds: Sequence[int]) -> list[Generation]:
        """One response to each of the prompts."""
        draws = [random.Random(seed) for seed in seeds]
        begun: list[Text] = [tuple(prompt) for prompt in prompts]
        log_probs: list[list[float]] = [[] for _ in prompts]
        going, known = list(range(len(prompts))), self.distributions.sums
        few = self._given.keys() if len(self._given) <= FEW else set()
        self._look_up({*begun, *few} - known.keys())
        for _ in range(self.max_tokens):
            self.distributions.look_up((text, ()) for text in {begun[i] for i in going} - known.keys())
            for i in going:
                sums = known[begun[i]]
                token = min(int(sums.searchsorted(draws[i].random() * sums[-1], side="right")), len(sums) - 1)
                log_probs[i].append(log((sums[token] - (sums[token - 1] if token else 0.0)) / sums[-1]))
                begun[i] += (token,)
            going = [i for i in going if begun[i][-1] != self.eos]
            if not going:
                break
        answers = []
        for prompt, text, chosen in zip(prompts, begun, log_probs, strict=True):
            response = text[len(prompt) :]
            self._given[tuple(prompt)][response] += 1
            answers.append(Generation(Tokens(prompt, list(response), chosen, None), response[-1] != self.eos))
        return answers

    def _look_up(self, prompts: Iterable[Text]) -> None:
        """Compute what is likely to be sampled after these prompts."""
        usual = {prompt: _most(self._given[prompt]) if prompt in self._given else self._usual for prompt in prompts}
        self.distributions.look_up((prompt, response) for prompt in usual for response in usual[prompt])


def _most(given: Counter[Text]) -> list[Text]:
    return [response for response, _ in given.most_common(USUAL)]


class _Request:
    """Awaiting it gives the answer that ``play_out`` sends."""

    def __init__(self, sampler: CachedSampler, prompt: list[int], seed: int) -> None:
        self.sampler, self.prompt, self.seed = sampler, prompt, seed

    def __await__(self) -> Any:
        return (yield self)


def play_out(games: Sequence[Coroutine[Any, Any, Finished]]) -> list[Finished]:
    """Play games to their ends, in which nothing but ``CachedSampler.generate`` is awaited; returns what they return.

    All turns that wait are answered at once. An event loop would do the same in three times the time.
    """
    finished: dict[int, Finished] = {}
    answers: dict[int, Generation | None] = dict.fromkeys(range(len(games)))
    try:
        while answers:
            waiting: defaultdict[CachedSampler, list[tuple[int, _Request]]] = defaultdict(list)
            for number, answer in answers.items():
                try:
                    request = games[number].send(answer)
                    waiting[request.sampler].append((number, request))
                except StopIteration as end:
                    finished[number] = end.value
            answers = {}
            for sampler, requests in waiting.items():
                given = sampler.sample([asked.prompt for _, asked in requests], [asked.seed for _, asked in requests])
                answers |= zip((number for number, _ in requests), given, strict=True)
    finally:
        for game in games:
            game.close()
    return [finished[number] for number in range(len(games))]
