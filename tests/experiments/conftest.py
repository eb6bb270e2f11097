"""A very small model that has learned nothing."""

from __future__ import annotations

from typing import Any

import pytest

from recipe.spiral.players.prompts import boxed, get_template


@pytest.fixture(scope="session")
def reader() -> Any:
    """A ``Reader``; what the model answers freely is hardly ever legal."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from recipe.spiral.models import tiny
    from recipe.spiral.models.measure import Reader
    from recipe.spiral.models.tokenizer import train

    tokenizer = train([boxed(action) for action in ("[check]", "[bet]", "[fold]", "[call]")], max_length=512)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tiny.new_model(tiny.Spec(hidden_size=32, layers=1), tokenizer).eval()
    return Reader(model, tokenizer, get_template("chat"))
