"""The error of code that cannot be printed."""

from __future__ import annotations

import ast


class Unsupported(Exception):
    """Code that is not in the subset.

    Args:
        what: what it is, and after a colon the way out.
        node: where it is.
    """

    def __init__(self, what: str, node: ast.AST | None = None) -> None:
        super().__init__(what)
        self.what, self.line = what, getattr(node, "lineno", None)
