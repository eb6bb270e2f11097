"""Sections of the config as pydantic models; an error says the setting, its value, and what it must be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..games import resolve

Count = Annotated[int, Field(strict=True, ge=1)]
#: A number that is no bool and no text, and finite.
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
#: What vLLM takes; 0 stands for the most likely tokens.
Temperature = Annotated[Number, Field(ge=0, le=2)]
#: A game's id; an alias becomes one.
GameName = Annotated[str, AfterValidator(resolve)]
Element = TypeVar("Element")
#: A list; null is an empty one.
Listed = Annotated[tuple[Element, ...], BeforeValidator(lambda value: () if value is None else value)]


def checked(check: Callable[[str], object]) -> AfterValidator:
    """A validator that leaves the value as it is."""

    def validate(value: str) -> str:
        check(value)
        return value

    return AfterValidator(validate)


class Section(BaseModel):
    """A mapping in the config with no other keys than its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Parsed = TypeVar("Parsed", bound=Section)


def parse(cls: type[Parsed], value: Any, setting: str = "") -> Parsed:
    """A section from what the config has there.

    Raises:
        ValueError: the first thing that is wrong with it.
    """
    try:
        return cls.model_validate(value)
    except ValidationError as errors:
        error = errors.errors()[0]
        place = ".".join(map(str, [setting, *error["loc"]] if setting else error["loc"]))
        if "error" in error.get("ctx", {}):  # raised by a function of ours
            message = str(error["ctx"]["error"])
            raise ValueError(message if message.startswith(place) else f"{place}: {message}") from errors
        if error["type"] == "missing":
            raise ValueError(f"{place}: must be given") from errors
        if error["type"] == "extra_forbidden":
            known = ", ".join(_fields(cls, error["loc"][:-1]))
            # its value may be a key, in the wrong place
            raise ValueError(f"{place}: there is no such setting; known: {known}") from errors
        raise ValueError(f"{place}={error['input']!r}: {error['msg'].replace('Input should', 'must')}") from errors


def _fields(cls: Any, place: Sequence[int | str]) -> list[str]:
    """The names of a section's settings, or of a section's inside of it."""
    for name in place:
        cls = cls.model_fields[name].annotation
    return list(cls.model_fields)
