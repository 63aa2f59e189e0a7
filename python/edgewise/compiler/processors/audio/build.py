"""A small builder of ONNX graphs, and nodes that several extractors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....model_metadata import ModelMetadata
from ...declare.dtypes import FLOAT, INT64
from ...ir import Graph, Info, Node, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


class Builder:
    """A graph under construction. Names of tensors are made from the operators'."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name, opsets={"": 18}, ir_version=9, about=ModelMetadata("edgewise"))
        self.count = 0

    def input(self, name: str, shape: Sequence[int | str], dtype: int = FLOAT) -> str:
        """Declares an input."""
        self.graph.inputs.append(Info(name, dtype, list(shape)))
        return name

    def output(self, name: str, value: str, shape: Sequence[int | str], dtype: int = FLOAT) -> None:
        """Declares a tensor as the output `name`."""
        self.graph.nodes.append(Node("Identity", [value], [name]))
        self.graph.outputs.append(Info(name, dtype, list(shape)))

    def constant(
        self, values: Sequence[Any], shape: Sequence[int] | None = None, dtype: int = FLOAT
    ) -> str:
        """A constant; by default a vector."""
        name = self._name("constant")
        shape = [len(values)] if shape is None else shape
        self.graph.constants[name] = Tensor.of(name, dtype, shape, values)
        return name

    def scalar(self, value: float) -> str:
        """A float32 constant without dimensions."""
        return self.constant([value], [])

    def indices(self, *values: int) -> str:
        """An int64 vector."""
        return self.constant(values, dtype=INT64)

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        return self.ops(name, inputs, 1, **attributes)[0]

    def ops(self, name: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """A node with several outputs."""
        made = [self._name(name) for _ in range(outputs)]
        self.graph.nodes.append(Node(name, list(inputs), made, attributes))
        return made

    def _name(self, what: str) -> str:
        self.count += 1
        return f"{what.lower()}_{self.count}"


def padded(b: Builder, audio: str, before: int, after: int, mode: str = "reflect") -> str:
    """Audio [1, n] with more samples at both ends. mode: of ONNX's Pad."""
    return b.op("Pad", audio, b.indices(0, before, 0, after), mode=mode)


def normalized(
    b: Builder, x: str, axis: int, epsilon: float, *, sample: str | None = None, inside: bool
) -> str:
    """x with zero mean and unit variance along an axis.

    Args:
        epsilon: of the divisor.
        sample: a scalar that divides the sum of squares, such as n - 1; by default n.
        inside: whether epsilon is added to the variance rather than to its root.
    """
    axes = b.indices(axis)
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes, keepdims=1))
    squares = b.op("Mul", centred, centred)
    if sample is None:
        variance = b.op("ReduceMean", squares, axes, keepdims=1)
    else:
        variance = b.op("Div", b.op("ReduceSum", squares, axes, keepdims=1), sample)
    small = b.scalar(epsilon)
    if inside:
        return b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, small)))
    return b.op("Div", centred, b.op("Add", b.op("Sqrt", variance), small))


def size_less_one(b: Builder, x: str, axis: int) -> str:
    """A float scalar: the size of a dimension less 1."""
    size = b.op("Gather", b.op("Shape", x), b.constant([axis], [], INT64))
    return b.op("Sub", b.op("Cast", size, to=FLOAT), b.scalar(1.0))
