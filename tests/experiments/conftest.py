"""A very small model that has learned nothing, and configs that are composed once."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from experiments import composed
from recipe.spiral.games import make
from recipe.spiral.players.prompts import boxed, get_template

COMPOSE = composed.compose


@pytest.fixture(scope="session")
def reader() -> Any:
    """A ``Reader``; what the model answers freely is hardly ever legal."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from recipe.spiral.lab.models import tiny
    from recipe.spiral.lab.models.measure import Reader
    from recipe.spiral.lab.models.tokenizer import train

    # it knows the words of what it is asked, so that prompts are short
    said = [boxed(action) for action in ("[check]", "[bet]", "[fold]", "[call]")]
    seen = [make(game, 0).observation(0) for game in ("KuhnPoker", "TicTacToe")]
    tokenizer = train([*said, *seen], max_length=512)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tiny.new_model(tiny.Spec(hidden_size=32, layers=1), tokenizer).eval()
    return Reader(model, tokenizer, get_template("chat"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the quick loop has it; threads that wait for each other over so small a model take thirty times as long."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def composed_once(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra takes a third of a second for a config. The same overrides of the same files give the same one again."""
    written = str(tmp_path_factory.getbasetemp())  # here tests write files of their own, and change them

    def compose(name: str, overrides: Sequence[str]) -> Any:
        if any(override.startswith("hydra.searchpath") and written in override for override in overrides):
            return COMPOSE(name, list(overrides))
        return pickle.loads(_composed(name, *overrides))

    monkeypatch.setattr(composed, "compose", compose)


@cache
def _composed(name: str, *overrides: str) -> bytes:
    """Pickled, because a deep copy takes five times as long."""
    return pickle.dumps(COMPOSE(name, list(overrides)))
