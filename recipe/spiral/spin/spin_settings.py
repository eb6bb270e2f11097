"""The types and ranges of SPIN's own settings; their defaults are in ``config/extension/spin.yaml``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from hydra.core.config_store import ConfigStore

from ..config import within

#: The loss's name, the estimator's that goes with it, and that of its settings in a batch.
DPO = "dpo"
#: The benchmarks' grader, as ``questions.grader`` names it: the content of the last box.
BOXED = "boxed"
LossType = Literal["sigmoid", "ipo", "hinge"]
LogProb = Literal["sum", "mean"]


@dataclass
class Branching:
    states: int = within(0)
    continuations: int = within(1)


@dataclass
class Questions:
    grader: str
    seconds: float = within(0.001)


_NODE = {"branching": Branching, "questions": Questions}
ConfigStore.instance().store(group="extension", name="spin_schema", package="_global_", node=_NODE)


@dataclass(frozen=True)
class DpoSettings:
    """How DPO compares pairs (``algorithm.dpo_*``); ValueError: one of them is out of its range."""

    #: How strongly; in DPO the coefficient of the KL to the reference.
    beta: float = 0.1
    #: DPO's, IPO's (arXiv 2310.12036) or SLiC's (arXiv 2305.10425).
    loss_type: LossType = "sigmoid"
    #: Of "sigmoid": the probability that a pair is the wrong way round.
    label_smoothing: float = 0.0
    #: Whether a response's log-probability is the sum over its tokens or their mean.
    log_prob: LogProb = "sum"

    def __post_init__(self) -> None:
        for name, known in (("loss_type", get_args(LossType)), ("log_prob", get_args(LogProb))):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"algorithm.dpo_{name}={value}: must be one of {', '.join(known)}")
        if self.beta <= 0 or not 0 <= self.label_smoothing < 0.5:
            of_pairs = f"algorithm.dpo_beta={self.beta}, algorithm.dpo_label_smoothing={self.label_smoothing}"
            raise ValueError(f"{of_pairs}: must be above 0, and from 0 to below 0.5")

    @classmethod
    def from_config(cls, algorithm: Any) -> DpoSettings:
        """By ``algorithm.dpo_*``. Where ``dpo_log_prob`` is null, IPO takes means, as its authors do."""
        kind = algorithm.dpo_loss_type
        log_prob: Any = algorithm.dpo_log_prob or ("mean" if kind == "ipo" else "sum")
        return cls(float(algorithm.dpo_beta), kind, float(algorithm.dpo_label_smoothing), log_prob)

    @property
    def batch_info(self) -> dict[str, Any]:
        """What a batch that is sent to the workers says beside its rows."""
        return {"force_group_size": 2, DPO: asdict(self)}
