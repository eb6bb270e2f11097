"""The record of a game: enough to replay it, to recompute what was trained on it, and to show it to people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from .seeds import GameKey

#: The kind of opponent, and its name, where the policy plays itself.
SELF_PLAY = "self"
#: How often a game is played anew because a player (a dead API) or the game itself failed, before it is given up.
MAX_VOIDS = 1
#: The results of a game for a player.
Result = Literal["win", "draw", "loss"]
RESULTS: tuple[Result, ...] = get_args(Result)
#: The verdict on a turn. All but "legal" end the game: no \boxed{}; no action of the game; against the rules; truncated
#: by the length limit.
Verdict = Literal["legal", "no_answer", "unreadable", "illegal", "truncated"]
#: How a game ended: by its rules, by a turn that was not legal, by the turn cap, or because the next prompt was longer
#: than allowed.
Termination = Literal["rules", "illegal", "turn_cap", "prompt_too_long"]

_encode = msgspec.json.Encoder().encode  # ten times as fast as Python's, for some million tokens a step


@dataclass(frozen=True)
class Tokens:
    """What a language model read and wrote in one turn.

    Attributes:
        prompt_ids: the prompt.
        response_ids: the response, end-of-sequence token included if there was one.
        log_probs: of the response's tokens, under the policy that sampled them; None where the engine gave none.
        weight_versions: first and last version of the policy's weights that sampled the response; None: another
            model did.
        answered_by: the name of the model whose weights sampled it, as its server says; None: the policy.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    log_probs: list[float] | None
    weight_versions: tuple[int, int] | None
    answered_by: str | None = None


@dataclass
class Turn:
    """One observation and one response.

    Attributes:
        player: who moved.
        turn: how many turns this player had before.
        observation: what the player saw.
        response: the text that it answered.
        verdict: what the match made of the answer.
        action: the canonical action, if the answer named one.
        tokens: for language models.
        truncated: whether the length limit ended the response, whatever the verdict.
        advantage: what the turn was trained with (the mean over its tokens); set by the trainer, None for turns that
            were not trained.
        left_out: why a trainable player's turn was not trained, see ``training.credit``; set by the trainer.
        usage: what the answer used of something that is paid for, as its player counts that.
    """

    player: int
    turn: int
    observation: str
    response: str
    verdict: Verdict
    action: str | None = None
    tokens: Tokens | None = None
    truncated: bool = False
    advantage: float | None = None
    left_out: str | None = None
    usage: dict[str, Any] | None = None


@dataclass
class GameRecord:
    """A game that was played to its end.

    Attributes:
        key: its name, from which its seed derives.
        game: the game's id.
        players: the names of players 0 and 1.
        trainable: the players whose turns are trained: (0, 1) in self-play.
        opponent: the kind of whom the policy played: "self", "pool", "random", ...
        turns: in the order in which they were played.
        termination: why it is over.
        rewards: the outcome R for players 0 and 1.
        baselines: b for players 0 and 1, as it was before this batch; set by the trainer.
        discarded: why the game was not trained on: "void", a player or the game failed; "draw", it was played again;
            "surplus", the games before it gave the batch enough turns; "stale", it was too old when it could have been
            trained; None for games that count.
        reason: of a void game, what failed; of one with the termination "prompt_too_long", how long the prompt was.
        past: the actions of both players, of a random opening for instance, that led to the state from which the game
            was played; ``turns`` has what comes after.
    """

    key: GameKey
    game: str
    players: tuple[str, str]
    trainable: tuple[int, ...]
    turns: list[Turn] = field(default_factory=list)
    termination: Termination = "rules"
    rewards: tuple[float, float] = (0.0, 0.0)
    baselines: tuple[float | None, float | None] = (None, None)
    discarded: str | None = None
    opponent: str = SELF_PLAY
    reason: str | None = None
    past: list[str] = field(default_factory=list)

    def turns_of(self, player: int) -> list[Turn]:
        return [turn for turn in self.turns if turn.player == player]

    def trainable_turns(self) -> list[Turn]:
        """The trainable players' turns: those that are rows."""
        return [turn for turn in self.turns if turn.player in self.trainable]

    def result(self, player: int) -> Result:
        """The game's outcome for a player, by the raw rewards. A game that both players lost is a loss for each."""
        mine, other = self.rewards[player], self.rewards[1 - player]
        return "win" if mine > other else "loss" if mine < max(other, 0) else "draw"

    def to_json(self) -> str:
        """The fields as one line, without those that few games have."""
        fields = {name: value for name, value in vars(self).items() if name != "past" or value}
        return to_line(fields | {"key": self.key.to_dict()})


def to_line(data: dict[str, Any]) -> str:
    """A record's fields as one line, always the same."""
    return _encode(data).decode()
