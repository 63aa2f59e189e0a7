"""Checks JSON by the schema of manifests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from ...errors import PackageError
from ..native import is_broken, units
from .limits import MAX_DEPTH, MAX_LIST, MAX_SIZE, MAX_TEXT
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
        self.where = where
        self.records: Records = {} if records is None else records

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

    def read_list(self, value: object, path: str, most: int = MAX_LIST) -> list[Any]:
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

    def read_name(self, value: object, path: str, most: int = MAX_TEXT) -> str:
        """A name: not empty, at most `most` UTF-16 units, without a lone surrogate."""
        if not isinstance(value, str) or not value or units(value) > most or is_broken(value):
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

    def read_integer(self, value: object, path: str, low: int = 0, high: int = MAX_SIZE) -> int:
        """An integer from `low` to `high`."""
        if type(value) is not int or abs(value) > MAX_SIZE:
            self.fail(path, "is not an integer")
        if not low <= value <= high:
            self.fail(path, f"is {value}, not between {low} and {high}")
        return value

    def read_number(self, value: object, path: str) -> float:
        """A finite number."""
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
        ):
            self.fail(path, "is not a number")
        return value


TOO_DEEP = "nests lists and objects too deeply"


def too_deep(value: object) -> bool:
    """Whether JSON nests lists and objects more deeply than a manifest may."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                deeper += one.values()
            elif isinstance(one, list):
                deeper += one
        if not deeper:
            return False
        level = deeper
    return True
