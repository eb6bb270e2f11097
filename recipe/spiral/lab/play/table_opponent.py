"""Whom a person plays: a model that comes with the recipe, a folder of weights, a run, or a player without weights.

A model answers by transformers: for one person at a table vLLM's start takes longer than the game.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ...match import Rules
from ...players.player import Generation, Player, PolicyPlayer
from ...players.prompts import encoder
from ...players.records import Tokens
from ...storage.checkpoints import folder_of, latest
from ...storage.run_files import setting
from ..evaluation.policies import Asked, Policy, configs_of
from ..evaluation.policy_entries import parse
from ..evaluation.policy_weights import load, read_tokenizer
from ..models import EMBEDDED, MADE_FOR
from ..opponents import KINDS, check, make_player
from ..opponents.elsewhere import form_of, members_of

#: Players without weights, by name. (An endpoint needs settings.)
FIXED = tuple(kind for kind in KINDS if kind != "api")
#: How a model samples, unless its run's config or the person says otherwise.
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}


def find(
    game: str, model: str | None, cache: Path, template: str | None = None, temperature: float | None = None
) -> tuple[Player, Rules]:
    """The opponent of a name or path, with its weights loaded, and the rules by which it plays.

    Args:
        model: "random", "perfect", "alphabeta"; "tiny" or another of the recipe's models; the folder of a model, an
            adapter or a checkpoint; a run's folder, for its latest checkpoint, or ``RUN@STEP``; or a hub's id. None:
            "tiny" in the games that it is made for, else "random".
        cache: the folder for exported checkpoints.
        template: of a model's prompts; None: as its run has it, or the usual.
        temperature: of a model's sampling; None: alike.

    Raises:
        ValueError: there is none, it is damaged, or does not play this game.
        ImportError: a package is not installed.
    """
    if model is None:
        model = "tiny" if game in MADE_FOR["tiny"] else "random"
    if model in FIXED:
        if (template, temperature) != (None, None):
            raise ValueError(f"--template, --temperature: are for models; {model} has no weights")
        check(model, None, [game])
        return make_player(model), Rules()
    entry = model if model in EMBEDDED else _entry(model)
    run = None if isinstance(entry, str) else _run(Path(entry["path"]).expanduser())
    [policy] = parse([entry], cache, "MODEL", Asked(template))
    sampling = _settings(run, "actor_rollout_ref.rollout", _SAMPLING)
    if temperature is not None:
        sampling["temperature"] = temperature
    return _player(game, policy, sampling), rules_of(run)


def _entry(model: str) -> dict[str, Any]:
    """What an evaluation's list of policies has for a path, ``RUN@STEP``, or a hub's id."""
    path, _, step = model.rpartition("@")
    if step.isdecimal() and path and not Path(model).expanduser().exists():
        return {"path": path, "step": int(step)}
    run = Path(model).expanduser()
    if not run.is_dir() or form_of(run) is not None:
        return {"path": model}
    last = latest(folder_of(run))
    return {"path": model, "step": members_of(run, setting="MODEL")[-1][0] if last is None else last}


def _run(path: Path) -> DictConfig | None:
    """The config of the run that a path is, or belongs to."""
    return next((config for _, config in configs_of(path.absolute())), None) if path.is_dir() else None


def _settings(run: DictConfig | None, group: str, usual: Mapping[str, Any]) -> dict[str, Any]:
    """These settings of a run; the usual ones where it has none."""
    return {key: value if (own := setting(run, f"{group}.{key}")) is None else own for key, value in usual.items()}


def rules_of(run: DictConfig | None) -> Rules:
    """A run's rules; the usual ones without a run."""
    return Rules.from_config(OmegaConf.create(_settings(run, "rules", asdict(Rules()))))


def _player(game: str, policy: Policy, sampling: Mapping[str, float]) -> Player:
    """Load a model. Raises ValueError: the model, or its tokenizer, cannot be used."""
    from ...rollouts.end_tokens import end_tokens

    assert policy.model is not None
    tokenizer = read_tokenizer(policy.tokenizer)
    ends = end_tokens(policy.texts or policy.model, tokenizer.eos_token_id)
    prompt_length, response_length = policy.lengths
    return PolicyPlayer(
        generate=Transformers(policy.model, policy.adapter, ends, policy.name).generate,
        encode=encoder(tokenizer, *policy.prompt(game), **policy.asked.chat_template_kwargs),
        decode=lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)),
        sampling={**sampling, "max_tokens": response_length},
        prompt_length=prompt_length,
        name=policy.name,
    )


class Transformers:
    """A loaded model, on a GPU if there is one.

    Args:
        model, adapter: their folders; the adapter is LoRA's.
        ends: the tokens that end a response.
    """

    def __init__(self, model: Path, adapter: Path | None, ends: frozenset[int], name: str) -> None:
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.name, self.model, self._ends = name, load(model, adapter), ends

    async def generate(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        """A response, with the log-probability of each token under the distribution from which it was drawn.

        ``sampling`` has seed, max_tokens, temperature (0: the likeliest token), top_p, top_k (-1: all). Whoever else
        runs in this thread, such as a server, goes on between two tokens.
        """
        import torch

        warp = _warpers(sampling)
        generator = torch.Generator(self.model.device).manual_seed(sampling["seed"])
        tokens: list[int] = []
        log_probs: list[float] = []
        past, read = None, torch.tensor([prompt_ids], device=self.model.device)
        while len(tokens) < sampling["max_tokens"] and not self._ends.intersection(tokens[-1:]):
            with torch.inference_mode():
                output = self.model(input_ids=read, past_key_values=past, use_cache=True, logits_to_keep=1)
                log_p = torch.log_softmax(warp(read, output.logits[:, -1].float()), dim=-1)
                past, read = output.past_key_values, torch.multinomial(log_p.exp(), 1, generator=generator)
            tokens.append(int(read))
            log_probs.append(float(log_p[0, read]))
            await asyncio.sleep(0)
        truncated = not self._ends.intersection(tokens[-1:])
        return Generation(Tokens(prompt_ids, tokens, log_probs, None, self.name), truncated)


def _warpers(sampling: Mapping[str, Any]) -> Any:
    """What vLLM does to logits with these settings."""
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    temperature, top_k = sampling["temperature"], sampling["top_k"] if sampling["temperature"] else 1
    steps: list[Any] = [TemperatureLogitsWarper(float(temperature))] if temperature not in (0, 1) else []
    if top_k > 0:
        steps.append(TopKLogitsWarper(top_k))
    if sampling["top_p"] < 1:
        steps.append(TopPLogitsWarper(float(sampling["top_p"])))
    return LogitsProcessorList(steps)
