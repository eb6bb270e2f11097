"""verl's agent-loop manager, which tells the trainer of each batch of rows in the moment before it is played."""

from __future__ import annotations

from collections.abc import Callable

from tensordict import TensorDict
from verl.trainer.ppo.v1 import AgentLoopManagerTQ


class GameManager(AgentLoopManagerTQ):
    """verl's.

    Attributes:
        on_launch: called with each batch, in which it may write; the trainer's.
    """

    on_launch: Callable[[TensorDict], None]

    def generate_sequences(self, prompts: TensorDict) -> None:
        self.on_launch(prompts)
        self.play(prompts)

    def play(self, prompts: TensorDict) -> None:
        """Have the games of a batch begun."""
        super().generate_sequences(prompts)
