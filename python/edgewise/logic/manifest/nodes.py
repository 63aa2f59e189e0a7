"""The schema as data: what the annotations of schema.py and processor.py say, without their types.

checker.py interprets it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from .limits import MAX_LIST, MAX_MANIFEST, MAX_SIZE, MAX_TEXT

NAME = "name"
"""A text that is not empty, has at most MAX_TEXT UTF-16 units, and no lone surrogate."""
RULED = "ruled"
"""A value that a rule checks (rules.py), or who uses it."""


@dataclass(frozen=True)
class Range:
    """Of an integer."""

    low: int
    high: int


@dataclass(frozen=True)
class Entries:
    """How many a list has."""

    least: int
    most: int = MAX_LIST


@dataclass(frozen=True)
class Units:
    """Most UTF-16 units of a text."""

    most: int


@dataclass(frozen=True)
class Digits:
    """A text of so many hexadecimal digits. what: for errors."""

    count: int
    what: str


class Node(TypedDict, total=False):
    """What is checked of a value.

    Fields:
        kind: "record", "map", "list", "tuple", "integer", "size or name" (an integer or a text),
            "number", "flag", "text", "name", "digits", "choice", "variant" or "any".
        low, high: of an integer, a list's number of entries, or the length of a text or of digits.
        of: of a map's values, a list's entries, or each entry of a tuple.
        names: of a choice; of the records of a variant, whose `op` and `rule` say which one it is;
            of a map with names as keys: "name"; of digits: what they are.
        record: name of a record.
        optional: whether the field may be missing.
        null: whether it may be null.
    """

    kind: Required[str]
    low: int
    high: int
    of: list[Node]
    names: list[str]
    record: str
    optional: bool
    null: bool


Records = Mapping[str, Mapping[str, Node]]
"""Fields of each record."""


def node_of(hint: Any, records: dict[str, dict[str, Node]]) -> Node:
    """What an annotation says. Adds the records that it names to `records`."""
    origin, given = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return {**node_of(given[0], records), "optional": True}
    if origin is Annotated:
        return _marked(given[0], given[1], records)
    if origin in (Union, types.UnionType):
        return _union([g for g in given if g is not type(None)], type(None) in given, records)
    if origin is Literal:
        return {"kind": "choice", "names": list(given)}
    if origin is list:
        most = MAX_LIST
        return {"kind": "list", "of": [node_of(given[0], records)], "low": 0, "high": most}
    if origin is tuple:
        return {"kind": "tuple", "of": [node_of(g, records) for g in given]}
    if origin is Mapping:
        keys = ["name"] if get_origin(given[0]) is Annotated else []
        return {"kind": "map", "of": [node_of(given[1], records)], "names": keys}
    if is_typeddict(hint):
        add_record(hint, records)
        return {"kind": "record", "record": hint.__name__}
    if hint is int:
        return {"kind": "integer", "low": 0, "high": MAX_SIZE}
    if hint is str:
        return {"kind": "text", "high": MAX_MANIFEST}
    return {"kind": {float: "number", bool: "flag"}[hint]}


def add_record(record: Any, records: dict[str, dict[str, Node]]) -> None:
    """Adds the fields of a TypedDict and of all that it has to `records`."""
    if record.__name__ not in records:
        fields = records[record.__name__] = {}
        for name, hint in hints_of(record).items():
            fields[name] = node_of(hint, records)


@cache
def hints_of(record: Any) -> dict[str, Any]:
    """The annotations of a TypedDict's fields."""
    return get_type_hints(record, include_extras=True)


def _marked(hint: Any, mark: object, records: dict[str, dict[str, Node]]) -> Node:
    if mark == RULED:
        return {"kind": "any"}
    if isinstance(mark, Range):
        return {**node_of(hint, records), "low": mark.low, "high": mark.high}
    if isinstance(mark, Entries):
        return {**node_of(hint, records), "low": mark.least, "high": mark.most}
    if isinstance(mark, Units):
        return {"kind": "text", "high": mark.most}
    if isinstance(mark, Digits):
        return {"kind": "digits", "high": mark.count, "names": [mark.what]}
    assert mark == NAME, mark
    return {"kind": "name", "high": MAX_TEXT}


def _union(hints: list[Any], null: bool, records: dict[str, dict[str, Node]]) -> Node:
    """Null and one other, an integer and a text, or records with the fields `op` and `rule`."""
    nodes = [node_of(hint, records) for hint in hints]
    node = nodes[0]
    if len(nodes) > 1 and nodes[1]["kind"] == "text":
        node = {**node, "kind": "size or name"}
    elif len(nodes) > 1:
        node = {"kind": "variant", "names": [n["record"] for n in nodes]}
    return {**node, "null": True} if null else node
