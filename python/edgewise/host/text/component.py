"""Checked access to the members of a component of tokenizer.json, which is untrusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class NotSupported(ValueError):
    """A valid file needs what is not implemented; the message says what."""


class Component:
    """A JSON object with a type, such as {"type": "Digits", "individual_digits": true}.

    Args:
        value: the object.
        where: its name, for messages.

    Raises:
        ValueError: value is no object. Raised by every method for members of a wrong type.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is {_kind(value)}, not an object")
        self.value: dict[str, Any] = value
        self.where = where

    def text(self, name: str, default: str | None = None) -> str:
        """A string. Default: the member is required."""
        return self._get(name, str, "a string", default)

    def count(self, name: str, default: int | None = None) -> int:
        """An integer of 0 or more. Default: the member is required."""
        number = self._get(name, int, "an integer", default)
        if number < 0 or isinstance(number, bool):
            raise ValueError(f"{name} of {self.where} is {number}")
        return number

    def items(self, name: str) -> list[Any]:
        """A list. The member is required."""
        return self._get(name, list, "a list", None)

    def part(self, name: str) -> Component:
        """An object. The member is required."""
        return Component(self.value.get(name), f"{name} of {self.where}")

    def _get(self, name: str, kind: type[T], called: str, default: T | None) -> T:
        value: Any = self.value.get(name, default)
        if not isinstance(value, kind):
            raise ValueError(f"{name} of {self.where} is {_kind(value)}, not {called}")
        return value


def build(
    value: object, part: str, lists: str, makers: Mapping[str, Callable[[Component], T]]
) -> list[T]:
    """The components of a part of tokenizer.json, those of sequences included, in order.

    Args:
        value: the part: null or an object.
        part: its name, for messages.
        lists: member of {"type": "Sequence"} that has the components.
        makers: {type: function(component)}.

    Raises:
        ValueError: a component is malformed or its type is unknown.
    """
    if value is None:
        return []
    component = Component(value, part)
    kind = component.text("type", "")
    if kind == "Sequence":
        return [made for one in component.items(lists) for made in build(one, part, lists, makers)]
    maker = makers.get(kind)
    if maker is None:
        raise NotSupported(f"{part} has the type {kind[:80]!r}")
    component.where = f"{part} {kind}"
    return [maker(component)]


def _kind(value: object) -> str:
    names = {"NoneType": "missing", "dict": "an object", "list": "a list", "str": "a string"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")
