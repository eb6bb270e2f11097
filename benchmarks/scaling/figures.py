"""What each part of a run costs: the simulation's inputs.

``Costs`` are seconds. Those of a machine that is here are fitted to its runs (``fit.py``) and measured
(``measure.py``). Those of an H100 follow from the figures below, of which each is from a data sheet, or assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

#: Parts that can be made free of cost, to see what a run gains by it.
PARTS = ("engine", "learner", "weight update", "rollout workers", "TransferQueue", "driver")
#: What is left of a part's cost then.
FREE = 1e-6


@dataclass(frozen=True)
class EngineCosts:
    """Of one replica.

    Attributes:
        iteration: of one token for every running sequence.
        sequence: what each running sequence adds to it.
        prompt_token: of reading one token of a prompt.
        most_sequences: how many can run at once.
    """

    iteration: float
    sequence: float
    prompt_token: float
    most_sequences: int = 256


@dataclass(frozen=True)
class LearnerCosts:
    """Of all phases of a step on the learner's devices.

    Attributes:
        fixed: of a step.
        token: of a trained token, prompt or response, on one device.
        micro_batch: the least that a micro-batch takes, however few tokens it has: gathering the weights.
        micro_batch_tokens: the most tokens of a micro-batch.
    """

    fixed: float
    token: float
    micro_batch: float = 0.0
    micro_batch_tokens: int = 16_384

    def seconds(self, tokens: int, devices: int) -> float:
        each = tokens / devices
        return self.fixed + max(each * self.token, math.ceil(each / self.micro_batch_tokens) * self.micro_batch)


@dataclass(frozen=True)
class Costs:
    """Seconds, unless it says otherwise.

    Attributes:
        engine, learner: theirs.
        update: new weights to all replicas; where engine and learner share devices, waking the engine as well.
        worker_turn: a rollout worker's, for a turn.
        queue_row: TransferQueue's, for putting a turn and reading it.
        queue_byte: the same, for each byte.
        token_bytes: bytes in TransferQueue of each token of a turn.
        driver_step, driver_row: the driver's for a step, and for each of its turns: accounting, advantages, records.
        driver_key: the driver's, for a key of TransferQueue in each look for finished games.
        poll: between two looks, at least (``game_buffer.LEAST_PAUSE``).
        retry: from breaking off a response until it is asked for again.
    """

    engine: EngineCosts
    learner: LearnerCosts
    update: float = 0.0
    worker_turn: float = 0.0
    queue_row: float = 0.0
    queue_byte: float = 0.0
    token_bytes: float = 0.0
    driver_step: float = 0.0
    driver_row: float = 0.0
    driver_key: float = 0.0
    poll: float = 0.05
    retry: float = 1.0

    def pause(self, look: float) -> float:
        """Between two looks, as the recipe's ``training/game_buffer.py`` has it: longer after looks that take long."""
        return max(self.poll, min(5 * look, 2.0))

    def without(self, part: str) -> Costs:
        """With one of ``PARTS`` nearly free.

        Raises:
            ValueError: there is no such part.
        """
        match part:
            case "engine":
                e = self.engine
                engine = EngineCosts(e.iteration * FREE, e.sequence * FREE, e.prompt_token * FREE, e.most_sequences)
                return replace(self, engine=engine)
            case "learner":
                return replace(self, learner=LearnerCosts(0.0, self.learner.token * FREE))
            case "weight update":
                return replace(self, update=0.0, retry=0.0)
            case "rollout workers":
                return replace(self, worker_turn=0.0)
            case "TransferQueue":
                return replace(self, queue_row=0.0, queue_byte=0.0)
            case "driver":
                return replace(self, driver_step=0.0, driver_row=0.0, driver_key=0.0)
        raise ValueError(f"{part!r}: is no part; known: {', '.join(PARTS)}")


@dataclass(frozen=True)
class Figure:
    """A number that is not measured here."""

    name: str
    value: float
    unit: str
    source: str


def _figures(*rows: tuple[str, str, float, str, str]) -> Mapping[str, Figure]:
    return {key: Figure(name, value, unit, source) for key, name, value, unit, source in rows}


_SHEET = "NVIDIA, H100 data sheet (SXM)"
_CONFIG = "config.json of Qwen/Qwen3-4B-Base"
#: An H100, and a machine of eight.
H100 = _figures(
    ("flops", "bf16, dense", 989e12, "operations/s", _SHEET),
    ("bandwidth", "memory", 3.35e12, "bytes/s", _SHEET),
    ("nvlink", "NVLink, each direction", 450e9, "bytes/s", _SHEET),
    ("network", "network for each GPU", 50e9, "bytes/s", "400 Gbit/s, as in NVIDIA's DGX H100"),
    ("node", "GPUs of a machine", 8, "", "as in NVIDIA's DGX H100"),
    ("flops_share", "share of the operations that training and prompts reach", 0.4, "", "assumed"),
    ("bandwidth_share", "share of the memory's bandwidth that decoding reaches", 0.7, "", "assumed"),
    ("link_share", "share of NVLink and network that gathering weights reaches", 0.7, "", "assumed"),
    ("launch", "an engine's iteration beside the model", 0.002, "s", "assumed"),
    ("load", "new weights into an engine", 10e9, "bytes/s", "assumed"),
    ("wake", "breaking off, or an engine's sleep and waking, at an update of the weights", 2.0, "s", "assumed"),
    ("learner_fixed", "a step of the learner beside its tokens", 1.0, "s", "assumed"),
    (
        "sequences",
        "sequences that run at once in a replica",
        100,
        "",
        "assumed: 0.6 of 80 GB, 2,500 tokens each",
    ),
)
#: The model, and how it is trained.
QWEN3_4B = _figures(
    ("parameters", "parameters", 4.02e9, "", _CONFIG + ": 36 layers of 2,560 and 9,728, tied embeddings"),
    ("cache", "key-value cache of a token", 36 * 2 * 8 * 128 * 2, "bytes", _CONFIG + ": 8 heads of 128, bf16"),
    ("epochs", "epochs of the update", 2, "", "SPIRAL's paper, Table 7 (the preset `paper`)"),
    ("recompute", "operations of an update, by parameter and token", 8, "", "6, and 2 for activations computed again"),
    ("forward", "operations of log-probabilities, by parameter and token", 2, "", "one forward pass"),
    ("response_mean", "mean length of a response", 1000, "tokens", "assumed; the paper reports about 3,500 characters"),
    ("response_sigma", "spread of its logarithm", 0.7, "", "assumed"),
    ("response_limit", "longest response", 4096, "tokens", "SPIRAL's paper, Table 7"),
    ("characters", "characters of a prompt's token", 4, "", "assumed"),
    ("template", "tokens of a prompt beside the observation", 60, "tokens", "assumed"),
)


@dataclass(frozen=True)
class Host:
    """What the processes beside the model cost; measured here by ``measure.py``, on a CPU of this machine.

    Attributes:
        worker_turn, queue_row, queue_byte, token_bytes, driver_key: as in ``Costs``.
        driver_step, driver_row: as in ``Costs``, of the driver's CPU time in runs.
    """

    worker_turn: float
    queue_row: float
    queue_byte: float
    token_bytes: float
    driver_key: float
    driver_step: float = 0.0
    driver_row: float = 0.0


def h100(host: Host, engines: int, learner: int, context: float) -> Costs:
    """Costs of training Qwen3-4B.

    Args:
        host: what is measured.
        engines: replicas, each on one device.
        learner: devices that the learner is sharded over.
        context: mean tokens that a running sequence has in the cache.
    """
    d, m = ({key: figure.value for key, figure in table.items()} for table in (H100, QWEN3_4B))
    weights = 2 * m["parameters"]
    reading, computing = d["bandwidth"] * d["bandwidth_share"], d["flops"] * d["flops_share"]
    gather = weights / (d["link_share"] * (d["nvlink"] if learner <= d["node"] else d["network"])) if learner > 1 else 0
    passes = m["forward"] + m["epochs"] * m["recompute"]
    return Costs(
        engine=EngineCosts(
            iteration=d["launch"] + weights / reading,
            sequence=context * m["cache"] / reading + weights / computing,
            prompt_token=weights / computing,
            most_sequences=int(d["sequences"]),
        ),
        learner=LearnerCosts(
            fixed=d["learner_fixed"],
            token=passes * m["parameters"] / computing,
            # forward, backward, and gradients in fp32, twice as many bytes; log-probabilities go forward once
            micro_batch=gather * (1 + m["epochs"] * 4),
        ),
        update=d["wake"] + gather + weights / d["load"],
        worker_turn=host.worker_turn,
        queue_row=host.queue_row,
        queue_byte=host.queue_byte,
        token_bytes=host.token_bytes,
        driver_step=host.driver_step,
        driver_row=host.driver_row,
        driver_key=host.driver_key,
    )
