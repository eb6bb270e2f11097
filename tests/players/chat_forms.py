"""Tokenizers whose chat templates have the forms of known models': written for the tests, and as short as can be.

Tokens are bytes, besides those of the forms.
"""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

_CHATML = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
_LAST = "{% if add_generation_prompt %}<|im_start|>assistant\n"
_HEAD = "<|start_header_id|>{{ role }}<|end_header_id|>\n\n"

#: By the form's name: the tokens that begin a text and end a response, and the template.
FORMS: dict[str, tuple[str | None, str, str]] = {
    # thinks unless it is told not to
    "qwen3": (
        None,
        "<|im_end|>",
        f"{{% for m in messages %}}{_CHATML}{{% endfor %}}{_LAST}"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
    ),
    # thinks always, and says so itself
    "qwen3_thinking": (
        None,
        "<|im_end|>",
        f"{{% for m in messages %}}{_CHATML}{{% endfor %}}{_LAST}<think>\n{{% endif %}}",
    ),
    # the system has no message of its own, and earlier answers go without their reasoning
    "r1_distill": (
        "<s>",
        "</s>",
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
        "{% elif m.role == 'user' %}<|User|>{{ m.content }}"
        "{% else %}<|Assistant|>{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}",
    ),
    "llama3": (
        "<|begin_of_text|>",
        "<|eot_id|>",
        "{{ bos_token }}{% for m in messages %}{% set role = m.role %}"
        f"{_HEAD}{{{{ m.content | trim }}}}<|eot_id|>{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{% set role = 'assistant' %}}{_HEAD}{{% endif %}}",
    ),
    # has words for the system where there are none
    "smollm2": (
        "<|im_start|>",
        "<|im_end|>",
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
        f"{{% for m in messages %}}{_CHATML}{{% endfor %}}{_LAST}{{% endif %}}",
    ),
}
_TOKENS = ["<think>", "</think>", "<|im_start|>", "<|User|>", "<|Assistant|>", "<|start_header_id|>"]
_TOKENS += ["<|end_header_id|>", "<start_of_turn>"]


def tokenizer(form: str | None, ends_texts: bool = False, template: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer of one of the forms; None: it has no chat template, unless ``template`` is one.

    Args:
        ends_texts: whether texts end with the token that ends a response, where special tokens are added.
    """
    bos, eos, chat = FORMS[form] if form is not None else (None, "</s>", template)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([*dict.fromkeys([*filter(None, [bos, eos]), *_TOKENS])])
    text = [*filter(None, [bos]), "$A", *([eos] if ends_texts else [])]
    special = [(token, made.token_to_id(token)) for token in dict.fromkeys(text) if token != "$A"]
    made.post_processor = TemplateProcessing(single=text, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=bos, eos_token=eos, chat_template=chat)
