"""A first try of a model's chat template, a program of the model's makers: it may never end, or fill the memory."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

#: What it may take for one short message: seconds of computing, bytes, and characters of its text.
SECONDS, MEMORY, LONGEST = 20, 2**32, 10**6


def check_ends(tokenizer: Any, place: str) -> None:
    """Render a message in a copy of this process, which is bounded. Raises ValueError: it took too much, or there is no
    tokenizer; ``place`` says whose it is. What else is wrong with a template is said where prompts are made."""
    if not tokenizer.encode("0"):  # an empty one, which transformers makes where it finds none
        raise ValueError(f"{place}: holds no tokenizer, or one without words; put the model's own there")
    if getattr(tokenizer, "chat_template", None) is None:
        return
    if (copy := os.fork()) == 0:
        _render(tokenizer)
    with suppress(ChildProcessError):  # whoever started this process may have SIGCHLD ignored
        if os.waitpid(copy, 0)[1]:
            most = f"more than {SECONDS} s of computing, {MEMORY >> 30} GiB or {LONGEST} characters for one word"
            raise ValueError(f"{place}: its chat template does not end, or writes too much: {most}; use another model")


def _render(tokenizer: Any) -> None:
    """Ends this process, with status 0 if the template ends."""
    status = 1
    signal.alarm(30 * SECONDS)  # a lock that another thread held while this process was copied is never released
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        message = {"role": "user", "content": "a"}
        text = tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        status = int(len(text) > LONGEST)
    except BaseException as error:
        status = int(isinstance(error, MemoryError))
    finally:
        os._exit(status)
