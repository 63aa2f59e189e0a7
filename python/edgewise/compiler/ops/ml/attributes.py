"""Attributes and inputs of the operators of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import DOUBLE, FLOAT, INT32, INT64
from ...declare.op import fail

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

ML = "ai.onnx.ml"
NUMBER = 40  # bytes of a number in a list
NUMBERS = (FLOAT, DOUBLE, INT32, INT64)


def floats(
    graph: Binder, values: Sequence[float], shape: list[int] | None = None, dtype: int = FLOAT
) -> Value:
    """A constant; by default a vector."""
    return graph.constant(
        dtype, [len(values)] if shape is None else shape, [float(v) for v in values]
    )


def numbers_attribute(node: BoundNode, name: str, *kinds: type) -> list[Any]:
    """An attribute that is a list of numbers, [] where it is absent. kinds: types that its elements
    may have, by default int and float.
    """
    values = node.attrs.get(name) or []
    if type(values) is not list or any(type(v) not in (kinds or (int, float)) for v in values):
        fail(node, f"its attribute '{name}' is not a list of numbers")
    return values


def float_matrix(node: BoundNode, graph: Binder) -> Value:
    """Input 0 as float32 [rows, features]; a vector is one row."""
    x = node.inputs[0]
    if x.dtype not in NUMBERS or x.rank not in (1, 2):
        fail(node, f"it takes a matrix of numbers, not {x}")
    x = graph.op("Cast", x, to=FLOAT)
    return x if x.rank == 2 else graph.op("Unsqueeze", x, graph.ints([0]))
