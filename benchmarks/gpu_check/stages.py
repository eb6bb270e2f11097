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
        limits: the seconds that it may take, by device. Well above what it should take.
        disk: gigabytes that it needs for a while, by device.
        checks: how many it makes, skipped ones too; 0: that depends on the machine.
        vital: without it nothing after it can work.
        alone: it measures speed, so that nothing may run beside it.
    """

    name: str
    about: str
    function: str
    least: dict[str, float]
    limits: dict[str, float]
    disk: dict[str, float]
    checks: int = 0
    vital: bool = False
    alone: bool = False


def _stage(
    name: str, about: str, function: str, least: int, cuda: int, cpu: int, checks: int, disk: float = 0.2, **more: bool
) -> Stage:
    """``function`` is one of this package; ``least`` and ``disk`` are for a GPU: what is made on a CPU is small."""
    pairs = ((least, least / 5), (cuda, cpu), (disk, min(disk, 1.0)))
    leasts, limits, needed = [dict[str, float](cuda=on_gpu, cpu=on_cpu) for on_gpu, on_cpu in pairs]
    return Stage(name, about, f"{__package__}.{function}", leasts, limits, needed, checks, **more)


#: ``least`` is from runs on a GPU, but for ``two_cards``: a training takes 150 s and more until its first step, of
#: ``train`` twice.
STAGES = (
    _stage("machine", "card, driver, compiler, memory, disk", "machine:machine", 5, 60, 60, 0, vital=True),
    _stage(
        "imports", "every library and module loads; the device computes", "machine:imports", 20, 300, 600, 0, vital=True
    ),
    _stage("vllm_v2", "vLLM with Model Runner V2: answers, other weights, sleep, LoRA", "engine:v2", 150, 600, 900, 19),
    _stage("train", "past selves, KL, renewed reference; kill, audit, export", "training:train", 330, 900, 900, 11, 1),
    _stage("vllm_v1", "vLLM with Model Runner V1: the same", "engine:v1", 150, 600, 900, 19),
    _stage("lora", "LoRA with past selves as adapters; export; evaluation", "training:lora", 260, 900, 900, 9, 1),
    _stage("fp32", "engine's and trainer's probabilities in fp32", "training:fp32", 160, 600, 600, 2, 1),
    _stage("two_cards", "the trainer on two cards, with past selves", "training:two_cards", 200, 600, 900, 6, 1),
    _stage("speed", "seconds, tokens/s and memory of a large model", "speed:speed", 400, 1200, 900, 8, 5, alone=True),
)
