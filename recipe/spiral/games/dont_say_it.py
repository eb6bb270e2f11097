"""DontSayIt: talk; whoever says the other's secret word loses."""

from __future__ import annotations

import random
import re

from .base import IllegalAction, win
from .talk import MESSAGE, TalkGame

#: Common nouns with a regular plural in -s or -es.
NOUNS = tuple(
    word
    for words in (
        "airport apple arm artist aunt bag ball bank basket beach bear bed bell belt bench bicycle bird boat book",
        "bottle box branch bread brick bridge brother brush bucket building butter button cake camera candle",
        "captain carpet castle cat chain chair cheese church circle circus clock cloud coat coffee coin comb cook",
        "corn cousin cow crown cup curtain desk dinner doctor dog door dream dress driver drum duck eagle ear egg",
        "elephant engine eye farm farmer father feather fire flag floor flower forest fork friend frog garden",
        "gate ghost glass glove gold grape guitar hammer hat heart hill honey horse hospital hotel hour house ice",
        "insect island jacket jewel judge key king kitchen kite ladder lake lamp lemon letter lion lock machine",
        "map market mask milk mirror money monkey moon mother mountain museum music nail neck needle nest night",
        "nose nurse ocean office onion orange oven owl paint palace paper parent pencil pepper picture pillow",
        "pilot pirate planet plant plate pocket poem police pond potato prison queen rabbit radio rain ring river",
        "road robot rocket roof room rope rose sailor salt sand school sea secret seed shadow ship shirt shoe",
        "shop silver singer sister snake snow soap sock soldier song soup spider spoon spring square star station",
        "stone storm street sugar summer sun table tail tea teacher telephone tent theatre ticket tiger tower",
        "town train tree triangle truck turtle uncle umbrella valley village violin wall watch water wheel",
        "whistle window wing winter wizard wood writer zebra",
    )
    for word in words.split()
)


class DontSayIt(TalkGame):
    """Messages in turn; after ``turns`` of them the game is a draw."""

    def __init__(self, seed: int, turns: int = 20) -> None:
        super().__init__(seed, turns)
        self.secrets = self.random.sample(NOUNS, 2)
        self.winner: int | None = None

    @property
    def is_terminal(self) -> bool:
        return self.winner is not None or super().is_terminal

    def legal_actions(self) -> tuple[str, ...]:
        return () if self.is_terminal else ("What did you do today?", "I saw a dog in the garden.", "Tell me more.")

    def random_action(self, rng: random.Random) -> str:
        first, second, third = rng.sample(NOUNS, 3)
        return f"The {first} and the {second} are in the {third}."

    def step(self, action: str) -> None:
        if self.is_terminal or self.parse(action) != action:
            raise IllegalAction("no message")
        player = self.current_player
        secret = self.secrets[1 - player]
        self.say(action)
        if not {secret, f"{secret}s", f"{secret}es"}.isdisjoint(re.findall("[a-z]+", action.casefold())):
            self.winner = 1 - player

    def rewards(self) -> tuple[float, float]:
        return win(self.winner)

    def observation(self, player: int) -> str:
        return "\n".join(
            [
                f"Don't say it. Your secret word is '{self.secrets[player]}'; the opponent has another. Whoever says "
                f"the other's secret word (or its plural) loses; after {self.max_turns} messages it is a draw. Saying "
                "your own word costs nothing, but gives it away.",
                *self.talk(player),
                f"Message {len(self.history) + 1} of {self.max_turns}. Answer with {MESSAGE}.",
            ]
        )

    def change_private(self, player: int) -> None:
        self.secrets[player] = "xylophone"

    def render(self) -> str:
        return self.show("Player 0's secret word is '{}', player 1's is '{}'.".format(*self.secrets))
