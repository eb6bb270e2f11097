"""What SPIN adds to a training: DPO on pairs (``loss=dpo``), branches of games, and questions in place of games
(``task=questions``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import extensions
from ..extensions import Objective
from ..rollouts.schedule import plays_games
from .dpo_checks import DPO, check_dpo


class Extension(extensions.Extension):
    estimators = (DPO,)

    def settle(self, config: Any) -> None:
        """A micro-batch holds both responses of a pair."""
        if config.algorithm.adv_estimator == DPO:
            actor, data = config.actor_rollout_ref.actor, config.data
            pair = 2 * (int(data.max_prompt_length) + int(data.max_response_length))
            if actor.ppo_max_token_len_per_gpu is None:
                actor.ppo_max_token_len_per_gpu = max(16384, pair)

    def check(self, config: Any) -> None:
        check_dpo(config)
        if not plays_games(config):
            from .question_checks import check_questions

            check_questions(config)

    def ready(self, config: Any, tokenizer: Any) -> None:
        if plays_games(config):
            return
        from ..processes.launch import put_on_path
        from .question_checks import check_question_prompts
        from .response_scores import BOXED

        check_question_prompts(config, tokenizer)
        if config.questions.grader != BOXED:
            put_on_path(Path.cwd())  # where a function is looked for, on every machine

    def agent_loops(self, config: Any) -> Mapping[str, str]:
        branching = {"spiral_game": f"{__package__}.branching.BranchingLoop"} if config.branching.states else {}
        return {"spiral_answer": f"{__package__}.answer_loop.AnswerLoop", **branching}

    def objective(self, config: Any) -> Objective | None:
        if config.algorithm.adv_estimator != DPO:
            return None
        from .dpo import DpoSettings
        from .pairs import PairObjective

        return PairObjective(DpoSettings.from_config(config.algorithm))

    def wrap_loss(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        from .dpo import PairLoss

        return PairLoss(loss)
