"""Pig: roll as often as you dare and keep the sum, or lose it to a 1."""

from __future__ import annotations

from .base import Game, IllegalAction, compare

ROLL, HOLD = "[roll]", "[hold]"


class PigDice(Game):
    """A player rolls until it holds, rolls a 1 (and gets nothing), or has reached ``target``, which wins at once.

    Both players have ``rounds`` rounds; then the higher score wins.
    """

    perfect_information = True
    actions = (ROLL, HOLD)

    def __init__(self, seed: int, target: int = 50, rounds: int = 25) -> None:
        super().__init__(seed)
        self.target = target
        self.rounds = rounds
        self.max_turns = 2 * rounds * (target // 2 + 1)  # a roll that does not end the round adds at least 2
        self.scores = [0, 0]
        self.round_sum = 0
        self.rounds_played = 0
        self.event: tuple[int, str] | None = None  # who did what last

    @property
    def current_player(self) -> int:
        return self.rounds_played % 2

    @property
    def is_terminal(self) -> bool:
        return max(self.scores) >= self.target or self.rounds_played >= 2 * self.rounds

    def legal_actions(self) -> tuple[str, ...]:
        return () if self.is_terminal else self.actions

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action}: only {ROLL} and {HOLD} are possible")
        if action == HOLD:
            self._end_round(self.round_sum, f"held and got {self.round_sum}")
            return
        face = self.random.randint(1, 6)
        if face == 1:
            self._end_round(0, "rolled 1 and got nothing")
        elif self.scores[self.current_player] + self.round_sum + face >= self.target:
            self._end_round(self.round_sum + face, f"rolled {face} and won")
        else:
            self.round_sum += face
            self.event = (self.current_player, f"rolled {face}")

    def _end_round(self, points: int, event: str) -> None:
        self.event = (self.current_player, event)
        self.scores[self.current_player] += points
        self.round_sum = 0
        self.rounds_played += 1

    def rewards(self) -> tuple[float, float]:
        return compare(*self.scores)

    def observation(self, player: int) -> str:
        left = [self.rounds - (self.rounds_played + 1 - who) // 2 for who in (player, 1 - player)]
        last = f" Last: {'you' if self.event[0] == player else 'opponent'} {self.event[1]}." if self.event else ""
        return (
            f"Pig. {ROLL} adds a die of 2 to 6 to the sum of your round, but a 1 loses the sum and ends the round; "
            f"{HOLD} adds the sum to your score and ends the round. {self.target} points win at once; after "
            f"{self.rounds} rounds each, more points win.\n"
            f"Your score: {self.scores[player]}. Opponent's: {self.scores[1 - player]}. Sum of this round: "
            f"{self.round_sum}. Rounds left, with this one: yours {left[0]}, opponent's {left[1]}.{last}\n"
            f"Answer with {ROLL} or {HOLD}."
        )

    def render(self) -> str:
        last = f" Last: player {self.event[0]} {self.event[1]}." if self.event else ""
        return (
            f"Player 0's score: {self.scores[0]}. Player 1's: {self.scores[1]}.\n"
            f"Sum of round {self.rounds_played + 1}: {self.round_sum}.{last}"
        )
