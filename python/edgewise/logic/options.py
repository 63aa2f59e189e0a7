"""Options of calls: how each kind of value is read. An option that is None was not given.

All functions take the options of a call, and raise InputError that names the option.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from .native import listed, meant, option, written


def check_known(given: Sequence[str], known: Sequence[str], where: str) -> None:
    """Raises InputError for an option that does not exist.

    Args:
        given: names of options.
        known: those that exist.
        where: for the error.
    """
    for name in given:
        if name not in known:
            there = f"There are: {', '.join(known)}." if known else "There are none."
            raise InputError(f"there is no option {name!r}", where, meant(name[:100], known, there))


def refused(name: str, value: object, remedy: str) -> InputError:
    """The error about a value of an option."""
    return InputError(f"it is {written(value)}", option(name), remedy)


def read_flag(options: Mapping[str, Any], name: str, otherwise: bool = False) -> bool:
    """True or False."""
    value: object = options.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise refused(name, value, f"Give {written(True)} or {written(False)}.")
    return value


def read_text(options: Mapping[str, Any], name: str) -> str | None:
    """A text."""
    value: object = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise refused(name, value, "Give a string.")
    return value


def read_choice(options: Mapping[str, Any], name: str, otherwise: str, among: Sequence[str]) -> str:
    """One of several names."""
    value: object = options.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, str) or value not in among:
        raise refused(name, value, f"Give one of: {', '.join(among)}.")
    return value


def read_number(options: Mapping[str, Any], name: str) -> float | None:
    """A finite number."""
    value: object = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
        raise refused(name, value, "Give a number.")
    return value


def read_within(
    options: Mapping[str, Any], name: str, otherwise: float, least: float, most: float
) -> float:
    """A number within a range."""
    value: object = options.get(name)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        limits = f"{least:g} to {most:g}" if most < math.inf else f"{least:g} on"
        raise refused(name, value, f"Give a number from {limits}.")
    return value


def read_count(options: Mapping[str, Any], name: str, least: int = 1) -> int | None:
    """An integer of at least `least`."""
    value: object = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refused(name, value, f"Give an integer of {least} or more.")
    return value


def read_ids(options: Mapping[str, Any], name: str) -> list[int]:
    """Token ids; none where there is no option."""
    value: object = options.get(name)
    if value is None:
        return []
    found = listed(value)
    if found is None or not all(is_id(i) for i in found):
        raise refused(name, value, "Give a list of token ids.")
    return found


def is_integer(value: object) -> bool:
    """Whether a value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_id(value: object) -> bool:
    """Whether a value is an integer that is not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_finite(value: float) -> bool:
    return -math.inf < value < math.inf


def read_texts(options: Mapping[str, Any], name: str) -> list[str] | None:
    """A list of texts, or one text."""
    value: object = options.get(name)
    if value is None:
        return None
    found = [value] if isinstance(value, str) else listed(value)
    if found is None or not all(isinstance(x, str) for x in found):
        raise refused(name, value, "Give a list of strings.")
    return found
