"""TruthAndDeception: player 0 knows which of two statements is true and argues for the false one; player 1 guesses.

The statements come from small tables, which give thousands of pairs, so that they are hard to learn by heart.
"""

from __future__ import annotations

import random

from .base import IllegalAction, normalise, win
from .talk import MESSAGE, TalkGame

GUESSES = ("[fact 1]", "[fact 2]")


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """'a=b, c=d' -> (("a", "b"), ("c", "d"))."""
    return tuple((left, right) for left, _, right in (pair.strip().partition("=") for pair in text.split(",")))


#: A statement with {left} and {right} -> the pairs for which it is true. Each entry occurs once in its column.
_TABLES = {
    statement: _pairs(pairs)
    for statement, pairs in {
        "The capital of {left} is {right}.": (
            "Australia=Canberra, Austria=Vienna, Belgium=Brussels, Brazil=Brasília, Bulgaria=Sofia, Canada=Ottawa, "
            "Chile=Santiago, Colombia=Bogotá, Cuba=Havana, Denmark=Copenhagen, Egypt=Cairo, Ethiopia=Addis Ababa, "
            "Finland=Helsinki, Ghana=Accra, Greece=Athens, Hungary=Budapest, Iceland=Reykjavik, India=New Delhi, "
            "Iran=Tehran, Iraq=Baghdad, Ireland=Dublin, Jordan=Amman, Kenya=Nairobi, Morocco=Rabat, Nepal=Kathmandu, "
            "New Zealand=Wellington, Nigeria=Abuja, Norway=Oslo, Pakistan=Islamabad, Peru=Lima, Poland=Warsaw, "
            "Portugal=Lisbon, Romania=Bucharest, Senegal=Dakar, Spain=Madrid, Sweden=Stockholm, Thailand=Bangkok, "
            "Turkey=Ankara, Uruguay=Montevideo, Vietnam=Hanoi"
        ),
        "The chemical symbol of {left} is {right}.": (
            "aluminium=Al, antimony=Sb, argon=Ar, arsenic=As, barium=Ba, boron=B, bromine=Br, cadmium=Cd, calcium=Ca, "
            "chlorine=Cl, chromium=Cr, cobalt=Co, copper=Cu, gold=Au, helium=He, iron=Fe, krypton=Kr, lead=Pb, "
            "lithium=Li, magnesium=Mg, manganese=Mn, mercury=Hg, neon=Ne, nickel=Ni, platinum=Pt, potassium=K, "
            "silicon=Si, silver=Ag, sodium=Na, sulfur=S, tin=Sn, titanium=Ti, tungsten=W, uranium=U, zinc=Zn"
        ),
        "{left} was written by {right}.": (
            "War and Peace=Leo Tolstoy, Crime and Punishment=Fyodor Dostoevsky, Don Quixote=Miguel de Cervantes, "
            "Moby-Dick=Herman Melville, Pride and Prejudice=Jane Austen, Jane Eyre=Charlotte Brontë, Wuthering "
            "Heights=Emily Brontë, Oliver Twist=Charles Dickens, Dracula=Bram Stoker, Frankenstein=Mary Shelley, "
            "Ulysses=James Joyce, The Trial=Franz Kafka, Faust=Johann Wolfgang von Goethe, Les Misérables=Victor Hugo, "
            "Madame Bovary=Gustave Flaubert, The Stranger=Albert Camus, Hamlet=William Shakespeare, Treasure "
            "Island=Robert Louis Stevenson, The Time Machine=H. G. Wells, Around the World in Eighty Days=Jules Verne"
        ),
        "{left} ended in the year {right}.": (
            "the First World War=1918, the Second World War=1945, the American Civil War=1865, the Thirty Years' "
            "War=1648, the Hundred Years' War=1453, the Franco-Prussian War=1871, the Crimean War=1856, the "
            "Russo-Japanese War=1905, the Spanish Civil War=1939, the Congress of Vienna=1815, the Seven Years' "
            "War=1763, the Second Boer War=1902"
        ),
        "The main language spoken in {left} is {right}.": (
            "Brazil=Portuguese, Argentina=Spanish, Austria=German, Egypt=Arabic, Iran=Persian, Greece=Greek, "
            "Hungary=Hungarian, Japan=Japanese, Cambodia=Khmer, Israel=Hebrew, Denmark=Danish, Vietnam=Vietnamese, "
            "Turkey=Turkish, Thailand=Thai"
        ),
        "{left} has {right} sides.": (
            "a triangle=3, a square=4, a pentagon=5, a hexagon=6, a heptagon=7, an octagon=8, a nonagon=9, "
            "a decagon=10, a hendecagon=11, a dodecagon=12"
        ),
        "A young {left} is called a {right}.": (
            "cow=calf, horse=foal, sheep=lamb, goat=kid, swan=cygnet, hare=leveret, kangaroo=joey, goose=gosling"
        ),
        "{left} is best known for {right}.": (
            "Alexander Fleming=penicillin, Wilhelm Röntgen=X-rays, Alfred Nobel=dynamite, Alessandro Volta=the "
            "electric battery, Dmitri Mendeleev=the periodic table, Louis Braille=the reading script for the blind, "
            "Evangelista Torricelli=the barometer, Edward Jenner=the smallpox vaccine, Ernest Rutherford=the atomic "
            "nucleus, Heinrich Hertz=radio waves, J. J. Thomson=the electron, James Chadwick=the neutron, Rudolf "
            "Diesel=the diesel engine"
        ),
    }.items()
}


def draw_facts(rng: random.Random) -> tuple[str, str]:
    """A true and a false statement about different things of one table."""
    statement, pairs = rng.choices([*_TABLES.items()], weights=[*map(len, _TABLES.values())])[0]
    true, false, other = rng.sample(pairs, 3)
    return _write(statement, *true), _write(statement, false[0], other[1])


def _write(statement: str, left: str, right: str) -> str:
    text = statement.format(left=left, right=right)
    return text[0].upper() + text[1:]


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
