"""Public names of compiler/ir.py."""

from .compiler.ir import (
    BROKEN,
    KINDS,
    OVERLOAD,
    SMALL,
    BoundNode,
    Graph,
    Info,
    Node,
    Tensor,
    Value,
    content_of,
    overloaded,
)

__all__ = [
    "BROKEN",
    "BoundNode",
    "Graph",
    "Info",
    "KINDS",
    "Node",
    "OVERLOAD",
    "SMALL",
    "Tensor",
    "Value",
    "content_of",
    "overloaded",
]
