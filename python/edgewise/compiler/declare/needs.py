"""What binding needs to know of numbers that only a run can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ir import BoundNode, Node, Value


@dataclass(frozen=True)
class Growth:
    """Of a number n: by how much it exceeds a dimension, `more` = max(n - rows, 0).

    A cache that grows, or one with room, has the same growth in every run, while the number of its
    positions changes: so a plan that depends on the growth alone serves them all.
    """

    rows: Any
    more: int


def _source(v: Value, *ops: str) -> Value:
    """What a value is computed from by these ops, each of which has the numbers of its input."""
    while v.producer is not None and v.producer.op in ops and v.producer.inputs[0] is not None:
        v = v.producer.inputs[0]
    return v


class NeedsValue(Exception):
    """Binding needs numbers that only a run can tell: If's condition, a shape from data.

    Attributes:
        value: the tensor.
        beyond: (name of a tensor, axis), where it is enough to know by how much the number exceeds
            this dimension (Growth).
        node: the node of the graph that needs it.
    """

    def __init__(self, value: Value, beyond: tuple[str, int] | None = None) -> None:
        super().__init__(value.name)
        self.value, self.beyond = value, beyond
        self.node: Node | None = None


def growth(node: BoundNode, i: int, j: int, axis: int) -> int:
    """By how much the number that is input i of a node exceeds a dimension of input j; 0: it does
    not.

    Raises:
        NeedsValue: only a run can tell.
    """
    v = _source(node.inputs[i], "Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity")
    if v.growth is None:
        raise NeedsValue(v, (_source(node.inputs[j], "Cast").name, axis))
    if v.growth.rows != node.inputs[j].shape[axis]:
        raise NeedsValue(v)  # another dimension than that of the other nodes
    return v.growth.more
