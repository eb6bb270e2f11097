"""How often the trainer looks for finished games: the less often, the longer a look takes, and every two seconds as
verl does at least.

verl reads the tags of all rows at each look, from a process that also takes the rows of games that end. With a thousand
rows a look takes some 4 ms, with a hundred thousand half a second.
"""

from __future__ import annotations

import time

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

#: A look is followed by a pause of so many times its length, which is not longer than verl's own.
PAUSE, VERLS_PAUSE = 5.0, 2.0


class RestingBuffer(ReplayBuffer):
    """verl's replay buffer, which rests between two looks. In sync mode verl builds it for
    ``trainer.v1.sampler.custom_sampler``.

    Attributes:
        least_pause: seconds between two looks that take no time.
    """

    least_pause: float = VERLS_PAUSE

    def _sync_metadata_from_transfer_queue(self) -> None:
        begin = time.perf_counter()
        super()._sync_metadata_from_transfer_queue()
        self.poll_interval = max(self.least_pause, min(PAUSE * (time.perf_counter() - begin), VERLS_PAUSE))
