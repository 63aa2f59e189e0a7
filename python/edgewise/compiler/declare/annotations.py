"""Types for the annotations of rules.

Import them under `if TYPE_CHECKING:` only: nothing here exists at run time, and most of these
classes belong to layers above the operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...host.session.driver import HostContext
    from ..bind.autodiff import Gradients
    from ..bind.binder import Binder
    from ..ir import BoundNode, Value
    from ..ir import Graph as Subgraph
    from ..plan.builder import Builder
    from ..plan.view import View
    from .symbolic import Sym

    # A dimension: a number, or an expression of a register.
    Dim = int | Sym
    Shape = Sequence[Dim]
    # Where a rule adds nodes: to the graph being bound, or, in a gradient rule, after it.
    Graph = Binder | Gradients
    # The element type (an ONNX code) and shape of each output, or the Value that already is it.
    Inferred = Sequence[tuple[int, Shape] | Value]
    # The numbers of each output as flat lists; None: not computed.
    Folded = list[list[Any]] | None
    # The Value of each output, None where it is absent; None: the node is lowered as it is.
    Decomposed = Sequence[Value | None] | None
    # The gradient of each input; None: zero, or not differentiable.
    InputGradients = Sequence[Value | None]
    # The views of a kernel call by operand name; None: an optional operand is absent.
    Operands = dict[str, View | None]
    # Test cases: what a Toolbox (tests/ops/harness.py, no part of the package) makes.
    Toolbox = Any
    Cases = Iterator[Any]

__all__ = [
    "Binder",
    "BoundNode",
    "Builder",
    "Cases",
    "Decomposed",
    "Dim",
    "Folded",
    "Gradients",
    "Graph",
    "HostContext",
    "Inferred",
    "InputGradients",
    "Operands",
    "Shape",
    "Subgraph",
    "Toolbox",
    "Value",
    "View",
]
