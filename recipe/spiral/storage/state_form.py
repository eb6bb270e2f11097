"""The form of ``spiral.json`` in a checkpoint: a damaged one is noticed before a run goes on from it.

Each part is what ``state_dict`` of a class in ``training/run_state.py`` gives.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

Role = Annotated[int, Field(ge=0, le=1)]
#: Counts become floats as metrics, which is an error for numbers that are too large.
Count = Annotated[int, Field(ge=0, lt=2**63)]
Amount = Annotated[FiniteFloat, Field(ge=0)]
Number = Annotated[int, Field(gt=-(2**63), lt=2**63)]


class _Baselines(TypedDict):
    values: list[tuple[str, Role, str, FiniteFloat]]


class _Series(TypedDict):
    first: list[FiniteFloat]
    last: list[FiniteFloat]


class _Guard(TypedDict, total=False):
    """Of lab/watching/guard.py; other watchers' state besides."""

    series: dict[str, _Series]
    streaks: list[tuple[str, str, Number]]
    active: list[tuple[str, str]]


class _GameLength(TypedDict):
    games: Amount
    rows: Amount


class _Member(TypedDict):
    """These become arguments by their names, so there may be no others."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    step: Number
    path: str | None
    permanent: bool
    rating: FiniteFloat
    games: Count
    wins: Count
    draws: Count
    losses: Count
    score: Amount
    weight: Amount
    played: Number


class _Pool(TypedDict):
    members: list[_Member]
    rating: FiniteFloat
    gone: dict[str, str]
    forgotten: Number
    late: Count


class _Matchmaker(TypedDict):
    owed: dict[str, dict[str, FiniteFloat]]
    roles: dict[str, dict[str, tuple[Number, Number]]]
    step: Number
    used: dict[str, Number]


class _Usage(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    prompt_tokens: Count
    response_tokens: Count
    cost: Amount | None
    estimated: bool


class _League(TypedDict):
    pool: _Pool | None
    matchmaker: _Matchmaker
    tokens: dict[str, Count]
    leaving: NotRequired[list[str]]
    budgets: dict[str, _Usage]


class _Settings(TypedDict):
    """Of training/kept_settings.py; any others besides."""

    opponents: NotRequired[list[str]]


class _Rae(TypedDict):
    baseline: bool
    decay: FiniteFloat
    initial: FiniteFloat
    update: Literal["game", "batch"]
    by_opponent: bool


class _State(TypedDict):
    step: Count
    settings: NotRequired[_Settings]
    critic: bool
    manifest: NotRequired[bool]  # version 0.1.0 had none
    torch: str
    # version 0.1.0 had these in place of the settings
    seed: NotRequired[int]
    batch_unit: NotRequired[str]
    games: NotRequired[str]
    asynchronous: bool
    records_after: Count
    rae_before: NotRequired[list[tuple[Count, _Rae]]]
    in_flight: list[tuple[Count, Count, Count | None]]
    baselines: _Baselines
    guard: _Guard
    game_length: _GameLength
    league: _League


_FORM = TypeAdapter(_State)


def wrong_in(text: bytes) -> str:
    """The first thing in the text of a state file that a run could not go on from; "" if there is nothing."""
    try:
        _FORM.validate_json(text, strict=True)
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
        return f"{'.'.join(map(str, error['loc']))}: {error['msg']}".removeprefix(": ")
    return ""
