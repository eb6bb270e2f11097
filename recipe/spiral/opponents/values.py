"""Checks of single settings: whole numbers and shares. A boolean is no number, though Python says so."""

from __future__ import annotations


def check_whole(setting: str, value: object, least: int) -> None:
    """
    Raises:
        ValueError: it is not a whole number of at least ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{setting}={value}: must be a whole number from {least} up")


def check_share(setting: str, value: object) -> None:
    """
    Raises:
        ValueError: it is not a number from 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{setting}={value}: must be a share from 0 to 1")
