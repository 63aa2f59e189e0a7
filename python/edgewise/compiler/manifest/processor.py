"""Checks what a package says of its processor."""

from __future__ import annotations

from ..schema.processor import MOST, PROCESSOR, RULES
from .checker import Checker

_SCALARS = {"text": str, "flag": bool}


def check_processor(c: Checker, value: object) -> None:
    """Checks `processor` of a manifest. value: its JSON, not None."""
    _check(c, value, PROCESSOR, "processor")


def _check(c: Checker, value: object, type_: object, path: str) -> None:
    if isinstance(type_, list):
        free = type_[-1] == "*"
        if free or len(type_) == 1:
            entries = c.read_list(value, path)
        else:
            entries = c.read_tuple(value, path, len(type_))
        if not entries and not free:
            c.fail(path, "has 0 entries")
        for i, entry in enumerate(entries):
            _check(c, entry, type_[0], f"{path}[{i}]")
    elif isinstance(type_, dict) and "?" in type_:
        if value is not None:
            _check(c, value, type_["?"], path)
    elif isinstance(type_, dict):
        fields = c.read_object(value, path)
        for name, inner in type_.items():
            _check(c, fields.get(name), inner, f"{path}.{name}")
    elif type_ in ("rule", "resize"):
        fields = c.read_object(value, path)
        names = (fields.get("op"), fields.get("rule"))
        name = " ".join(x for x in names if isinstance(x, str))
        if name not in RULES or (type_ == "resize" and not name.startswith(type_)):
            c.fail(path, f"is the rule '{name[:40]}'")
        _check(c, fields, RULES[name], path)
    elif type_ == "number":
        c.read_number(value, path)
    elif type_ in ("count", "size"):
        c.read_integer(value, path, int(type_ == "count"), MOST)
    elif not isinstance(value, _SCALARS[str(type_)]):
        c.fail(path, f"is not a {type_}")
