"""A benchmark's questions as rows of a verl data set, beside the games, and the reward function that judges them.

In verl's config: ``reward.custom_reward_function.path=pkg://recipe.spiral.evaluation.benchmarks.rows`` with
``name=compute_score``. verl has one sampling setting for a whole validation pass: with T 0.6 for these, games have it,
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...prompts import Template, get_template
from .grading import FAILURES, Grader, shared_grader
from .questions import Question

#: verl's own agent loop for one prompt and one response.
AGENT = "single_turn_agent"
#: Before the benchmark's id in a row's ``data_source``, so that no game is taken for one.
SOURCE = "benchmark/"


def general_template(name: str) -> Template:
    """The template for questions that belongs to a template: "qwen3" -> "qwen3_general".

    Raises:
        ValueError: there is no such template.
    """
    return get_template(name if name.endswith("_general") else f"{name}_general")


def rows(
    questions: Sequence[Question],
    template: str,
    samples: int,
    tokens: Callable[[list[dict[str, str]]], int] | None = None,
    prompt_length: int | None = None,
) -> list[dict[str, Any]]:
    """The questions as rows, ``index`` counted from 0.

    Args:
        questions: of any benchmarks.
        template: for games or for questions; the latter's twin is taken.
        samples: how many answers verl samples to each.
        tokens: how long a conversation is, in tokens.
        prompt_length: how long it may be: verl would cut it, and the question would be another.

    Raises:
        ValueError: the template is plain text or begins the response, which verl's agent loop cannot do; a prompt is
            too long; ``samples`` is below 1.
    """
    chat = general_template(template)
    if chat.plain or chat.begin:
        raise ValueError(
            f"prompt.template={template!r}: in verl's validation questions go through the chat template, and this one "
            f"{'is plain text' if chat.plain else 'begins the response'}; choose qwen3, llama_instruct or chat, or "
            "leave benchmarks out of validation and run them on their own"
        )
    if samples < 1:
        raise ValueError(f"benchmarks.samples={samples}: must be at least 1")
    made = []
    for index, question in enumerate(questions):
        messages = chat.messages(question.prompt)
        if tokens is not None and prompt_length is not None and (length := tokens(messages)) > prompt_length:
            raise ValueError(
                f"question {question.id} of {question.benchmark} has {length} tokens, more than "
                f"data.max_prompt_length={prompt_length}: raise it, or leave this benchmark out"
            )
        made.append(_row(question, messages, index, samples))
    return made


def with_same_columns(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of several kinds with the columns of all of them; {} or None where a row has no such column.

    verl puts a batch together column by column, and needs each to be as long as the batch. It looks into columns of
    dicts (``reward_model``) without asking whether there is one, hence {}.
    """
    given = [dict(row) for row in rows]
    of_dicts = {name: isinstance(value, Mapping) for row in given for name, value in row.items() if value is not None}
    columns = dict.fromkeys(name for row in given for name in row)
    return [{name: row.get(name, {} if of_dicts.get(name) else None) for name in columns} for row in given]


def question_of(data_source: str, ground_truth: str, extra_info: Mapping[str, Any]) -> Question:
    """A row's question again, but for its text.

    Raises:
        ValueError: the row is none of ours.
    """
    kind = extra_info.get("kind")
    if not data_source.startswith(SOURCE) or kind not in ("math", "choice"):
        raise ValueError(
            f"data_source={data_source!r}: no benchmark's; this reward function judges rows that were made by "
            f"{__name__}.rows, whose data_source begins with {SOURCE!r}"
        )
    choices = tuple(str(choice) for choice in extra_info["choices"])
    return Question(data_source[len(SOURCE) :], str(extra_info["id"]), kind, "", str(ground_truth), choices)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    grader: Grader | None = None,
    **_: Any,
) -> dict[str, float | str]:
    """verl's custom reward function: 1 for a right answer, 0 otherwise.

    Besides ``score`` and ``acc`` it says what verl's own maj@k groups by (``pred``: all right answers are one), whether
    there was no answer, and whether the grader failed. Takes a bounded time, from any thread.

    Raises:
        ValueError: the row is none of ours.
    """
    question = question_of(data_source, ground_truth, extra_info or {})
    verdict = (grader or shared_grader()).grade(question, solution_str)
    right = float(verdict.correct)
    return {
        "score": right,
        "acc": right,
        "pred": question.answer if verdict.correct else verdict.answer or "",
        "no_answer": float(verdict.reason == "no answer"),
        "not_graded": float(verdict.reason in FAILURES),
    }


def _row(question: Question, messages: list[dict[str, str]], index: int, samples: int) -> dict[str, Any]:
    return {
        "raw_prompt": messages,
        "index": index,
        "agent_name": AGENT,
        "data_source": f"{SOURCE}{question.benchmark}",
        "reward_model": {"style": "rule", "ground_truth": question.answer},
        "extra_info": {
            "index": index,
            "id": question.id,
            "kind": question.kind,
            "choices": list(question.choices),
            "split": "val",
        },
        "__rollout_n__": samples,
    }
