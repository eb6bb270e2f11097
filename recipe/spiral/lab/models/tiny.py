"""A tiny language model for chosen games: a Qwen3 of a million parameters, and its tokenizer.

It is a Hugging Face folder like any other (config, safetensors, fast tokenizer with chat template). It answers in the
right form, reads its prompt, and plays at random: the start of self-play, not its result. What was measured of it is
in the folder, in ``warm_start.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...games import make, resolve
from ...players.prompts import Template, boxed, get_template
from ...players.seeds import derive_seed
from .read_back import Position, hold_out, made_up, questions, random_play
from .warm_start import Positions, Reader, Schedule, warm_up

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TEMPLATE = "chat"
#: Size of each attention head: the smallest that vLLM's attention takes on every device.
HEAD_DIM = 32
#: Standard deviation of new weights. Qwen's 0.02 is for wide models; with it, a model of this width learns to look up
#: a square late.
INITIAL_STD = 0.08
#: The longest prompt with its response, in tokens.
POSITIONS = 1024
#: Games of random play for the tokenizer, and for the positions to learn from; positions held out of each game, at
#: most; made-up positions.
TEXT_GAMES, POSITION_GAMES, HELD_OUT, MADE_UP = 200, 3000, 100, 2000

# What the tokenizer never merges with the text around it. What changes from position to position is always a token of
# its own: a digit, a capital letter alone (J, Q, K) or with its digit (X4), a word in brackets ([check]), the end of a
# line. The constant text between them may be merged across words: a whole rule is a token or two, so prompts are short.
_ATOMS = r"\n|[A-Z](?![a-z])\d?|\d|(?<=\[)[a-z]+(?=\])"
_PAD, _START, _END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
#: Qwen's form of a conversation.
_CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    f"{{{{- '{_START}' + message.role + '\\n' + message.content + '{_END}\\n' }}}}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    f"{{{{- '{_START}assistant\\n' }}}}"
    "{%- endif %}"
)
#: The largest vocabulary, and what its size is a multiple of, as engines like it.
_LARGEST, _MULTIPLE = 4096, 64


class NotGoodEnough(RuntimeError):
    """The model reads or answers too badly after the last round; the message says what."""


@dataclass(frozen=True)
class Spec:
    """All that decides what a tiny model is.

    Attributes:
        games: ids of the games that it is made for.
        seed: decides weights and examples.
        hidden_size: a multiple of 32; there is a head for every 32.
        lines: whether it is asked about TicTacToe's lines as well.
    """

    games: tuple[str, ...]
    seed: int = 0
    hidden_size: int = 128
    layers: int = 4
    lines: bool = False
    schedule: Schedule = field(default_factory=Schedule)

    @classmethod
    def of(cls, games: Sequence[str], seed: int = 0, lines: bool = False) -> Spec:
        """The usual sizes, and as long a warm start as so many games need. Raises ValueError: an unknown game, or one
        without questions."""
        known = tuple(sorted({resolve(game) for game in games}))
        for game in (make(game_id, 0) for game_id in known):
            questions(game, game.current_player)
        return cls(known, seed, lines=lines, schedule=Schedule.of(len(known), lines))

    def texts(self) -> list[str]:
        """Everything that the model will read and write, for the tokenizer, without special tokens."""
        texts = set()
        for position in (seen for game in self.games for seen in random_play(game, TEXT_GAMES, 0, self.lines)):
            asked = [question.about(position.observation) for question in position.questions]
            for observation in (position.observation, *asked):
                texts.update(prompt_texts(get_template(TEMPLATE), observation))
            answers = [question.answer for question in position.questions]
            texts.update(boxed(answer) for answer in (*position.legal, *answers))
        return sorted(texts)


def make_tiny(spec: Spec, folder: Path, check: bool = True) -> None:
    """Make the model and write it into a new folder. Raises NotGoodEnough: it reads or answers too badly, unless that
    is not to be checked; FileExistsError: the folder is there."""
    import torch

    folder.mkdir(parents=True)
    torch.set_num_threads(1)  # the sums of several threads are others
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(spec.seed, "weights"))
        tokenizer = train_tokenizer(spec.texts(), max_length=POSITIONS)
        model = new_model(spec, tokenizer)
        reader = Reader(model, tokenizer, get_template(TEMPLATE))
        train: dict[str, Positions] = {}
        held_out: list[Position] = []
        for game in spec.games:
            played, kept = hold_out(random_play(game, POSITION_GAMES, spec.seed, spec.lines), HELD_OUT)
            train[game] = Positions(played, made_up(game, MADE_UP, spec.seed, without=kept))
            held_out += kept
        figures = warm_up(reader, train, held_out, spec.schedule, spec.seed)
    if check and figures["missed"]:
        folder.rmdir()
        raise NotGoodEnough(f"the tiny model is not good enough: {'; '.join(figures['missed'])}. Try another --seed")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    figures = {"spec": asdict(spec), "parameters": model.num_parameters(), **figures}
    (folder / "warm_start.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def train_tokenizer(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE, which can write any text, with a chat template. Reserved tokens fill its vocabulary up to a
    multiple of 64.

    Args:
        texts: what it will write and read, without special tokens; how often a text occurs makes no difference.
        max_length: ``model_max_length`` in tokens.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_ATOMS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_LARGEST,
        min_frequency=1,
        special_tokens=[_PAD, _START, _END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(sorted(set(texts)), trainer)
    core.add_special_tokens([f"<|reserved_{i}|>" for i in range(-core.get_vocab_size() % _MULTIPLE)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=_END,
        pad_token=_PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
        padding_side="left",
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def prompt_texts(template: Template, observation: str) -> list[str]:
    """The parts of a prompt that stand between special tokens."""
    messages = [f"{message['role']}\n{message['content']}" for message in template.messages(observation)]
    return [*messages, "assistant\n", "\n"]


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
