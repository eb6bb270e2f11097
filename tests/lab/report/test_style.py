"""The pages' colours: what is written in one can be read, on light and on dark ground."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recipe.spiral.lab.drawing.drawn import PAGE_FILES
from recipe.spiral.lab.report import bundle

[STYLE] = [file for file in PAGE_FILES if file.suffix == ".css"]
CHARTS = Path(bundle.__file__).parent / "pages" / "charts.js"
#: The least contrast of small text (WCAG 2.2, 1.4.3).
LEAST = 4.5


def schemes() -> dict[str, dict[str, str]]:
    """The variables that are colours, of the light scheme and of the dark one."""
    light, dark = (
        {name: value * 2 if len(value) == 3 else value for name, value in re.findall(r"--([\w-]+): #(\w+);", part)}
        for part in STYLE.read_text().split("}")[:2]
    )
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("written", "grounds"),
    [
        ("ink soft accent p0 p1 win draw loss third fourth", "card"),
        ("ink soft accent", "card page tint"),
        ("win loss", "card page"),
        ("p0 p1", "card tint"),
        ("card", "accent"),
    ],
)
def test_what_is_written_can_be_read(scheme: str, written: str, grounds: str) -> None:
    colours = schemes()[scheme]
    found = {(name, on): contrast(colours[name], colours[on]) for name in written.split() for on in grounds.split()}
    assert {pair: round(value, 2) for pair, value in found.items() if value < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_figures_of_heat_maps_can_be_read(scheme: str) -> None:
    colours = schemes()[scheme]
    [opacity] = re.findall(r"ygap: 3, opacity: ([.\d]+)", CHARTS.read_text())

    def on_card(name: str) -> str:
        parts = [[int(colours[one][at : at + 2], 16) for at in (0, 2, 4)] for one in (name, "card")]
        return "".join(
            f"{round(float(opacity) * up + (1 - float(opacity)) * down):02x}" for up, down in zip(*parts, strict=True)
        )

    assert all(contrast(colours["ink"], on_card(name)) >= LEAST for name in ("win", "loss", "tint", "p0"))
