"""Stage ``speed``: how fast a model of Qwen3's shape is played and trained with, and what memory that takes.

The model is made here, with random weights, and its answers end anywhere, with a legal move (``long_answers``). Four
ways play games of the same form: a run as it is by default, a run that plays by verl's own path, and the engine alone
on the first run's games, all at once, in lock step, and one game at a time. The first run and the engine start side by
side and then wait, and the second run starts after them, so that whatever is measured has the machine to itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import long_answers
from benchmarks.rollout_efficiency import Alone, Game, at_once, games_of, lock_step, one_by_one
from recipe.spiral.lab.models.published import PUBLISHED
from recipe.spiral.lab.planning.devices import gpu_memory, host_memory
from recipe.spiral.lab.planning.estimate import GIB, estimate
from recipe.spiral.lab.planning.model_size import measure
from recipe.spiral.storage.metrics_file import Logged

from .cards import Watch, peaks, used
from .probe import Probe, SkipStage, StageFailed
from .programs import Training, seconds_of
from .settings import HARDWARE, composed, prepare

#: Steps of a run; the last one is measured.
STEPS = 2
#: Seconds in which a run should be ready for its first step.
READY = 400.0
#: An answer's longest length, in means: one in fifty is cut off, and ends its game.
LONGEST = 4
AS_LONG = "times as long as the run"
#: Room for a prompt, in tokens: they have about 310.
PROMPT = 384
TABLE, MEMORY, RUN = "speed", "memory, GiB", "run"


@dataclass(frozen=True)
class Size:
    """What is measured.

    Attributes:
        form: the fields of the model's config.
        tokens: of an answer, in the mean.
        games: of a step, all of them at once.
        turns: of a game.
        alone: the number of games that the engine plays one at a time; the others' time follows from theirs.
        cache: GiB of an engine's key-value cache.
        share: of a card, for an engine.
        needs: GiB of a card for all of this, estimated.
    """

    form: Mapping[str, Any]
    tokens: int = 256
    games: int = 256
    turns: int = 3
    alone: int = 4
    cache: float = 12.0
    share: float = 0.22
    needs: float = 0.0


SIZES = (
    Size(PUBLISHED["Qwen/Qwen3-1.7B-Base"], needs=72),
    Size(PUBLISHED["Qwen/Qwen3-0.6B-Base"], games=64, cache=4.0, needs=36),
)
_TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
ON_CPU = Size(
    {**SIZES[0].form, **_TINY, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 4096},
    tokens=16,
    games=16,
    cache=1 / 16,
)


def speed(probe: Probe) -> None:
    size = _size(probe)
    prepare(probe.device)
    model = probe.work / "model"
    long_answers.make(model, size.tokens, size.form, probe.device)
    settings = _settings(probe, model, size)
    config = composed("spiral_trainer", f"hardware={HARDWARE[probe.device]}", *settings)
    run = Training(probe, RUN, settings)
    run.start(held=True)
    alone = _engine(probe, config)
    importlib.import_module("verl.utils.flops_counter")  # now, as it takes long
    probe.figure("it was ready before it was measured", run.wait_until_ready(READY))
    with Watch(probe.on_cpu) as watch:
        run.go()
        done = run.ends_well("the run")
    if not done:
        raise StageFailed("without the run's games the engine alone has none to play")
    run.check_steps(STEPS)
    table = {RUN: _of_run(run, model)}
    probe.figure(TABLE, table)
    beside = 0.0 if probe.on_cpu else used()  # the engine alone, and what was there before
    seen = [(moment, memory - beside) for moment, memory in watch.seen]
    phases = peaks(seen, [(step.time, seconds_of(step)) for step in run.steps()])
    probe.figure("largest memory in use by phase, GiB", phases)
    probe.figure(MEMORY, _memory(config, phases, model))
    _check_games(probe, run, size)
    if alone is not None:
        _alone(probe, alone, games_of(run.folder, STEPS), size.alone, table)


def _size(probe: Probe) -> Size:
    if probe.on_cpu:
        return ON_CPU
    there = (gpu_memory() or 0) / GIB
    for size in SIZES:
        if there >= size.needs:
            return size
    raise SkipStage(f"the card has {there:.0f} GiB, and this needs about {SIZES[-1].needs:g}")


def _settings(probe: Probe, model: Path, size: Size) -> list[str]:
    """Of the run."""
    engine = "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
    of_card = ["trainer.n_gpus_per_node=1", f"actor_rollout_ref.rollout.gpu_memory_utilization={size.share}"]
    return [
        "model=hf",
        *long_answers.overrides(model, size.tokens, LONGEST, size.turns, PROMPT),
        f"data.train_batch_size={size.games}",
        "actor_rollout_ref.actor.ppo_epochs=1",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
        f"actor_rollout_ref.rollout.max_num_seqs={size.games}",
        f"++{engine}={round(size.cache * GIB)}",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=-1",
        "guard.action=off",
        *([] if probe.on_cpu else of_card),
    ]


def _engine(probe: Probe, config: Any) -> Alone | None:
    """The engine alone, asleep; None where it does not start, which is noted."""
    try:
        alone = Alone(config, **({} if probe.on_cpu else {"enable_sleep_mode": True, "gpu_memory_utilization": 0.05}))
        if not probe.on_cpu:
            alone.engine.sleep(1)
    except Exception as error:  # the engine's, of whatever kind
        probe.check("the engine alone starts", False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        return None
    probe.check("the engine alone starts", True)
    return alone


def _of_run(run: Training, model: Path) -> dict[str, float]:
    """A row of the table: the run's last step."""
    from transformers import AutoConfig
    from verl.utils.flops_counter import FlopsCounter

    step = run.steps()[-1]
    seconds, games = seconds_of(step), games_of(run.folder, STEPS)
    play, update = seconds["gen"], seconds["update_actor"]
    lengths = [len(prompt) + answer for game in games for prompt, answer in game]
    config = AutoConfig.from_pretrained(model)
    reached, peak = FlopsCounter(config).estimate_flops(lengths, update)
    # verl counts a multiplication by the embedding for each token, which only looks up its row
    reached -= 6 * config.vocab_size * config.hidden_size * sum(lengths) / update / 1e12
    memory = step.metrics.get("actor/perf/max_memory_allocated_gb")  # verl puts the worker's name below "actor/"
    return {
        "play s": play,
        "tokens/s in play": _answered(games) / play,
        AS_LONG: 1.0,
        "step s": seconds["step"],
        "log-probs s": seconds.get("old_log_prob", 0.0),
        "update s": update,
        "new weights s": seconds.get("update_weights", 0.0),
        "tokens/s in update": sum(lengths) / update,
        "model flops utilisation": reached / peak,
        **({} if memory is None else {"trainer's memory GiB": memory}),
    }


def _alone(probe: Probe, alone: Alone, games: list[Game], few: int, table: dict[str, dict[str, float]]) -> None:
    """Rows of the table: the engine alone, on the games of the run. Then it sleeps again."""
    if not probe.on_cpu:
        alone.engine.wake_up()
    alone.seconds([game[:1] for game in games[:few]], at_once)  # warm
    for name, play, played in (
        ("alone, at once", at_once, games),
        ("alone, lock step", lock_step, games),
        ("alone, one by one", one_by_one, games[:few]),
    ):
        tokens = _answered(played) / alone.seconds(played, play)
        seconds = _answered(games) / tokens
        table[name] = {"play s": seconds, "tokens/s in play": tokens, AS_LONG: seconds / table[RUN]["play s"]}
        probe.figure(TABLE, table)
    if not probe.on_cpu:
        alone.engine.sleep(1)
    efficiency = table["alone, at once"][AS_LONG]
    probe.check("the engine alone played the same games", 0 < efficiency < 2, f"efficiency {efficiency:.2f}")


def _answered(games: list[Game]) -> int:
    return sum(answer for game in games for _, answer in game)


def _check_games(probe: Probe, run: Training, size: Size) -> None:
    """Check that the games are those that were meant."""
    step = run.steps()[-1]
    mean, invalid = _value(step, "turns/response_tokens"), _value(step, "turns/invalid")
    probe.check("answers end anywhere", 0.7 < mean / size.tokens < 1.3, f"{mean:.0f} tokens in the mean")
    probe.check("answers are legal moves", invalid < 0.1, f"{invalid:.1%} are not")


def _memory(config: Any, phases: Mapping[str, float], model: Path) -> dict[str, dict[str, float]]:
    """By phase: what was measured, and the estimate that the recipe makes before a run."""
    device = gpu_memory() if config.trainer.device != "cpu" else None
    made = estimate(config, measure(str(model)), device or host_memory())
    playing = {"gen", "update_weights"}
    if "gen" not in phases:
        raise StageFailed("memory was not measured")
    measured = {
        "training": max((phases[name] for name in phases.keys() - playing - {"start", "step"}), default=0.0),
        "playing": max((phases[name] for name in phases.keys() & playing), default=0.0),
    }
    if len(made.phases) == 1:  # on a CPU all is there at the same time
        measured = {"training": max(measured.values())}
    return {phase.name: {"measured": measured[phase.name], "estimated": phase.size / GIB} for phase in made.phases}


def _value(step: Logged, metric: str) -> float:
    """A metric of a step; 0 where it is none."""
    return step.metrics.get(metric) or 0.0
