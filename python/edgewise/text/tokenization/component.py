"""Checked access to the members of a component of tokenizer.json, which is untrusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class NotSupported(ValueError):
    """A valid file needs what only the `tokenizers` library does; the message says what."""


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

    @property
    def kind(self) -> str:
        """The member `type`, "" if it is absent."""
        return self.text("type", "")

    def text(self, name: str, default: str | None = None) -> str:
        """A string. Default: the member is required."""
        return self._get(name, str, "a string", default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """A boolean. Default: the member is required."""
        return self._get(name, bool, "true or false", default)

    def count(self, name: str, default: int | None = None) -> int:
        """An integer of 0 or more. Default: the member is required."""
        number = self._get(name, int, "an integer", default)
        if number < 0 or isinstance(number, bool):
            raise ValueError(f"{name} of {self.where} is {number}")
        return number

    def character(self, name: str, default: str | None = None) -> str:
        """A string of one character. Default: the member is required."""
        text = self.text(name, default)
        if len(text) != 1:
            raise ValueError(f"{name} of {self.where} has {len(text)} characters instead of one")
        return text

    def optional_text(self, name: str) -> str | None:
        """A string, or None if the member is absent or null."""
        return None if self.value.get(name) is None else self.text(name)

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
    if component.kind == "Sequence":
        return [made for one in component.items(lists) for made in build(one, part, lists, makers)]
    maker = makers.get(component.kind)
    if maker is None:
        raise NotSupported(f"{part} has the type {component.kind[:80]!r}")
    component.where = f"{part} {component.kind}"
    return [maker(component)]


def ids(value: object, where: str) -> Iterator[tuple[str, int]]:
    """The items of a vocabulary {token: id}, checked.

    Raises:
        ValueError: it is no object, or an id is no integer in [0, 2^32).
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {_kind(value)}, not an object")
    for token, number in value.items():
        if type(number) is not int or not 0 <= number < 1 << 32:
            raise ValueError(f"the id of {token[:80]!r} in {where} is {str(number)[:80]}")
        yield token, number


def _kind(value: object) -> str:
    names = {"NoneType": "missing", "dict": "an object", "list": "a list", "str": "a string"}
    return names.get(type(value).__name__, f"a {type(value).__name__}")
