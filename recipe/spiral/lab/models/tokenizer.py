"""A small fast tokenizer, trained on the texts of the chosen games.

It is a byte-level BPE, which can write any text. What changes from position to position is always a token of its own: a
digit, a capital letter alone (J, Q, K) or with its digit (X4), a word in brackets ([check]), the end of a line. The
constant text between them may be merged across words: a whole rule is a token or two, so prompts are short.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...players.prompts import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
#: What is never merged with the text around it.
ATOMS = r"\n|[A-Z](?![a-z])\d?|\d|(?<=\[)[a-z]+(?=\])"
#: Qwen's form of a conversation.
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    f"{{{{- '{START}' + message.role + '\\n' + message.content + '{END}\\n' }}}}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    f"{{{{- '{START}assistant\\n' }}}}"
    "{%- endif %}"
)
#: Engines like vocabularies that are multiples of this.
MULTIPLE = 64
LARGEST = 4096


def train(texts: Iterable[str], max_length: int) -> PreTrainedTokenizerFast:
    """A tokenizer with a chat template. Reserved tokens fill its vocabulary up to a multiple of 64.

    Args:
        texts: what it will write and read, without special tokens; how often a text occurs makes no difference.
        max_length: ``model_max_length`` in tokens.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(ATOMS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    special = [PAD, START, END]
    trainer = trainers.BpeTrainer(
        vocab_size=LARGEST,
        min_frequency=1,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(sorted(set(texts)), trainer)
    missing = -core.get_vocab_size() % MULTIPLE
    core.add_special_tokens([f"<|reserved_{i}|>" for i in range(missing)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def prompt_texts(template: Template, observation: str) -> list[str]:
    """The parts of a prompt that stand between special tokens."""
    if template.plain:
        return [template.text(observation)]
    messages = [f"{message['role']}\n{message['content']}" for message in template.messages(observation)]
    return [*messages, "assistant\n", "\n"]
