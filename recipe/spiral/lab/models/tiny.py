"""A tiny language model for chosen games: a Qwen3 of a million parameters, shipped or made on this machine.

It is a Hugging Face folder like any other (config, safetensors, fast tokenizer with chat template). It answers in the
right form, reads its prompt, and plays at random: the start of self-play, not its result. What was measured of it is
in the folder, in ``warm_start.json``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...games import make, resolve
from ...players.prompts import boxed, get_template
from ...players.seeds import derive_seed
from ...storage.cache import cache_dir
from . import MADE_FOR
from .provided import is_intact, provide
from .read_back import Position, hold_out, made_up, questions, random_play
from .tokenizer import prompt_texts
from .tokenizer import train as train_tokenizer
from .warm_start import Criteria, NotGoodEnough, Positions, Schedule, warm_up

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)
#: Part of the cache's key: to be raised when the same texts and sizes give other models.
VERSION = 2
DEFAULT_GAMES = MADE_FOR["tiny"]
#: The model that comes with the recipe lies here, under the name that it has in the cache.
SHIPPED = Path(__file__).parents[2] / "shipped"
FIGURES = "warm_start.json"
#: Size of each attention head: the smallest that vLLM's attention takes on every device.
HEAD_DIM = 32
#: Standard deviation of new weights. Qwen's 0.02 is for wide models; with it, a model of this width learns to look up
#: a square late.
INITIAL_STD = 0.08
#: The longest prompt with its response, in tokens.
POSITIONS = 1024
#: Games of random play for the tokenizer and the cache's key, and for the positions to learn from; positions held out
#: of each game, at most; made-up positions.
TEXT_GAMES, POSITION_GAMES, HELD_OUT, MADE_UP = 200, 3000, 100, 2000


@dataclass(frozen=True)
class Spec:
    """All that decides what a tiny model is.

    Attributes:
        games: ids of the games that it is made for; order and aliases make no difference.
        seed: decides weights and examples.
        hidden_size: a multiple of 32; there is a head for every 32.
        lines: whether it is asked about TicTacToe's lines as well (``read_back.line_questions``).
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
        for game in (make(game_id, 0) for game_id in self.games):
            questions(game, game.current_player)  # raises NoQuestions
        get_template(self.template)
        if self.lines and "TicTacToe" not in self.games:
            raise ValueError(
                f"asked about TicTacToe's lines: the games must have TicTacToe, not only {', '.join(self.games)}"
            )
        if self.hidden_size < HEAD_DIM or self.hidden_size % HEAD_DIM:
            raise ValueError(f"hidden_size={self.hidden_size}: must be a multiple of {HEAD_DIM}")
        if self.layers < 1:
            raise ValueError(f"layers={self.layers}: must be at least 1")

    @cached_property
    def texts(self) -> list[str]:
        """Everything that the model will read and write, for the tokenizer, without special tokens."""
        template = get_template(self.template)
        texts = set()
        for position in (seen for game in self.games for seen in random_play(game, TEXT_GAMES, 0, self.lines)):
            asked = [question.about(position.observation) for question in position.questions]
            for observation in (position.observation, *asked):
                texts.update(prompt_texts(template, observation))
            answers = [question.answer for question in position.questions]
            texts.update(boxed(answer) for answer in (*position.legal, *answers))
        return sorted(texts)

    @cached_property
    def name(self) -> str:
        """The folder's name. It has a hash of everything here: another text or setting is another model."""
        prompt = {**asdict(get_template(self.template)), "begin": ""}  # as it was when templates had one
        if not prompt["examples"]:
            del prompt["examples"]  # as it was before there were any
        whole = {"version": VERSION, **asdict(self), "prompt": prompt, "texts": self.texts}
        if not self.lines:
            del whole["lines"]  # likewise
        return f"tiny-{hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]}"


def ensure(
    games: Sequence[str] | None = None,
    template: str = "chat",
    *,
    lines: bool = False,
    schedule: Schedule | None = None,
    cache: str | Path | None = None,
    force: bool = False,
    accept: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Path:
    """The folder of a tiny model. One that is neither shipped nor in the cache is made now, in some minutes.

    Args:
        games: ids of the games that it will play; None: the usual ones (``MADE_FOR``).
        settings: of ``Spec``: seed, hidden_size, layers and criteria.
        schedule: of the warm start; None: as long as so many games need.
        accept: take the model even if it does not meet the criteria (its ``warm_start.json`` says which). It is kept
            apart, and never taken for a model that meets them.

    Raises:
        ValueError: an unknown game or template, a game without questions, or a wrong size.
        NotGoodEnough: the criteria are not met after the last round.
    """
    spec = _spec(games, template, lines, schedule, **settings)
    if not force and (folder := shipped(spec)) is not None:
        return folder
    folder = cache_dir(cache) / f"{spec.name}{'-accepted' * accept}"
    return provide(folder, lambda new: build(spec, new, accept, progress), force)


def there(games: Sequence[str], template: str, lines: bool = False) -> Path | None:
    """The folder that ``ensure`` would give, if nothing need be made for it."""
    spec = _spec(games, template, lines)
    folder = shipped(spec) or cache_dir() / spec.name
    return folder if is_intact(folder) else None


def _spec(
    games: Sequence[str] | None, template: str, lines: bool, schedule: Schedule | None = None, **settings: Any
) -> Spec:
    games = MADE_FOR["tiny_lines" if lines else "tiny"] if games is None else games
    schedule = schedule or Schedule.of(len({resolve(game) for game in games}), lines)
    return Spec(tuple(games), template, lines=lines, schedule=schedule, **settings)


def shipped(spec: Spec) -> Path | None:
    """The folder of the shipped model; None: it is not what ``spec`` says, was left out, or is damaged. It is made for
    the default games, and serves for a part of them as well."""
    if not set(spec.games) <= set(DEFAULT_GAMES):
        return None
    folder = SHIPPED / replace(spec, games=DEFAULT_GAMES).name
    if folder.is_dir() and not is_intact(folder):
        logger.warning("%s, which came with the recipe, is damaged: a model is made here instead", folder)
        return None
    return folder if folder.is_dir() else None


def build(spec: Spec, folder: Path, accept: bool = False, progress: bool = True) -> None:
    """Make the model and write it into an empty folder. Raises NotGoodEnough: the criteria are not met, and ``accept``
    is False; nothing is written."""
    from tqdm import tqdm
    from transformers.utils import logging as transformers_logging

    from .measure import Reader

    if progress:
        minutes = max(1, round(spec.schedule.steps * spec.schedule.questions / 900))
        print(
            f"making a tiny language model for {', '.join(spec.games)} (once; {minutes} min or more on one core)",
            file=sys.stderr,
            flush=True,
        )
    started = time.monotonic()
    with _own_randomness(derive_seed(spec.seed, "weights")):
        tokenizer = train_tokenizer(spec.texts, max_length=POSITIONS)
        model = new_model(spec, tokenizer)
        reader = Reader(model, tokenizer, get_template(spec.template))
        train: dict[str, Positions] = {}
        held_out: list[Position] = []
        for game in spec.games:
            played, kept = hold_out(random_play(game, POSITION_GAMES, spec.seed, spec.lines), HELD_OUT)
            train[game] = Positions(played, made_up(game, MADE_UP, spec.seed, without=kept))
            held_out += kept
        interval = 0.2 if sys.stderr.isatty() else 10  # seconds between two states of the bar
        with tqdm(total=spec.schedule.steps, disable=not progress, unit="step", mininterval=interval) as bar:
            figures = warm_up(reader, train, held_out, spec.schedule, spec.criteria, spec.seed, bar)
    if figures["missed"] and not accept:
        raise NotGoodEnough(
            f"the tiny model is not good enough after {figures['steps']} steps: {'; '.join(figures['missed'])}. "
            "Try another seed, more rounds or a larger hidden_size, or accept it as it is"
        )
    lengths = {
        game: [len(reader.prompt(seen.observation)) for seen in [*train[game].played, *held_out] if seen.game == game]
        for game in spec.games
    }
    figures = {
        "spec": asdict(spec),
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
        "prompt_tokens": {game: [min(tokens), max(tokens)] for game, tokens in lengths.items()},
        "seconds": round(time.monotonic() - started, 1),
        **figures,
    }
    transformers_logging.disable_progress_bar()  # saving takes no time
    model.save_pretrained(folder)
    transformers_logging.enable_progress_bar()
    tokenizer.save_pretrained(folder)
    (folder / FIGURES).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def new_model(spec: Spec, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """The model before it has learned anything. Input and output embeddings are not tied: what is learned about saying
    "4" then leaves alone what "4" on the board looks like."""
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
    # Self-play samples from the whole distribution, and so did the warm start's measurements.
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **ids)
    return model


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
