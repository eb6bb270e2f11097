"""Log-probabilities of answers: against one plain pass of the model for each answer."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.policy_table import read_scores
from recipe.spiral.lab.evaluation.policies.evaluation_engine import arguments
from recipe.spiral.lab.evaluation.policies.scored import Scorer, load, of_model
from recipe.spiral.players.player import PlayerMisconfigured
from recipe.spiral.players.prompts import encoder
from recipe.spiral.rollouts.end_tokens import end_tokens
from tests.lab.evaluation.made_policies import engine_settings
from tests.made_checkpoints import small_model

TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    small_model(folder, tie=False, dtype="float32")
    return folder


@pytest.fixture(scope="module")
def scored(folder: Path) -> tuple[Any, Any, Any, frozenset[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return load(folder), tokenizer, encoder(tokenizer, "chat", "state"), end_tokens(folder)


def test_weights_of_other_shapes_are_one_line(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "intermediate_size": 2 * config["intermediate_size"]}))
    with pytest.raises(PlayerMisconfigured, match=f"^{other}: its weights are not of the shapes"):
        load(other)


@pytest.mark.parametrize(
    ("stored", "card", "dtype"),
    [
        ("float32", (8, 0), "bfloat16"),
        ("float32", (7, 5), "float16"),
        ("bfloat16", (9, 0), "bfloat16"),
        ("float16", (9, 0), "float16"),
        ("float32", None, "auto"),
    ],
)
def test_scores_are_computed_in_what_vllm_plays_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, card: tuple[int, int] | None, dtype: str
) -> None:
    given: list[str] = []

    def loaded(folder: Path, dtype: str, **_: object) -> torch.nn.Module:
        given.append(dtype)
        return torch.nn.Module()

    monkeypatch.setattr(torch.cuda, "is_available", lambda: card is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: card)
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device: module)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", loaded)
    (tmp_path / "config.json").write_text(json.dumps({"dtype": stored}))
    load(tmp_path)
    assert given == [dtype] == [arguments(tmp_path, (), 8, engine_settings())["dtype"]]
    assert arguments(tmp_path, (), 8, engine_settings(dtype="float32"))["dtype"] == "float32"


def plainly(model: Any, prompt: list[int], answer: list[int], ends: frozenset[int]) -> float:
    """One pass, nothing shared, nothing padded."""
    with torch.inference_mode():
        log_p = torch.log_softmax(model(torch.tensor([[*prompt, *answer]])).logits[0].double() / TEMPERATURE, dim=-1)
    said = sum(float(log_p[len(prompt) - 1 + place, token]) for place, token in enumerate(answer))
    return said + float(torch.logsumexp(log_p[-1, sorted(ends)], dim=-1))


def test_scores_are_those_of_plain_passes(scored: tuple[Any, Any, Any, frozenset[int]]) -> None:
    model, tokenizer, encode, ends = scored
    two_ends = ends | {7}
    questions = [
        ("Your card: K", ["\\boxed{[bet]}", "\\boxed{[check]}", "[a much longer answer than the others]"]),
        ("Your card: Q", ["\\boxed{[bet]}"]),
        ("A longer observation of another length", ["x", "\\boxed{[fold]}"]),
    ]
    scores = Scorer(tokenizer, encode, of_model(model, tuple(two_ends), TEMPERATURE, 100))(questions)
    for (observation, answers), found in zip(questions, scores, strict=True):
        prompt = encode(observation, ())
        expected = [
            plainly(model, prompt, tokenizer.encode(answer, add_special_tokens=False), two_ends) for answer in answers
        ]
        assert found == pytest.approx(expected, abs=1e-4)


def test_what_the_length_limit_would_cut_off_has_no_probability(scored: tuple[Any, Any, Any, frozenset[int]]) -> None:
    model, tokenizer, encode, ends = scored
    length = len(tokenizer.encode("\\boxed{[bet]}", add_special_tokens=False))
    for limit, possible in ((length + 1, True), (length, False)):
        scorer = Scorer(tokenizer, encode, of_model(model, tuple(ends), 1.0, limit))
        ((score,),) = scorer([("Your card: K", ["\\boxed{[bet]}"])])
        assert (score > -math.inf) == possible


def test_a_policy_is_read(scored: tuple[Any, Any, Any, frozenset[int]]) -> None:
    model, tokenizer, encode, ends = scored
    scorer = Scorer(tokenizer, encode, of_model(model, tuple(ends), 1.0, 100))
    reading = read_scores(game_tree("KuhnPoker"), scorer)
    assert reading.table.shape == (12, 2) and (reading.table > 0).all() and (reading.illegal > 0).all()
