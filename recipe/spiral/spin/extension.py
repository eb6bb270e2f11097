"""What SPIN adds to a training: DPO on pairs (``loss=dpo``), branches of games, and questions in place of games
(``task=questions``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import extensions
from ..extensions import Objective, ObjectiveKind
from ..rollouts.schedule import plays_games
from .dpo_settings import DPO


class Extension(extensions.Extension):
    def check(self, config: Any) -> None:
        from ..processes.launch import put_on_path
        from .checks import check_dpo, check_questions
        from .response_scores import BOXED

        check_dpo(config)
        if plays_games(config):
            return
        check_questions(config)
        if config.questions.grader != BOXED:
            put_on_path(Path.cwd())  # where a function is looked for, on every machine

    def agent_loops(self, config: Any) -> Mapping[str, str]:
        branching = {"spiral_game": f"{__package__}.branching.BranchingLoop"} if config.branching.states else {}
        return {"spiral_answer": f"{__package__}.answer_loop.AnswerLoop", **branching}

    def objectives(self) -> Mapping[str, ObjectiveKind]:
        return {DPO: ObjectiveKind(_pairs, _pair_loss)}


def _pairs(config: Any) -> Objective:
    from .dpo_settings import DpoSettings
    from .pairs import PairObjective

    return PairObjective(DpoSettings.from_config(config.algorithm))


def _pair_loss(loss: Callable[..., Any]) -> Callable[..., Any]:
    from .dpo import PairLoss

    return PairLoss(loss)
