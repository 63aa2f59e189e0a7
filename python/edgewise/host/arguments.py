"""Arguments of what users call: options that do not exist, and how objects are shown."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, ParamSpec, TypeVar

from ..errors import InputError, wrong_type
from ..logic.options import check_known

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_DEVICES = (None, "auto", "cpu", "wasm", -1)


def options_of(function: Callable[..., Any]) -> list[str]:
    """The names of a function's arguments that can be given by name, but for `self`."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters
    return [n for n, p in parameters.items() if p.kind in kinds and n != "self"]


def options_in_words(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorates what users call: an option that does not exist is an InputError, which names the
    one that was meant.
    """
    known = options_of(function)
    where = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        check_known(list(kwargs), known, where)
        return function(*args, **kwargs)

    return call


def check_device(device: object) -> None:
    """Raises InputError for a device that an engine does not have."""
    if device not in _DEVICES or isinstance(device, bool):
        raise InputError(
            f"there is no device {device!r}",
            "device",
            'Leave it out, or give "cpu"; for a GPU pass engine=edgewise.open_engine("webgpu").',
        )


def check_engine(engine: object) -> None:
    """Raises InputTypeError for an object that is no engine."""
    if engine is not None and not hasattr(engine, "device"):
        raise wrong_type(engine, "engine", "what edgewise.open_engine returns, or None")


class Described:
    """An object for `repr` and for notebooks: its class, and what it was made of."""

    __slots__ = ()

    def _described(self) -> Sequence[tuple[str, object]]:
        """Names and values; those that are None are left out."""
        return ()

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in self._described() if value is not None]
        return f"{type(self).__name__}({', '.join(fields)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{escape(name)}</th>"
            f"<td style='text-align: left'>{escape(str(value))}</td></tr>"
            for name, value in self._described()
            if value is not None
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"
