"""SimpleNegotiation: trade goods whose worth is private; whoever's goods gain more value wins."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping

from .base import IllegalAction, compare
from .talk import LONGEST_MESSAGE, TalkGame, message

ACCEPT, DENY = "[accept]", "[deny]"
#: An action in brackets within a message.
_ACTION = re.compile(r"\[\s*(accept|deny|offer\b[^\[\]]*)\]", re.IGNORECASE)
_OFFER = re.compile(r"offer[ :]*(?:i (?:give|offer) )?", re.IGNORECASE)
_ARROW = re.compile("->|=>|→")
_ITEM = re.compile(r"([0-9]{1,4}) ?(?:x |units? of )?([a-z]+?)s?", re.IGNORECASE)
#: The number of characters of an answer that are read.
_LONGEST = 1000
#: Characters that may stand around an action that is the whole answer.
_AROUND = " .!*\"'`[]()"
Goods = dict[str, int]


class SimpleNegotiation(TalkGame):
    """``turns`` turns, half of them for each player. A turn is a message, an action, or both.

    An offer is open for the opponent's next turn only: any answer except ``[accept]`` ends it.
    """

    def __init__(self, seed: int, goods: int = 2, turns: int = 10) -> None:
        super().__init__(seed, turns)
        draw = self.random.randint
        if goods == 2:
            self.terms = "Both began with 10 Wood and 10 Gold, worth 5 to 15 each."
            self.goods: list[Goods] = [{"Wood": 10, "Gold": 10} for _ in range(2)]
            self.values = [{name: draw(5, 15) for name in self.goods[0]} for _ in range(2)]
        else:
            usual = {"Wheat": 5, "Wood": 10, "Sheep": 15, "Brick": 25, "Gold": 40}
            worth = ", ".join(f"{name} {value}" for name, value in usual.items())
            self.terms = f"Both began with 5 to 25 of each. Usual worth, up to a fifth more or less: {worth}."
            self.goods = [{name: draw(5, 25) for name in usual} for _ in range(2)]
            self.values = [{name: draw(v - v // 5, v + v // 5) for name, v in usual.items()} for _ in range(2)]
        self.names = {name.casefold(): name for name in self.goods[0]}
        self.gains = [0, 0]
        self.offer: tuple[Goods, Goods] | None = None  # what the player to move would get, and what it would give

    def parse(self, text: str) -> str | None:
        """``message [action]``, of which one part may be missing; None if the text has two different actions."""
        text = " ".join(unicodedata.normalize("NFKC", text[:_LONGEST]).split())
        actions = {self._canonical(match[1]) for match in _ACTION.finditer(text)}
        if len(actions) > 1 or None in actions:
            return None
        words = message(_ACTION.sub(" ", text))
        if actions and not any(map(str.isalnum, words)):
            words = ""  # quotes, brackets or asterisks round the action
        elif not actions and (bare := self._canonical(text.strip(_AROUND)) or self._canonical(words.strip(_AROUND))):
            return bare  # nothing but an action, without its brackets
        return " ".join(filter(None, (words, *actions))) or None

    def _canonical(self, action: str) -> str | None:
        """The canonical form of an action; None if the text is none, or an offer that cannot be read."""
        if action.casefold() in ("accept", "deny"):
            return f"[{action.casefold()}]"
        start = _OFFER.match(action)
        sides = [self._items(side) for side in _ARROW.split(action[start.end() :].rstrip(" ."))] if start else []
        if len(sides) != 2 or None in sides:
            return None
        return f"[offer: {' -> '.join(_write(side or {}) for side in sides)}]"

    def _items(self, text: str) -> Goods | None:
        """ "3 Wood, 1 Gold" -> {"Wood": 3, "Gold": 1}; None for anything else."""
        goods: Goods = {}
        for part in re.split(r"[,+&]|\band\b", text, flags=re.IGNORECASE):
            match = _ITEM.fullmatch(part.strip())
            name = self.names.get(match[2].casefold()) if match else None
            if match is None or name is None or name in goods or int(match[1]) == 0:
                return None
            goods[name] = int(match[1])
        return {name: goods[name] for name in self.names.values() if name in goods}

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        mine = self.goods[self.current_player]
        offers = [f"[offer: 1 {a} -> 1 {b}]" for a in mine for b in mine if a != b and mine[a]]
        return (
            *self._answers(),
            *offers,
            "What do you need?",
            f"Let us trade. {offers[0]}" if offers else "Let us trade.",
        )

    def _answers(self) -> list[str]:
        """The possible answers to the open offer."""
        if self.offer is None:
            return []
        return [ACCEPT, DENY] if _has(self.goods[self.current_player], self.offer[1]) else [DENY]

    def random_action(self, rng: random.Random) -> str:
        mine = self.goods[self.current_player]
        choices = [*self._answers(), "What do you need?"]
        stocked = [name for name, count in mine.items() if count]
        if stocked:
            give = rng.choice(stocked)
            get = rng.choice([name for name in mine if name != give])
            choices.append(f"[offer: {rng.randint(1, mine[give])} {give} -> {rng.randint(1, 10)} {get}]")
        return rng.choice(choices)

    def step(self, action: str) -> None:
        if self.is_terminal or self.parse(action) != action:
            raise IllegalAction("no message and no action")
        player, match = self.current_player, _ACTION.search(action)
        command = match[0] if match else ""
        if command in (ACCEPT, DENY) and command not in self._answers():
            raise IllegalAction(f"{command}: no offer stands, or you lack the goods")
        offer = None
        if command.startswith("[offer"):
            give, get = (self._items(side) or {} for side in command[len("[offer: ") : -1].split(" -> "))
            if not _has(self.goods[player], give):
                raise IllegalAction(f"{command}: you lack the goods")
            offer = (give, get)
        if command == ACCEPT and self.offer:
            self._trade(player, *self.offer)
        self.offer = offer
        self.history.append((player, _quote(action, command)))

    def _trade(self, player: int, gets: Goods, gives: Goods) -> None:
        for receiver, goods in ((player, gets), (1 - player, gives)):
            for name, count in goods.items():
                for owner, change in ((receiver, count), (1 - receiver, -count)):
                    self.goods[owner][name] += change
                    self.gains[owner] += change * self.values[owner][name]

    def rewards(self) -> tuple[float, float]:
        return compare(*self.gains)

    def observation(self, player: int) -> str:
        lines = [
            "Negotiation. Trade so that the value of your goods grows more than the value of the opponent's does: "
            f"each values goods by private numbers. {self.terms}",
            f"Turn {len(self.history) + 1} of {self.max_turns}. "
            f"Your goods: {self._mine(player)}. Your gain so far: {self.gains[player]:+d}.",
            *self.talk(player),
        ]
        if self.offer and player == self.current_player:
            lines.append(
                f"The offer on the table: you get {_write(self.offer[0])} and give {_write(self.offer[1])}. "
                + (f"{ACCEPT} or {DENY}" if ACCEPT in self._answers() else f"You lack the goods to accept it. {DENY}")
                + ", or anything else, which denies it too."
            )
        first, second, *_ = self.goods[player]
        lines.append(
            f"Answer with a message (up to {LONGEST_MESSAGE} bytes of UTF-8) or an offer, or both: "
            f"[offer: 3 {first} -> 2 {second}] gives 3 {first} for 2 {second}; you must have what you give."
        )
        return "\n".join(lines)

    def _mine(self, player: int) -> str:
        values = self.values[player]
        return ", ".join(f"{count} {name} (worth {values[name]} each)" for name, count in self.goods[player].items())

    def change_private(self, player: int) -> None:
        self.values[player] = {name: value + 1 for name, value in self.values[player].items()}
        if len(self.names) > 2:
            self.goods[player] = {name: count + 1 for name, count in self.goods[player].items()}

    def render(self) -> str:
        return self.show(
            "\n".join(f"Player {player}: {self._mine(player)}. Gain: {self.gains[player]:+d}." for player in (0, 1))
        )


def _has(goods: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
    return all(goods[name] >= count for name, count in wanted.items())


def _write(goods: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in goods.items())


def _quote(action: str, command: str) -> str:
    """A turn as both players see it: the message in quotes, then the action."""
    words = action.removesuffix(command).rstrip()
    return " ".join(filter(None, (f'"{words}"' if words else "", command)))
