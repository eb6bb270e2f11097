"""The vLLM of a table is the evaluation's on this machine. (It is started by the evaluation's own tests.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.policies.evaluation_engine import EngineSettings, arguments
from recipe.spiral.lab.play import sampling


@pytest.mark.parametrize(("hardware", "dtype"), [("cpu", "float32"), ("gpu", "auto")])
def test_it_has_the_evaluations_settings(hardware: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Path, tuple[Path, ...], int, EngineSettings]] = []
    monkeypatch.setenv("SPIRAL_HARDWARE", hardware)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sampling, "set_environment", lambda variables: None)
    monkeypatch.setattr(sampling, "VLLMEngine", lambda *given, **names: started.append(given[:4]))
    sampling.start_vllm(Path("/a/model"), None, 496, Path())
    [(model, adapters, length, settings)] = started
    assert (model, adapters, length) == (Path("/a/model"), (), 496)
    found: dict[str, Any] = arguments(model, adapters, length, settings)
    assert (found["dtype"], found["max_model_len"], found["generation_config"]) == (dtype, 496, "vllm")
    assert ("kv_cache_memory_bytes" in found) == (hardware == "cpu")
