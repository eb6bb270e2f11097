"""A policy's scores: in what they are computed, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe.spiral.lab.evaluation.engines import arguments
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.policy_table import read_scores
from recipe.spiral.lab.evaluation.scored import Scorer, load, of_model
from recipe.spiral.players.prompts import encoder
from recipe.spiral.rollouts.end_tokens import end_tokens
from tests.lab.evaluation.made_policies import engine_settings
from tests.made_checkpoints import small_model


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


@pytest.mark.parametrize(
    ("stored", "card", "dtype"),
    [
        ("float32", (8, 0), "bfloat16"),
        ("float32", (7, 5), "float16"),
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


def test_a_policy_is_read(scored: tuple[Any, Any, Any, frozenset[int]]) -> None:
    model, tokenizer, encode, ends = scored
    scorer = Scorer(tokenizer, encode, of_model(model, tuple(ends), 1.0, 100))
    reading = read_scores(game_tree("KuhnPoker"), scorer)
    assert reading.table.shape == (12, 2) and (reading.table > 0).all() and (reading.illegal > 0).all()
