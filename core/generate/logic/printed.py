"""What all parts of the printer use: printed expressions with the precedence of their operators,
names, and the error of code that cannot be printed.
"""

from __future__ import annotations

import ast
import json
from typing import NamedTuple


class Unsupported(Exception):
    """Code that is not in the subset.

    Args:
        what: what it is, and after a colon the way out.
        node: where it is.
    """

    def __init__(self, what: str, node: ast.AST | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, getattr(node, "lineno", None)


# Precedence of TypeScript's operators.
ARROW, CONDITIONAL, OR, AND, BIT_OR, BIT_XOR, BIT_AND, EQUAL, RELATION = 1, 2, 3, 4, 5, 6, 7, 8, 9
SHIFT, SUM, PRODUCT, POWER, UNARY, CALL, ATOM = 10, 11, 12, 13, 14, 17, 18

RESERVED = set(
    """arguments await break case catch class const continue debugger default delete do else enum
    eval export extends false finally for function if implements import in instanceof interface let
    new null package private protected public return static super switch this throw true try typeof
    undefined var void while with yield py""".split()
)


class Code(NamedTuple):
    """A printed expression.

    Attributes:
        text: TypeScript.
        level: precedence of its outermost operator.
    """

    text: str
    level: int = ATOM


def safe(name: str) -> str:
    """A name that TypeScript allows."""
    return f"{name}_" if name in RESERVED else name


def quoted(text: str) -> str:
    """A string literal."""
    return json.dumps(text)


def member(target: str, name: str) -> str:
    """A property of an object."""
    return f"{target}.{name}" if name.isidentifier() else f"{target}[{quoted(name)}]"
