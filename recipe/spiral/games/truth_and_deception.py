"""TruthAndDeception: player 0 knows which of two statements is true and argues for the false one; player 1 guesses."""

from __future__ import annotations

from .base import IllegalAction, normalise, win
from .facts import draw_facts
from .text import MESSAGE, TalkGame

GUESSES = ("[fact 1]", "[fact 2]")


class TruthAndDeception(TalkGame):
    """The players write ``turns - 1`` messages in turn, then player 1 guesses."""

    def __init__(self, seed: int, turns: int = 6) -> None:
        super().__init__(seed, turns)
        true, false = draw_facts(self.random)
        self.correct = self.random.randrange(2)
        self.facts = (true, false) if self.correct == 0 else (false, true)
        self.guess: int | None = None

    @property
    def is_terminal(self) -> bool:
        return self.guess is not None

    @property
    def guessing(self) -> bool:
        return len(self.history) == self.max_turns - 1

    def parse(self, text: str) -> str | None:
        if not self.guessing:
            return super().parse(text)
        return {"fact 1": GUESSES[0], "1": GUESSES[0], "fact 2": GUESSES[1], "2": GUESSES[1]}.get(normalise(text))

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        return GUESSES if self.guessing else ("Fact 1 is true.", "Fact 2 is true.", "I am not sure.")

    def step(self, action: str) -> None:
        if self.is_terminal or self.parse(action) != action:
            raise IllegalAction("no message, or no guess")
        if self.guessing:
            self.guess = GUESSES.index(action)
        else:
            self.say(action)

    def rewards(self) -> tuple[float, float]:
        return win(None if self.guess is None else int(self.guess == self.correct))

    def observation(self, player: int) -> str:
        messages = self.max_turns // 2 - player
        lines = ["Truth and deception. One of two facts is true, the other false."]
        if player == 0:
            lines.append(
                f"You know which. The opponent does not and will guess after {messages} messages of yours: you win if "
                "it guesses wrong."
            )
        else:
            lines.append(
                f"The opponent knows which, and wins if you guess wrong. After {messages} messages of yours you guess, "
                "and win if you are right."
            )
        for number, fact in enumerate(self.facts):
            known = (" (true)" if number == self.correct else " (false)") if player == 0 else ""
            lines.append(f"Fact {number + 1}: {fact}{known}")
        lines += self.talk(player)
        left = (self.max_turns - len(self.history) - player) // 2
        lines.append(
            f"Now guess. Answer with {' or '.join(GUESSES)}."
            if self.guessing
            else f"Messages left, this one included: {left}. Answer with {MESSAGE}."
        )
        return "\n".join(lines)

    def change_private(self, player: int) -> None:
        if player == 0:
            self.correct ^= 1

    def render(self) -> str:
        known = [f"Fact {at + 1} ({'true' if at == self.correct else 'false'}): {self.facts[at]}" for at in (0, 1)]
        return self.show("\n".join([*known, *([] if self.guess is None else [f"The guess: fact {self.guess + 1}"])]))
