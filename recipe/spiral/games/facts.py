"""Pairs of a true and a false statement: thousands from small tables, so that they are hard to learn by heart."""

from __future__ import annotations

import random


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
