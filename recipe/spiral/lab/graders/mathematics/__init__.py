"""Whether two answers in LaTeX are the same: put into one form, read, and compared by value.

What is not read as a whole is only the same as itself.

This runs in the grader's process (``judge_process``) and imports nothing of ours from outside this folder.
"""

from __future__ import annotations

import re

from .forms import BEGIN, END, bare, one_form
from .reading import BASE, WORD, read
from .values import digits_of, same_share

__all__ = ["BEGIN", "END", "same"]

#: Units that need no wrapper, besides all words of four letters and more.
_UNITS = "[cmkn]m|k?g|mg|ms|ft|mi|yd|hrs?|sec|min|mph|deg|sq|[kM]?eV|[kM]?Hz|[kM]J|mol|rad|erg|k?Pa|atm|k?cal|lb|oz|mL"
_UNIT = re.compile(
    r"(?P<per>/)?(?:[\s/*.]|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z]))*"
    rf"(?P<name>{BEGIN}(?!\s*[eid]?\s*{END})[^{BEGIN}{END}]*[a-zA-Z][^{BEGIN}{END}]*{END}"
    rf"|(?<![a-zA-Z\\_{{])(?:{_UNITS}|[a-zA-Z]{{4,}})(?![a-zA-Z]))"
    r"\s*(?:\^\s*\{?\s*(?P<power>[-+]?\d+)\s*\}?)?\s*$"
)
#: What no unit begins with: it changes the value. Of single letters those that are usual units are left out.
_CHANGES = re.compile(
    r"\W*(?:(?i:(?:in )?(?:base|mod)|squared|cubed|factorial|times\W+\w|to the (?!nearest)|plus|minus|over|divided"
    r"|dozen|hundred)|[a-fi-ln-rt-zEIXYZ](?![a-zA-Z]))"
)
#: How words begin behind a number, such as July and June, red and blue: of two different ones neither is a unit.
_WORDS = re.compile(rf"(?<![\\a-zA-Z])(?!(?:{_UNITS})(?![a-zA-Z]))[a-zA-Z]{{3}}")
#: How a text ends that may have a unit.
_VALUE = re.compile(r"(?:[\d})!%]|\\pi)\s*$")
#: A whole answer that is a word, though short. Words that are usual products, such as at, are not.
_SHORT_WORD = re.compile(
    r"\W*(?:no|on|or|of|to|do|go|so|up|in|if|is|it|by|we|he|odd|old|all|any|and|one|two|out|end|add"
    r"|[b-df-hj-np-tv-z][aeiou][b-df-hj-np-tv-z])\W*",
    re.IGNORECASE,
)
#: A date by a month's name, with the day before or behind it.
_DATE = re.compile(
    r"(?:(?P<before>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?)?(?:,?\s+(?P<year>\d{4}))?",
    re.IGNORECASE,
)
#: A logarithm whose base is not written.
_LOG = re.compile(r"\\log(?![a-zA-Z]|\s*_)")
#: The letter of an option, before its text.
_OPTION = re.compile(r"\(([A-Z])\)\s*|([A-Z])(?:[).:]\s*|$)")


def same(reference: str, answer: str) -> bool | None:
    """Whether an answer is the same as the right one; None: it cannot be read."""
    expected, given = one_form(reference), one_form(answer)
    if (date := _date(expected)) and (other_date := _date(given)):
        return date == other_date
    if bool(_LOG.search(expected)) != bool(_LOG.search(given)) and r"\ln" in expected + given:
        expected, given = (_LOG.sub(r"\\ln", text) for text in (expected, given))
    option, chosen = _OPTION.match(bare(expected)), _OPTION.match(bare(given))
    if option and chosen and option.end() == len(bare(expected)) and (option[1] or BEGIN in expected):
        return (option[1] or option[2]) == (chosen[1] or chosen[2])
    if chosen and not option and chosen.end() < len(bare(given)):
        given = bare(given)[chosen.end() :]
    if _compact(expected) == _compact(given):
        return True
    word = BEGIN in expected or WORD.search(expected) or _SHORT_WORD.fullmatch(expected)
    if word and re.fullmatch("[a-zA-Z][a-zA-Z' -]+", bare(expected)):
        return _letters(expected) == _letters(given)
    (first, powers), (second, others) = _without_unit(expected), _without_unit(given)
    behind, other_behind = ({*_WORDS.findall(expected[len(first) :])}, {*_WORDS.findall(given[len(second) :])})
    if behind and other_behind and not behind & other_behind:
        return False
    bases, words = ([set(pattern.findall(bare(value))) for value in (first, second)] for pattern in (BASE, WORD))
    if any(one and other and one != other for one, other in [(powers, others), bases, words]):
        return False
    letters = set(bare(re.sub(r"\\[a-zA-Z]+", "", expected)))
    lower = not any(letter.upper() in letters for letter in letters if letter.islower())
    readable = False
    for one, other in dict.fromkeys([(first, second), (expected, given)]):
        if (value := read(other, lower)) is None:
            continue
        readable = True
        try:
            wanted = read(one, lower)
            if wanted is not None and same_share(wanted, value, "%" in one, "%" in other, digits_of(one, other)):
                return True
        except MemoryError:
            raise
        except Exception:  # sympy's are of many kinds, of what has no value or no order
            continue
    return False if readable else None


def _date(text: str) -> tuple[int, str, str | None] | None:
    """The day, the month and the year of a text that is a date; None: it is none."""
    found = _DATE.fullmatch(bare(text))
    if found is None or bool(found["before"]) == bool(found["after"]):
        return None
    return int(found["before"] or found["after"]), found["month"].lower(), found["year"]


def _compact(text: str) -> str:
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", bare(text))


def _letters(text: str) -> str:
    return re.sub(r"\\[a-zA-Z]+|[^a-z]", "", bare(text).casefold())


def _without_unit(text: str) -> tuple[str, set[int]]:
    """A text without the unit at its end, and the unit's powers where it is plain which: names are not compared."""
    rest, names, powers = text, "", {1}
    while unit := _UNIT.search(rest):
        names += unit["name"]
        powers.add(int(unit["power"] or 1) * (-1 if unit["per"] or "/" in unit["name"] else 1))
        rest = rest[: unit.start()]
    if not _VALUE.search(rest) or _CHANGES.match(bare(text[len(rest) :])):
        return text, set()
    return rest, set() if re.search(r"[\^\d(]|\bper\b|\bsq|cubi|squared|cubed", names) else powers - {1}
