"""Liar's dice: bid on the dice of both players, or call the last bid. No wild faces."""

from __future__ import annotations

from .base import Game, IllegalAction, win

FACES = range(1, 7)
CALL = "[call]"
Bid = tuple[int, int]  # quantity, face


class LiarsDice(Game):
    """Whoever is wrong loses a die and starts the next round. A player without dice has lost.

    A bid has a higher quantity than the last bid, or the same quantity and a higher face. Its quantity is at most the
    number of dice, so every round ends.
    """

    def __init__(self, seed: int, dice: int = 5) -> None:
        super().__init__(seed)
        self.counts = [dice, dice]
        self.max_turns = sum(len(FACES) * total + 1 for total in range(2, 2 * dice + 1))
        self.actions = (*(self._write((quantity, face)) for quantity in range(1, 2 * dice + 1) for face in FACES), CALL)
        self.event: tuple[int, Bid, int] | None = None  # the last call: who called which bid, and how many there were
        self._deal(starter=0)

    def _deal(self, starter: int) -> None:
        self.starter = starter
        self.bids: list[Bid] = []
        self.dice = tuple(sorted(self.random.choices(FACES, k=count)) for count in self.counts)

    @staticmethod
    def _write(bid: Bid) -> str:
        return f"[bid: {bid[0]}, {bid[1]}]"

    @staticmethod
    def spellings(action: str) -> tuple[str, ...]:
        return () if action == CALL else (action.replace("bid", ""),)

    @property
    def current_player(self) -> int:
        return (self.starter + len(self.bids)) % 2

    @property
    def is_terminal(self) -> bool:
        return 0 in self.counts

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        if not self.bids:
            return self.actions[: 6 * sum(self.counts)]
        quantity, face = self.bids[-1]
        return (*self.actions[6 * (quantity - 1) + face : 6 * sum(self.counts)], CALL)

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action}: not higher than the last bid, more than there are dice, or nothing to call")
        if action == CALL:
            self._call()
        else:
            index = self.actions.index(action)
            self.bids.append((index // 6 + 1, index % 6 + 1))

    def _call(self) -> None:
        caller, (quantity, face) = self.current_player, self.bids[-1]
        there_were = sum(dice.count(face) for dice in self.dice)
        loser = caller if there_were >= quantity else 1 - caller
        self.counts[loser] -= 1
        self.event = (caller, (quantity, face), there_were)
        self._deal(starter=loser)

    def rewards(self) -> tuple[float, float]:
        return win(self.counts.index(0) ^ 1 if self.is_terminal else None)

    def observation(self, player: int) -> str:
        names = ("you", "opponent") if player == 0 else ("opponent", "you")
        lines = [
            "Liar's dice. Bids are on the dice of both players together. A bid is a quantity and a face, with a higher "
            "quantity than the last bid, or the same quantity and a higher face. Calling the last bid: with fewer such "
            "dice the bidder loses a die, else the caller; the loser starts the next round. Without dice you lose."
        ]
        dice = (
            f"Your dice: {' '.join(map(str, self.dice[player]))}. The opponent has {self.counts[1 - player]}, "
            f"a bid's quantity is at most {sum(self.counts)}."
        )
        lines += self._rounds(names, dice)
        highest = bool(self.bids) and self.bids[-1] == (sum(self.counts), 6)
        forms = ["[bid: quantity, face]"] * (not highest) + [CALL] * bool(self.bids)
        lines.append(f"Answer with {' or '.join(forms)}.")
        return "\n".join(lines)

    def _rounds(self, names: tuple[str, str], dice: str) -> list[str]:
        lines = []
        if self.event:
            caller, (quantity, face), there_were = self.event
            bidder, loser = names[1 - caller], names[caller if there_were >= quantity else 1 - caller]
            lines.append(
                f"Last round: {bidder} bid {quantity} x {face}, {names[caller]} called, there were {there_were}: "
                f"{loser} lost a die."
            )
        bids = ", ".join(f"{quantity} x {face}" for quantity, face in self.bids)
        return [*lines, dice, f"Bids in turn, {names[self.starter]} first: {bids or 'none yet'}"]

    def change_private(self, player: int) -> None:
        self.dice[player][:] = [face % len(FACES) + 1 for face in self.dice[player]]

    def render(self) -> str:
        dice = [f"Player {player} has {' '.join(map(str, own)) or 'no dice'}." for player, own in enumerate(self.dice)]
        return "\n".join(self._rounds(("player 0", "player 1"), "\n".join(dice)))
