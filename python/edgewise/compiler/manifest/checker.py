"""Typed access to the values of a manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from math import isfinite
from typing import Any, NoReturn

from ...errors import PackageError
from ..manifest_limits import LIMITS

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEDY = (
    "The package is damaged or was made by another version: fetch it again, or build it again with"
    " `edgewise build`."
)

JsonObject = dict[str, Any]


class Checker:
    """Reads JSON values and raises PackageError for those that are not of the expected kind.

    The argument `path` of each method is the position of the value in the manifest, for errors.

    Args:
        where: the package's name, for errors.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, path: str, what: str, remedy: str = _REMEDY) -> NoReturn:
        """Raises PackageError."""
        raise PackageError(f"{path[:300]} {what}", self.where, remedy)

    def read_object(self, value: object, path: str) -> JsonObject:
        """A JSON object."""
        if not isinstance(value, dict):
            self.fail(path, "is not an object")
        return value

    def read_list(self, value: object, path: str, most: int = LIMITS["MAX_LIST"]) -> list[Any]:
        """A list of at most `most` entries."""
        if not isinstance(value, list):
            self.fail(path, "is not a list")
        if len(value) > most:
            self.fail(path, f"has {len(value)} entries")
        return value

    def read_tuple(self, value: object, path: str, count: int) -> list[Any]:
        """A list of exactly `count` entries."""
        entries = self.read_list(value, path)
        if len(entries) != count:
            self.fail(path, f"has {len(entries)} entries, not {count}")
        return entries

    def read_text(self, value: object, path: str) -> str:
        """A name: not empty, at most MAX_TEXT UTF-16 units, without a lone surrogate."""
        most = LIMITS["MAX_TEXT"]
        if (
            not isinstance(value, str)
            or not value
            or len(value) > most
            or _LONE_SURROGATE.search(value)
            or len(value) > most // 2
            and len(value.encode("utf-16-le")) > 2 * most
        ):
            self.fail(path, "is not a name")
        return value

    def read_one_of(self, value: object, path: str, choices: Collection[str]) -> str:
        """One of several names."""
        text = self.read_text(value, path)
        if text not in choices:
            self.fail(path, f"is '{text[:40]}'")
        return text

    def read_integer(
        self, value: object, path: str, low: int = 0, high: int = LIMITS["MAX_SIZE"]
    ) -> int:
        """An integer from `low` to `high`."""
        if type(value) is not int:
            self.fail(path, "is not an integer")
        if not low <= value <= high:
            self.fail(path, f"is {value}, not between {low} and {high}")
        return value

    def read_number(self, value: object, path: str) -> float:
        """A finite number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            self.fail(path, "is not a number")
        return value

    def read_shape(self, value: object, path: str) -> list[int]:
        """The dimensions of a tensor in a plan."""
        dims = self.read_list(value, path, LIMITS["MAX_RANK"])
        return [self.read_integer(dim, f"{path}[{i}]") for i, dim in enumerate(dims)]


TOO_DEEP = "nests lists and objects too deeply"


def read_json(text: bytes) -> Any:
    """Parses JSON with the numbers of JavaScript: 1.0 is 1, and 2^53 is not an integer.

    Raises:
        ValueError: it is not valid JSON, or nests lists and objects too deeply. Its text completes
            a sentence that begins with "the manifest".
    """

    def parse_int(digits: str) -> float:
        x = int(digits) if len(digits) <= 17 else float(digits)
        return x if abs(x) < 1 << 53 else float(x)

    def parse_float(digits: str) -> float:
        x = float(digits)
        return int(x) if abs(x) < 1 << 53 and x.is_integer() else x

    def parse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(
            text.decode(),
            parse_int=parse_int,
            parse_float=parse_float,
            parse_constant=parse_constant,
        )
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except ValueError:
        raise ValueError("is not JSON") from None
    level = [value]
    for _ in range(LIMITS["MAX_DEPTH"]):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return value
    raise ValueError(TOO_DEEP)


def _children(value: object) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
