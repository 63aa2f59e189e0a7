"""Tools of passes: patterns of nodes, and their replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..declare.dtypes import FLOATS, INT64
from ..declare.symbolic import Sym
from ..ir import BoundNode, Value
from ..ops import OPS

if TYPE_CHECKING:
    from ..bind import BoundGraph


class Rewriter:
    """A bound graph with the users of its values.

    Nodes change in place (`become`); nodes without users are dropped at the end (`done`). A pass
    begins with `nodes`: where it finds none, as most passes do in most graphs, nothing else is
    computed.

    Attributes:
        bound: the graph.
        users: {id of a value: nodes that read it, None for an output of the graph}; empty until
            `nodes` has found one.
    """

    def __init__(self, bound: BoundGraph) -> None:
        self.bound = bound
        self.users: dict[int, list[BoundNode | None]] = {}
        self._position: dict[int, float] = {}
        self._pending: list[tuple[BoundNode, BoundNode]] = []  # (node after it, new node)
        self._begun = False

    def nodes(self, *ops: str) -> list[BoundNode]:
        """A list of the nodes of these ops, of any domain."""
        found = [n for n in self.bound.nodes if n.op in ops]
        if found and not self._begun:
            self.users = self.bound.users()
            self._position = {id(n): i for i, n in enumerate(self.bound.nodes)}
            self._begun = True
        return found

    def only_user(self, value: Value) -> BoundNode | None:
        """The only node that reads a value; None where there are more, or it is an output."""
        u = self.users.get(id(value), ())
        return u[0] if len(u) == 1 else None

    def reads(self, value: Value) -> int:
        """How many inputs of nodes and outputs of the graph a value is."""
        return len(self.users.get(id(value), ()))

    def single(self, value: Value) -> bool:
        """Whether a value has one user: an input of a node, or an output of the graph."""
        return self.reads(value) == 1

    def become(
        self, node: BoundNode, op: str, domain: str, inputs: Sequence[Any], **attrs: Any
    ) -> None:
        """Replaces a node by another that computes the same outputs."""
        for v in node.inputs:
            if v is not None and node in self.users.get(id(v), ()):
                self.users[id(v)].remove(node)
        node.op, node.domain, node.inputs, node.attrs, node.decl = (
            op,
            domain,
            list(inputs),
            attrs,
            OPS[(domain, op)],
        )
        node.opset = 23
        for v in node.inputs:
            if v is not None:
                self.users.setdefault(id(v), []).append(node)

    def insert(
        self,
        before: BoundNode,
        op: str,
        domain: str,
        inputs: Sequence[Any],
        dtype: int,
        shape: Sequence[Any],
        **attrs: Any,
    ) -> Value:
        """Adds a node directly before another.

        Args:
            before: the other node.
            op, domain: of the new node.
            inputs: Values, None where absent.
            dtype, shape: of its output.
            attrs: attributes.

        Returns:
            its output
        """
        out = Value(
            f"{before.outputs[0].name}~{op}{len(self._pending)}",
            dtype,
            shape,
            constant=all(v is None or v.constant for v in inputs)
            and not any(isinstance(d, Sym) for d in shape),
        )
        n = BoundNode(
            op,
            domain,
            before.name,
            list(inputs),
            [out],
            attrs,
            23,
            OPS[(domain, op)],
            origin=before.origin,
        )
        out.producer = n
        self._pending.append((before, n))
        self._position[id(n)] = self._position[id(before)] - 0.5
        for v in inputs:
            if v is not None:
                self.users.setdefault(id(v), []).append(n)
        return out

    def reshape(self, before: BoundNode, value: Value, shape: Sequence[Any]) -> Value:
        """A Reshape directly before a node; the value itself where it has that shape."""
        if list(value.shape) == list(shape):
            return value
        number = Value("shape", INT64, [len(shape)], numbers=list(shape))
        return self.insert(before, "Reshape", "", [value, number], value.dtype, shape)

    def transpose(self, before: BoundNode, value: Value, perm: Sequence[int]) -> Value:
        """A Transpose directly before a node."""
        return self.insert(
            before,
            "Transpose",
            "",
            [value],
            value.dtype,
            [value.shape[p] for p in perm],
            perm=list(perm),
        )

    def slice(self, before: BoundNode, value: Value, axis: int, start: Any, length: Any) -> Value:
        """A Slice of `length` elements from `start` on along one axis, directly before a node."""
        shape = list(value.shape)
        shape[axis] = length
        numbers = [Value("slice", INT64, [1], numbers=[x]) for x in (start, start + length, axis)]
        return self.insert(before, "Slice", "", [value, *numbers], value.dtype, shape)

    def has(self, node: BoundNode) -> bool:
        """Whether a plan runs a node: values that are known when it is compiled need none."""
        return id(node) in self._position

    def before(self, value: Value, node: BoundNode) -> bool:
        """Whether a value is computed before `node` runs."""
        return (
            value.producer is None
            or self._position.get(id(value.producer), -1) < self._position[id(node)]
        )

    def done(self) -> None:
        """Adds the new nodes to the graph and drops nodes without users; must be the last call."""
        if not self._begun:
            return
        if self._pending:
            by_node: dict[int, list[BoundNode]] = {}
            for before, n in self._pending:
                by_node.setdefault(id(before), []).append(n)
            out = []
            for n in self.bound.nodes:
                out += by_node.get(id(n), [])
                out.append(n)
            self.bound.nodes = out
        self.bound.prune()


def constants_first(bound: BoundGraph) -> None:
    """Moves nodes that compute constants before all others, which can then read their outputs."""
    bound.nodes.sort(key=lambda n: not all(o is None or o.constant for o in n.outputs))


def number(v: Value | None) -> float | None:
    """The number of a constant that is one float; None of others."""
    if v is None or v.dtype not in FLOATS:
        return None
    n = v.numbers if (v.tensor is not None or v.numbers is not None) else None
    return n[0] if n is not None and len(n) == 1 else None


def op_of(v: Value | None) -> str | None:
    """Name of the op that computes a value; None for inputs and constants."""
    return v.producer.op if v is not None and v.producer is not None else None


def split_scalar(v: Value, *ops: str) -> tuple[Value, float]:
    """(x, factor) of v = x * c or x / c, as far as `ops` ("Mul", "Div") allow it; else (v, 1.0)."""
    n = v.producer
    if n is not None and n.op == "Mul" and "Mul" in ops:
        for i in (0, 1):
            c = number(n.inputs[i])
            if c is not None and list(n.inputs[1 - i].shape) == list(v.shape):
                return n.inputs[1 - i], c
    if n is not None and n.op == "Div" and "Div" in ops:
        c = number(n.inputs[1])
        if c and list(n.inputs[0].shape) == list(v.shape):
            return n.inputs[0], 1.0 / c
    return v, 1.0


def other(node: BoundNode, value: Value) -> Any:
    """The input of a two-input node that is not `value`."""
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


def near(a: float, b: float, rel: float = 1e-3) -> bool:
    """Whether a constant stands for b: float16 exports round to three digits."""
    return abs(a - b) <= rel * abs(b)
