"""The stages in their order: what each tries, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: as ``--stage`` names it.
        about: what it tries.
        function: module:function, which gets a ``Probe``.
        limits: the seconds that it may take, by device. Several times what it should take.
        disk: gigabytes that it needs for a while, by device.
        vital: without it nothing after it can work.
    """

    name: str
    about: str
    function: str
    limits: dict[str, float]
    disk: dict[str, float]
    vital: bool = False


def _stage(
    name: str, about: str, function: str, cuda: float, cpu: float, disk: float = 0.2, vital: bool = False
) -> Stage:
    """``function`` is one of this package; ``disk`` is for a GPU: what is made on a CPU is small."""
    needed = {"cuda": disk, "cpu": min(disk, 1.0)}
    return Stage(name, about, f"{__package__}.{function}", {"cuda": cuda, "cpu": cpu}, needed, vital)


STAGES = (
    _stage("machine", "card, driver, compiler, memory, disk", "machine:machine", 60, 60, vital=True),
    _stage("imports", "every library and module loads; the device computes", "machine:imports", 300, 600, vital=True),
    _stage("vllm_v1", "vLLM alone with Model Runner V1: answers, other weights, sleep, LoRA", "engine:v1", 600, 900),
    _stage("vllm_v2", "vLLM alone with Model Runner V2: the same", "engine:v2", 600, 900),
    _stage("train", "past selves, KL, renewed reference; kill, resume, audit, export", "training:train", 900, 1500, 1),
    _stage("lora", "LoRA with past selves as adapters, export, evaluation of the run", "training:lora", 600, 1200, 1),
    _stage("eval", "the evaluation program: two models and a LoRA adapter", "training:evaluate", 300, 600),
    _stage("logprobs", "engine's and trainer's probabilities, in bf16 and fp32", "training:logprobs", 600, 1200, 1),
    _stage("qwen3_0.6b", "Qwen3-0.6B's shape: seconds, memory and tokens/s", "qwen3:small", 900, 1200, 4),
    _stage("qwen3_1.7b", "Qwen3-1.7B's shape: seconds, memory and tokens/s", "qwen3:large", 900, 1200, 8),
    _stage("two_cards", "the trainer on two cards, with past selves", "training:two_cards", 600, 1200, 1),
)
