"""The stages in their order, which is that of evidence a minute: what each tries, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes:
        name: as ``--stage`` names it.
        about: what it tries.
        function: module:function, which gets a ``Probe``.
        least: the seconds in which it should show something, by device; with less left it is not begun.
        limits: the seconds that it may take, by device.
        vital: without it nothing after it can work.
        alone: it measures speed, so that nothing may run beside it.
    """

    name: str
    about: str
    function: str
    least: dict[str, float]
    limits: dict[str, float]
    vital: bool = False
    alone: bool = False


def _stage(name: str, about: str, function: str, least: int, cuda: int, cpu: int, **more: bool) -> Stage:
    """``least`` is for a GPU."""
    return Stage(
        name, about, f"{__package__}.{function}", {"cuda": least, "cpu": least / 5}, {"cuda": cuda, "cpu": cpu}, **more
    )


#: ``least`` is from runs on a GPU, but for ``two_cards``: a training takes 150 s and more until its first step.
STAGES = (
    _stage("machine", "card, driver, compiler, memory, disk", "machine:machine", 5, 60, 60, vital=True),
    _stage("imports", "libraries and modules load; the device computes", "machine:imports", 20, 300, 600, vital=True),
    _stage("vllm_v2", "vLLM with Model Runner V2: answers, other weights, sleep, LoRA", "engine:v2", 150, 600, 900),
    _stage("train", "past selves, KL, renewed reference; kill, audit, export", "training:train", 330, 900, 900),
    _stage("vllm_v1", "vLLM with Model Runner V1: the same", "engine:v1", 150, 600, 900),
    _stage("lora", "LoRA with past selves as adapters; export; evaluation", "training:lora", 260, 900, 900),
    _stage("fp32", "engine's and trainer's probabilities in fp32", "training:fp32", 160, 600, 600),
    _stage("two_cards", "the trainer on two cards, with past selves", "training:two_cards", 200, 600, 900),
    _stage("speed", "seconds, tokens/s and memory of a large model", "speed:speed", 400, 1200, 900, alone=True),
)
