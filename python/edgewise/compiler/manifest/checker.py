"""Checks JSON by the schema of manifests. web/src/worker/package/checker.ts does the same."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any, NoReturn

from ...errors import PackageError
from ..manifest_limits import LIMITS
from .nodes import Node, Records

_REMEDY = (
    "The package is damaged or was made by another version: fetch it again, or build it again with"
    " `edgewise build`."
)

JsonObject = dict[str, Any]


class Checker:
    """Checks JSON values, and raises PackageError for those that are not as they should be.

    The argument `path` of each method is the position of the value in the manifest, for errors.

    Args:
        where: the package's name, for errors.
        records: fields of the records of a schema; none for the methods that take no Node.
    """

    def __init__(self, where: str, records: Records | None = None) -> None:
        self.where, self.records = where, records or {}

    def fail(self, path: str, what: str, remedy: str = _REMEDY) -> NoReturn:
        """Raises PackageError."""
        raise PackageError(f"{path[:300]} {what}", self.where, remedy)

    def check(self, value: object, node: Node, path: str) -> None:
        """Checks a value by a schema."""
        kind = node["kind"]
        if kind == "any" or (value is None and node.get("null", False)):
            return
        if kind == "record":
            self.check_record(value, node["record"], path)
        elif kind == "list":
            self._entries(value, node, path)
        elif kind == "tuple":
            entries = self.read_tuple(value, path, len(node["of"]))
            for i, entry in enumerate(entries):
                self.check(entry, node["of"][i], f"{path}[{i}]")
        elif kind == "map":
            self._map(value, node, path)
        elif kind == "variant":
            self._variant(value, node, path)
        else:
            self._scalar(value, node, path)

    def check_record(self, value: object, name: str, path: str) -> None:
        """Checks an object that has the fields of a record. path: "" for the manifest itself."""
        fields = self.read_object(value, path)
        for field, node in self.records[name].items():
            if field in fields or not node.get("optional", False):
                at = f"{path}.{field}" if path else field
                self.check(fields.get(field), node, at)

    def _entries(self, value: object, node: Node, path: str) -> None:
        entries = self.read_list(value, path, node["high"])
        if len(entries) < node["low"]:
            self.fail(path, f"has {len(entries)} entries")
        for i, entry in enumerate(entries):
            self.check(entry, node["of"][0], f"{path}[{i}]")

    def _map(self, value: object, node: Node, path: str) -> None:
        for key, entry in self.read_object(value, path).items():
            if node["names"]:
                self.read_name(key, f"the name in {path}")
            self.check(entry, node["of"][0], f"{path}['{key}']")

    def _variant(self, value: object, node: Node, path: str) -> None:
        """The record whose `op` and `rule` the value has."""
        fields = self.read_object(value, path)
        given = [x for x in (fields.get("op"), fields.get("rule")) if isinstance(x, str)]
        for name in node["names"]:
            tags = [self.records[name].get(field) for field in ("op", "rule")]
            if [tag["names"][0] for tag in tags if tag] == given:
                self.check_record(value, name, path)
                return
        self.fail(path, f"is the rule '{' '.join(given)[:40]}'")

    def _scalar(self, value: object, node: Node, path: str) -> None:
        kind = node["kind"]
        if kind == "integer":
            self.read_integer(value, path, node["low"], node["high"])
        elif kind == "number":
            self.read_number(value, path)
        elif kind == "flag":
            if not isinstance(value, bool):
                self.fail(path, "is neither true nor false")
        elif kind == "text":
            if not isinstance(value, str) or units(value) > node["high"]:
                self.fail(path, "is not a text")
        elif kind == "size or name":
            if not isinstance(value, str):
                self.read_integer(value, path, node["low"], node["high"])
        elif kind == "choice":
            self.read_choice(value, path, node["names"])
        elif kind == "digits":
            text = self.read_name(value, path)
            if len(text) != node["high"] or any(c not in "0123456789abcdef" for c in text):
                self.fail(path, f"is not {node['names'][0]}")
        else:
            self.read_name(value, path)

    def read_object(self, value: object, path: str) -> JsonObject:
        """A JSON object."""
        if not isinstance(value, dict):
            self.fail(path or "the manifest", "is not an object")
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

    def read_name(self, value: object, path: str) -> str:
        """A name: not empty, at most MAX_TEXT UTF-16 units, without a lone surrogate."""
        if not isinstance(value, str) or not value or not _is_name(value):
            self.fail(path, "is not a name")
        return value

    def read_choice(self, value: object, path: str, names: Sequence[str]) -> str:
        """One of several names."""
        if len(names) == 1:
            if value != names[0]:
                self.fail(path, f"is not '{names[0]}'")
            return names[0]
        text = self.read_name(value, path)
        if text not in names:
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


def units(text: str) -> int:
    """The number of UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(c > "\uffff" for c in text)


def _is_name(text: str) -> bool:
    lone = not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)
    return units(text) <= LIMITS["MAX_TEXT"] and not lone


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
