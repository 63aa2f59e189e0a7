"""The errors that Edgewise raises.

An error has three texts: `what` is wrong, `where` (a file and a position in it, a node, a field),
and `remedy`, what the user can do about it. `str(error)` joins them. web/src/shared/errors.ts has
the same classes for pages.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import re
from collections.abc import Callable, Iterable
from errno import ENOENT, ENOMEM
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

__all__ = [
    "Aborted",
    "EdgewiseError",
    "EngineError",
    "InputError",
    "InputTypeError",
    "MissingGradient",
    "ModelError",
    "NoSuchFile",
    "OutOfMemory",
    "PackageError",
    "PlanError",
    "RequestError",
    "StorageError",
    "TokenizerError",
    "UnsupportedField",
    "UnsupportedOp",
]


# What would change a terminal, or the order of a text: controls and directions of Unicode.
_CONTROLS = dict.fromkeys([*range(32), *range(127, 160), *range(0x202A, 0x202F)], "\ufffd")
_CONTROLS |= dict.fromkeys(range(0x2066, 0x206A), "\ufffd") | {ord("\n"): " "}

# Of a text that was cut: a part of a word, with the spaces beside it.
_CUT_END = re.compile(r" +[^ ]{0,30}$")
_CUT_START = re.compile(r"^[^ ]{0,30} +")


def _short(text: object, most: int) -> str:
    """Text on one line of at most `most` characters, without control characters: errors quote names
    from files and messages of other libraries. A longer one is cut in the middle, at spaces, where
    there are some nearby.
    """
    text = str(text).translate(_CONTROLS) if text else ""
    if len(text) <= most:
        return text
    first, last = text[: most - 60], text[-50:]
    return f"{_CUT_END.sub('', first)} ... {_CUT_START.sub('', last)}"


class EdgewiseError(Exception):
    """Base class of all errors.

    Args:
        what: one sentence, without the position.
        where: file and position, node or field; may be empty.
        remedy: one sentence; may be empty.
    """

    def __init__(self, what: object, where: object = "", remedy: object = "") -> None:
        self.what, self.where, self.remedy = (
            _short(what, 700),
            _short(where, 300),
            _short(remedy, 400),
        )
        super().__init__(self.what, self.where, self.remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if not self.remedy:
            return text
        return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {self.remedy}"


class ModelError(EdgewiseError):
    """An ONNX file is damaged, truncated or not valid."""


class UnsupportedOp(EdgewiseError, NotImplementedError):
    """A model uses an operator, an attribute or a type that Edgewise does not support; `where` is
    the node.
    """


class MissingGradient(UnsupportedOp):
    """A parameter cannot be trained because an operator between it and the loss has no gradient;
    `where` is the node.
    """


class UnsupportedField(EdgewiseError):
    """A configuration field is not supported, and its value would change the result."""


class TokenizerError(EdgewiseError):
    """A tokenizer file or chat template is damaged or missing, or the library tokenizers is not
    installed.
    """


class PackageError(EdgewiseError):
    """An .edge package is damaged, truncated, or was made for another version."""


class PlanError(EdgewiseError):
    """The engine rejected a plan."""


class EngineError(EdgewiseError, RuntimeError):
    """The engine failed during a run."""


class InputError(EdgewiseError, ValueError):
    """An argument is not valid: name, shape or type of an input, a token id, a value out of
    range.
    """


class InputTypeError(InputError, TypeError):
    """An argument has a wrong type."""


class RequestError(InputError):
    """A request to an API of OpenAI's form cannot be answered.

    Args:
        what: what is wrong, and what to do.
        param: the field that is wrong; may be empty.
        code: a word for programs; may be empty.
    """

    def __init__(self, what: object, param: str = "", code: str = "") -> None:
        super().__init__(what, param)
        self.param, self.code = param, code


class NoSuchFile(ModelError, InputError, FileNotFoundError):
    """There is no file or folder at a path; `filename` is the path."""

    def __init__(self, what: object, where: object = "", remedy: object = "") -> None:
        super().__init__(what, where, remedy)
        self.errno, self.filename = ENOENT, str(where)


def wrong_type(given: object, name: str, expected: str) -> InputTypeError:
    """The error of an argument of a wrong type.

    Args:
        name: of the argument.
        expected: as in "Give a path."
    """
    kind = "None" if given is None else f"of type {type(given).__name__}"
    return InputTypeError(f"it is {kind}", name, f"Give {expected}.")


def path_of(given: object, name: str) -> str:
    """An argument that is a path, as a string. Raises InputTypeError."""
    if not isinstance(given, (str, os.PathLike)):
        raise wrong_type(given, name, "a path: a string or an os.PathLike")
    return os.fsdecode(given)


def list_of(given: Any, name: str, expected: str) -> list[Any]:
    """An argument that is a list, a tuple or another iterable but a text. Raises InputTypeError."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise wrong_type(given, name, expected)
    return list(given)


def number_of(given: Any, name: str, expected: str = "a number") -> Any:
    """An argument that is a finite number, also one of NumPy's, as Python's int or float.

    Raises:
        InputTypeError: it is none. InputError: it is not finite.
    """
    if not isinstance(given, Real):
        raise wrong_type(given, name, expected)
    try:
        if math.isfinite(given):
            return int(given) if isinstance(given, Integral) else float(given)
    except OverflowError:  # an integer beyond float64
        pass
    raise InputError("it is not a finite number", name, f"Give {expected}.")


def token_ids(ids: Any, name: str) -> list[int]:
    """Token ids as integers. Raises InputTypeError."""
    expected = "a list of token ids"
    try:
        return [operator.index(i) for i in list_of(ids, name, expected)]
    except TypeError:
        raise wrong_type(ids, name, expected) from None


def file_error(error: BaseException) -> type[InputError]:
    """The class for a file that cannot be read: NoSuchFile where there is none, else InputError."""
    return NoSuchFile if isinstance(error, FileNotFoundError) else InputError


class OutOfMemory(EdgewiseError, MemoryError):
    """The engine's memory is full."""


def memory_in_words(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorates what users call: Python's MemoryError, and a mapping for which there is no room,
    become OutOfMemory.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except OutOfMemory:
            raise
        except (MemoryError, OSError) as e:
            if isinstance(e, OSError) and e.errno != ENOMEM:
                raise
            raise OutOfMemory(
                "the process has too little memory",
                function.__qualname__,
                "Close other programs, raise the process's limit, or use a smaller model or input.",
            ) from None

    return call


class StorageError(EdgewiseError):
    """The storage of the browser, or a disk, is full, not accessible or in use; existing files are
    unchanged.
    """


class Aborted(EdgewiseError):
    """The caller aborted the operation.

    Attributes:
        sequences: of a generation, the token ids so far, prompt included, one list per sequence.
    """

    sequences: list[list[int]]
