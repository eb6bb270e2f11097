"""Kuhn poker: one round as in the literature, or several rounds with chips that move.

A round: three cards (J < Q < K), one each, ante 1 each, one bet of 1. A showdown after check-check is for 1 chip, after
bet-call for 2. Over several rounds the starter alternates and whoever has won more chips wins; equal chips are a draw.
"""

from __future__ import annotations

from dataclasses import dataclass

from .base import Game, IllegalAction, compare

CARDS = ("J", "Q", "K")
CHECK, BET, CALL, FOLD = "[check]", "[bet]", "[call]", "[fold]"
#: Histories with a showdown, and whether the bet was called; histories with a fold.
SHOWDOWNS = {(CHECK, CHECK): False, (BET, CALL): True, (CHECK, BET, CALL): True}
FOLDS = {(BET, FOLD), (CHECK, BET, FOLD)}
RULES = (
    "Kuhn poker. Both players put one chip into the pot and get one card; J < Q < K. To bet or to call costs one more "
    "chip. The higher card takes the pot, or whoever has not folded."
)


@dataclass(frozen=True)
class Result:
    """A round that is over: the winner, the chips won, both cards, whether they were shown, and the actions."""

    winner: int
    chips: int
    cards: tuple[str, str]
    shown: bool
    history: tuple[str, ...]

    def seen_by(self, player: int) -> str:
        shown = f", {self.cards[player]} against {self.cards[1 - player]}" if self.shown else ""
        return f"you {'won' if self.winner == player else 'lost'} {self.chips}{shown}"


class KuhnPoker(Game):
    """``rounds`` rounds of Kuhn poker.

    One round: the reward is the chips won, halved into [-1, 1] (a pot of 2 is worth 1, one of 1 a half). Several
    rounds: +1, 0 or -1 for more, as many, or fewer chips.
    """

    actions = (CHECK, BET, CALL, FOLD)

    def __init__(self, seed: int, rounds: int = 1) -> None:
        super().__init__(seed)
        self.rounds = rounds
        self.max_turns = 3 * rounds
        self.round = 0
        self.won = 0  # chips that player 0 has won from player 1
        self.results: list[Result] = []
        self._deal()

    def _deal(self) -> None:
        first, second = self.random.sample(CARDS, 2)
        self.cards = (first, second)
        self.history: tuple[str, ...] = ()

    @property
    def starter(self) -> int:
        return self.round % 2

    @property
    def current_player(self) -> int:
        return (self.starter + len(self.history)) % 2

    @property
    def is_terminal(self) -> bool:
        return self.round >= self.rounds

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        return (CALL, FOLD) if BET in self.history else (CHECK, BET)

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action} is not possible now: {' or '.join(self.legal_actions())}")
        actor = self.current_player
        self.history += (action,)
        if self.history in FOLDS:
            self._settle(winner=1 - actor, chips=1, shown=False)
        elif self.history in SHOWDOWNS:
            winner = max((0, 1), key=lambda player: CARDS.index(self.cards[player]))
            self._settle(winner, chips=2 if SHOWDOWNS[self.history] else 1, shown=True)

    def _settle(self, winner: int, chips: int, shown: bool) -> None:
        self.won += chips if winner == 0 else -chips
        self.results.append(Result(winner, chips, self.cards, shown, self.history))
        self.round += 1
        if not self.is_terminal:
            self._deal()

    def rewards(self) -> tuple[float, float]:
        if self.rounds == 1:
            return (self.won / 2, 0.0 - self.won / 2)  # 0.0 and not -0.0
        return compare(self.won, 0)

    def observation(self, player: int) -> str:
        lines = [RULES]
        if self.rounds > 1:
            lines += self._score(player)
        if not self.is_terminal:
            lines.append(f"Your card: {self.cards[player]}")
            moves = [
                f"{'you' if (self.starter + i) % 2 == player else 'opponent'} {action}"
                for i, action in enumerate(self.history)
            ]
            lines.append(f"So far: {', '.join(moves) or 'nothing'}")
            lines.append(f"Answer with {' or '.join(self.legal_actions())}.")
        return "\n".join(lines)

    def _score(self, player: int) -> list[str]:
        lines = [f"Whoever has won more chips after {self.rounds} rounds wins."]
        lines += [f"Round {number}: {result.seen_by(player)}" for number, result in enumerate(self.results, 1)]
        if not self.is_terminal:
            chips = self.won if player == 0 else -self.won
            starter = "you start" if self.starter == player else "your opponent starts"
            lines.append(f"Round {self.round + 1}: {starter}. Your chips: {chips:+d}")
        return lines

    def change_private(self, player: int) -> None:
        third = ({*CARDS} - {*self.cards}).pop()
        first, second = self.cards
        self.cards = (third, second) if player == 0 else (first, third)

    def render(self) -> str:
        lines = [f"Kuhn poker. Player 0's chips: {self.won:+d}"]
        for number, result in enumerate(self.results):
            lines.append(f"{_round(number, result.cards, result.history)}. Player {result.winner} won {result.chips}.")
        if not self.is_terminal:
            lines.append(_round(self.round, self.cards, self.history))
        return "\n".join(lines)


def _round(number: int, cards: tuple[str, str], history: tuple[str, ...]) -> str:
    moves = [f"player {(number + place) % 2} {action}" for place, action in enumerate(history)]
    return f"Round {number + 1}: player 0 has {cards[0]}, player 1 has {cards[1]}: {', '.join(moves) or 'no move yet'}"
