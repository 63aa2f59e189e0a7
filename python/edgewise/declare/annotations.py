"""Names for annotations of rules. Import them where `TYPE_CHECKING` holds: nothing here exists at
run time, and most of these classes belong to layers above the ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..autodiff import Gradients
    from ..bind import _Binder as Binder
    from ..ir import BoundNode, Value
    from ..plan.builder import Builder
    from ..plan.view import View
    from ..session.driver import Host
    from .symbolic import Sym

    Dim = int | Sym
    Shape = Sequence[Dim]
    # What adds nodes: to a graph that is bound, or, in gradients, behind it.
    Graph = Binder | Gradients
    # Of each output its element type and shape, or the Value that it is.
    Inferred = Sequence[tuple[int, Shape] | Value]
    # Of each output its numbers.
    Folded = list[list[Any]] | None
    # Of each input its gradient.
    InputGradients = Sequence[Value | None]

__all__ = [
    "Binder",
    "BoundNode",
    "Builder",
    "Dim",
    "Folded",
    "Gradients",
    "Graph",
    "Host",
    "Inferred",
    "InputGradients",
    "Shape",
    "Value",
    "View",
]
