"""A tiny language model for chosen games: a Qwen3 of a million parameters, made on this machine in some minutes.

It is a Hugging Face folder like any other (config, safetensors, fast tokenizer with chat template). It answers in the
right form, sees what is in front of it, and plays at random: the start of self-play, not its result. What was measured
of it is in the folder, in ``warm_start.json``.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..games import resolve
from ..play.prompts import Template, boxed, get_template
from ..play.seeds import derive_seed
from . import MADE_FOR
from .cache import cache_dir, provide
from .examples import Seen, hold_out, made_up, random_play
from .read_back import check_games
from .warm_start import Criteria, NotGoodEnough, Positions, Schedule, warm_up

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

#: Goes into the cache's key: to be raised when models come out differently from the same texts and sizes.
VERSION = 2
DEFAULT_GAMES = MADE_FOR["tiny"]
FIGURES = "warm_start.json"
#: Of each attention head: the smallest that vLLM's attention has on every device.
HEAD_DIM = 32
#: Of weights when they are new. Qwen's 0.02 is for wide models; with this width it learns to look up a square late.
INITIAL_STD = 0.08
POSITIONS = 1024
#: Games of random play: for the tokenizer and the cache's key, and for the positions to learn from.
TEXT_GAMES, POSITION_GAMES, HELD_OUT, MADE_UP = 200, 3000, 100, 2000


@dataclass(frozen=True)
class Spec:
    """All that decides what a tiny model is.

    Attributes:
        games: ids of the games that it is made for; order and aliases make no difference.
        template: the name of the prompts' template.
        seed: decides weights and examples.
        hidden_size: a multiple of 32; there is a head for every 32.
        layers: transformer layers.
        lines: whether it is asked about lines as well; for TicTacToe (``read_back.line_questions``).
        schedule: how it is warmed up.
        criteria: when it is good enough.
    """

    games: tuple[str, ...] = DEFAULT_GAMES
    template: str = "chat"
    seed: int = 0
    hidden_size: int = 128
    layers: int = 4
    lines: bool = False
    schedule: Schedule = field(default_factory=Schedule)
    criteria: Criteria = field(default_factory=Criteria)

    def __post_init__(self) -> None:
        object.__setattr__(self, "games", tuple(sorted({resolve(game) for game in self.games})))
        if not self.games:
            raise ValueError("games=(): name at least one game")
        check_games(self.games)
        get_template(self.template)
        if self.lines and "TicTacToe" not in self.games:
            raise ValueError(
                f"asked about TicTacToe's lines: the games must have TicTacToe, not only {', '.join(self.games)}"
            )
        if self.hidden_size < HEAD_DIM or self.hidden_size % HEAD_DIM:
            raise ValueError(f"hidden_size={self.hidden_size}: must be a multiple of {HEAD_DIM}")
        if self.layers < 1:
            raise ValueError(f"layers={self.layers}: must be at least 1")

    def minutes(self) -> int:
        """About how many it takes on one core, if the first round is enough; more on a slow machine."""
        return max(1, round(self.schedule.steps * self.schedule.questions / 900))

    def texts(self) -> list[str]:
        """Everything that the model will read and write, for the tokenizer, without special tokens."""
        from .tokenizer import chat_texts

        template = get_template(self.template)
        texts = set()
        for seen in (seen for game in self.games for seen in random_play(game, TEXT_GAMES, 0, self.lines)):
            for text in (seen.observation, *(question.about(seen.observation) for question in seen.questions)):
                texts.update(_prompt_texts(template, text, chat_texts))
            texts.update(boxed(action) for action in seen.legal)
            texts.update(boxed(question.answer) for question in seen.questions)
        return sorted(texts)

    def key(self, texts: Sequence[str]) -> str:
        """What the cache calls it: another text, size, seed, schedule or criterion is another model."""
        prompt = asdict(get_template(self.template))
        if not prompt["examples"]:
            del prompt["examples"]  # as it was before there were any
        whole = {"version": VERSION, **asdict(self), "prompt": prompt, "texts": texts}
        if not self.lines:
            del whole["lines"]  # likewise
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def ensure(
    games: Sequence[str] = DEFAULT_GAMES,
    template: str = "chat",
    seed: int = 0,
    hidden_size: int = 128,
    layers: int = 4,
    lines: bool = False,
    schedule: Schedule | None = None,
    criteria: Criteria | None = None,
    cache: str | Path | None = None,
    force: bool = False,
    accept: bool = False,
    progress: bool = True,
) -> Path:
    """The folder of a tiny model, made now if it is not in the cache: some minutes on one core.

    Args:
        games, template, seed, hidden_size, layers, lines, criteria: see ``Spec``.
        schedule: how it is warmed up; None: as long as so many games need.
        cache: where models are kept; None: see ``cache.cache_dir``.
        force: make it anew.
        accept: take the model even if it does not meet the criteria (its ``warm_start.json`` says which); it is kept
            apart, and never taken for one that meets them.
        progress: show a bar on stderr.

    Raises:
        ValueError: a game, a template or a size that does not do.
        NotGoodEnough: the criteria are not met after the last round.
    """
    schedule = schedule or Schedule.of(len({resolve(game) for game in games}), lines)
    spec = Spec(tuple(games), template, seed, hidden_size, layers, lines, schedule, criteria or Criteria())
    texts = spec.texts()
    folder = cache_dir(cache) / f"tiny-{spec.key(texts)}{'-accepted' * accept}"
    return provide(folder, lambda new: build(spec, texts, new, accept, progress), force)


def build(spec: Spec, texts: Sequence[str], folder: Path, accept: bool = False, progress: bool = True) -> None:
    """Make the model and write it into an empty folder.

    Raises:
        NotGoodEnough: the criteria are not met, and ``accept`` is False; nothing is written.
    """
    if progress:
        print(
            f"making a tiny language model for {', '.join(spec.games)} (once; about {spec.minutes()} min on one core)",
            file=sys.stderr,
            flush=True,
        )
    started = time.monotonic()
    with _own_randomness(derive_seed(spec.seed, "weights")):
        from tqdm import tqdm

        from .measure import Reader
        from .tokenizer import train as train_tokenizer

        tokenizer = train_tokenizer(texts, max_length=POSITIONS)
        model = new_model(spec, tokenizer)
        reader = Reader(model, tokenizer, get_template(spec.template))
        train: dict[str, Positions] = {}
        held_out: list[Seen] = []
        for game in spec.games:
            played, kept = hold_out(random_play(game, POSITION_GAMES, spec.seed, spec.lines), HELD_OUT)
            train[game] = Positions(played, made_up(game, MADE_UP, spec.seed, without=kept))
            held_out += kept
        seconds = 0.2 if sys.stderr.isatty() else 10  # between two states of the bar
        with tqdm(total=spec.schedule.steps, disable=not progress, unit="step", mininterval=seconds) as bar:
            figures = warm_up(reader, train, held_out, spec.schedule, spec.criteria, spec.seed, bar)
    if figures["missed"] and not accept:
        raise NotGoodEnough(
            f"the tiny model is not good enough after {figures['steps']} steps: {'; '.join(figures['missed'])}. "
            "Try another seed, more rounds or a larger hidden_size, or accept it as it is"
        )
    lengths = {
        game: sorted(
            len(reader.prompt(seen.observation)) for seen in [*train[game].played, *held_out] if seen.game == game
        )
        for game in spec.games
    }
    figures = {
        "spec": asdict(spec),
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
        "prompt_tokens": {game: [sizes[0], sizes[-1]] for game, sizes in lengths.items()},
        "seconds": round(time.monotonic() - started, 1),
        **figures,
    }
    with _no_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / FIGURES).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def new_model(spec: Spec, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """The model before it has learned anything.

    Input and output embeddings are not tied: what is learned about saying "4" then leaves alone what "4" on the board
    looks like.
    """
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    heads = spec.hidden_size // HEAD_DIM
    ids: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=spec.hidden_size,
            intermediate_size=3 * spec.hidden_size,
            num_hidden_layers=spec.layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=HEAD_DIM,
            max_position_embeddings=POSITIONS,
            initializer_range=INITIAL_STD,
            tie_word_embeddings=False,
            bos_token_id=None,
            dtype="float32",
            **ids,
        )
    )
    # What it was trained for: the whole distribution, as self-play samples it.
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **ids)
    return model


def _prompt_texts(template: Template, observation: str, chat_texts: Any) -> list[str]:
    if template.plain:
        return [template.text(observation)]
    texts = chat_texts(template.messages(observation))
    return [*texts, template.begin] if template.begin else texts


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without transformers' own progress bars: a million weights are saved in no time."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Torch on one thread, seeded; afterwards its generator and its threads are as they were."""
    import torch

    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
