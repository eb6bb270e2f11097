"""SimpleBlindAuction: talk, then sealed bids on several items at once; more profit wins."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from .base import IllegalAction, compare, normalise
from .talk import MESSAGE, TalkGame

_NUMBER = "(?:0|[1-9][0-9]{0,5})"
_ITEM_BID = re.compile(rf"(?:bid )?(?:on )?item ([0-9]) ({_NUMBER})(?![0-9])")
_BIDS = re.compile(rf"(?:bids? )?({_NUMBER}(?: {_NUMBER})*)")
#: Where bids stand apart, a comma within a number separates thousands: "1,000, 0, 0" has three bids, "1,0,0" too.
_APART = re.compile(r"[0-9],?\s+[0-9]|item", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


class SimpleBlindAuction(TalkGame):
    """``talks`` messages each, then a sealed bid for every item. The higher bid gets the item and is paid.

    If both bids are equal, nobody gets the item.
    """

    def __init__(self, seed: int, items: int = 5, coins: int = 1000, talks: int = 3) -> None:
        super().__init__(seed, 2 * talks + 2)
        self.coins = coins
        self.talk_turns = 2 * talks
        usual = [self.random.randint(50, 500) for _ in range(items)]
        self.values = [[self.random.randint(v - v // 5, v + v // 5) for v in usual] for _ in range(2)]
        self.bids: list[list[int]] = []

    @property
    def current_player(self) -> int:
        return (len(self.history) + len(self.bids)) % 2

    @property
    def is_terminal(self) -> bool:
        return len(self.bids) == 2

    @property
    def talking(self) -> bool:
        return len(self.history) < self.talk_turns

    def parse(self, text: str) -> str | None:
        if self.talking:
            return super().parse(text)
        text = normalise(_THOUSANDS.sub("", text) if _APART.search(text) else text)
        if match := _BIDS.fullmatch(text):
            bids = [int(number) for number in match[1].split()]
            return self._write(bids) if len(bids) == len(self.values[0]) else None
        if text and not _ITEM_BID.sub("", text).strip():
            return self._one_by_one([(int(item), int(bid)) for item, bid in _ITEM_BID.findall(text)])
        return None

    def _one_by_one(self, pairs: Sequence[tuple[int, int]]) -> str | None:
        """Read "bid on item 0: 250, bid on item 3: 175"; the other items get no bid."""
        bids = dict(pairs)
        if len(bids) != len(set(pairs)) or not all(item < len(self.values[0]) for item in bids):
            return None
        return self._write([bids.get(item, 0) for item in range(len(self.values[0]))])

    @staticmethod
    def _write(bids: Sequence[int]) -> str:
        return f"[bids: {', '.join(map(str, bids))}]"

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        if self.talking:
            return ("Which items do you want?", "I want item 0.", "I will bid little.")
        items = len(self.values[0])
        return tuple(self._write([bid] * items) for bid in (0, self.coins // items // 2, self.coins // items))

    def random_action(self, rng: random.Random) -> str:
        if self.talking:
            return rng.choice(self.legal_actions())
        items = len(self.values[0])
        return self._write([rng.randint(0, self.coins // items) for _ in range(items)])

    def step(self, action: str) -> None:
        if self.is_terminal or self.parse(action) != action:
            raise IllegalAction("no message, or no bid for every item")
        if self.talking:
            self.say(action)
            return
        bids = [int(bid) for bid in action[len("[bids: ") : -1].split(", ")]
        if sum(bids) > self.coins:
            raise IllegalAction(f"{action}: you have {self.coins} coins")
        self.bids.append(bids)

    def profits(self) -> tuple[int, int]:
        """The value minus the price of the items that each player got."""
        profits = [0, 0]
        for item, both in enumerate(zip(*self.bids, strict=True)):
            if both[0] != both[1]:
                winner = int(both[0] < both[1])
                profits[winner] += self.values[winner][item] - both[winner]
        return profits[0], profits[1]

    def rewards(self) -> tuple[float, float]:
        return compare(*self.profits())

    def observation(self, player: int) -> str:
        items = ", ".join(f"item {item} {value}" for item, value in enumerate(self.values[player]))
        example = self._write([self.coins // 10 * (item % 2) for item in range(len(self.values[player]))])
        if self.talking:
            left = (self.talk_turns - len(self.history) + 1) // 2
            answer = f"Messages left, this one included: {left}. Answer with {MESSAGE}."
        else:
            answer = (
                "Now bid, unseen by each other. Answer with a bid for every item, 0 for none, together "
                f"{self.coins} at most: {example}."
            )
        return "\n".join(
            [
                f"Blind auction. After {self.talk_turns // 2} messages each, both bid on all items at once with "
                f"{self.coins} coins. The higher bid gets the item and pays its bid; equal bids get nothing. More "
                "profit (worth less price) wins.",
                f"Worth to you: {items}. Worth to the opponent: two thirds to one and a half times as much.",
                *self.talk(player),
                answer,
            ]
        )

    def change_private(self, player: int) -> None:
        self.values[player] = [value + 1 for value in self.values[player]]
        if player == 0 and self.bids:
            self.bids[0] = [bid + 1 for bid in self.bids[0]]

    def render(self) -> str:
        lines = [
            f"{what} player {player}: {', '.join(f'item {item} {number}' for item, number in enumerate(numbers))}"
            for what, rows in (("Worth to", self.values), ("Bids of", self.bids))
            for player, numbers in enumerate(rows)
        ]
        return self.show("\n".join(lines))
