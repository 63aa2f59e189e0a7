"""Reverse-mode differentiation of bound graphs: adds the nodes that compute gradients.

The rule of an op is declared with the op (`grad`, declare/op.py) and composed of ops. A gradient is
a graph like any other: passes fuse it, plans schedule it, and it can be differentiated again where
its ops have rules. (Reverse accumulation: Griewank and Walther, Evaluating
Derivatives, 2008, chapter 3; rules as in PyTorch's derivatives.yaml.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import MissingGradient, UnsupportedOp
from ..declare.dtypes import FLOAT, FLOATS
from ..declare.symbolic import product
from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from .graph import BoundGraph


class Gradients:
    """What rules of gradients add nodes with.

    Attributes:
        bound: the graph.
        binder: its binder.
        node: the forward node whose rule runs.
    """

    def __init__(self, bound: BoundGraph) -> None:
        self.bound, self.binder = bound, bound.binder
        self.node: Any = None
        self.needed: set[int] = set()  # ids of values whose gradients are needed

    # ---- nodes ----
    def op(
        self, name: str, *inputs: Value | None, domain: Any = "", outputs: Any = 1, **attrs: Any
    ) -> Any:
        """Adds a node in the newest opset.

        Returns:
            its output, or a list where outputs > 1
        """
        return self.binder.op(name, *inputs, domain=domain, outputs=outputs, **attrs)

    def constant(self, dtype: int, shape: Sequence[Any], numbers: Sequence[Any]) -> Value:
        """A Value of known numbers. dtype: ONNX code; numbers: flat list."""
        return self.binder.constant(dtype, shape, numbers)

    def number(self, x: float) -> Value:
        """A float32 scalar."""
        return self.constant(FLOAT, [], [float(x)])

    def ints(self, values: Sequence[Any]) -> Value:
        """An int64 vector."""
        return self.binder.ints([int(x) for x in values])

    def wants(self, i: int) -> bool:
        """Whether the gradient of the forward node's input i is needed."""
        return (
            i < len(self.node.inputs)
            and self.node.inputs[i] is not None
            and id(self.node.inputs[i]) in self.needed
        )

    def through(
        self, build: Callable[..., Sequence[Value]], seeds: Sequence[Value | None]
    ) -> list[Value | None]:
        """The gradients of the forward node's inputs by those of a composition that computes the
        same: it is computed again, and differentiated node by node.

        Args:
            build: function(*inputs of the node) that returns values like its outputs.
            seeds: the gradients of these, as the node's rule gets them.
        """
        node, needed, start = self.node, self.needed, len(self.bound.nodes)
        outputs = build(*node.inputs)
        pairs = [(y, dy) for y, dy in zip(outputs, seeds) if dy is not None]
        wanted = {id(v): v for i, v in enumerate(node.inputs) if self.wants(i)}
        nodes = self.bound.nodes[start:]
        found = dict(zip(wanted, _reverse(self, nodes, pairs, list(wanted.values()))))
        self.node, self.needed = node, needed
        self.binder.origin = node.origin
        # An input that is given twice gets its gradient once.
        return [found.pop(id(v), None) if v is not None else None for v in node.inputs]

    def output(self, i: int, dtype: int, shape: Sequence[Any]) -> Value:
        """Output i of the forward node, which is added where it is absent.

        The op's lowering must be able to write it.
        """
        n = self.node
        while len(n.outputs) <= i:
            n.outputs.append(None)
        if n.outputs[i] is None:
            n.outputs[i] = Value(self.binder.fresh(n.op), dtype, shape)
            n.outputs[i].producer = n
        return n.outputs[i]

    # ---- arithmetic ----
    def add(self, a: Any, b: Any) -> Value:
        """a + b, broadcast as ONNX's Add."""
        return self.op("Add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """a - b, broadcast."""
        return self.op("Sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, element by element, broadcast."""
        return self.op("Mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        """a / b, element by element, broadcast."""
        return self.op("Div", a, b)

    def neg(self, a: Value) -> Value:
        """-a."""
        return self.op("Neg", a)

    def scale(self, v: Value, factor: float) -> Value:
        """v times a Python float; v itself where it is 1."""
        return v if factor == 1.0 else self.op("Mul", v, self.number(factor))

    # ---- shapes ----
    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        """Dimension i of the result is dimension perm[i] of v; v itself for the identity."""
        return (
            v if list(perm) == list(range(len(perm))) else self.op("Transpose", v, perm=list(perm))
        )

    def swap(self, v: Value) -> Value:
        """v with its last two dimensions swapped."""
        return self.transpose(v, [*range(v.rank - 2), v.rank - 1, v.rank - 2])

    def reshape(self, v: Value, shape: Sequence[Any]) -> Value:
        """v in another shape (ints and Syms) with as many elements."""
        return self.binder.reshape(v, shape)

    def sum_to(self, v: Any, shape: Sequence[Any]) -> Any:
        """The gradient of broadcasting: the sum over the axes that a tensor of `shape` was repeated
        along.
        """
        pad = v.rank - len(shape)
        axes = [
            *range(pad),
            *(i + pad for i, d in enumerate(shape) if d == 1 and v.shape[i + pad] != 1),
        ]
        if axes:
            v = self.op("ReduceSum", v, self.ints(axes), keepdims=1)
        return self.reshape(v, shape)

    def zeros(self, shape: Sequence[Any]) -> Value:
        """float32 zeros."""
        return (
            self.op("Expand", self.number(0.0), self.ints(shape))
            if product(shape) != 1
            else self.reshape(self.number(0.0), shape)
        )


def add_gradients(
    bound: BoundGraph,
    seeds: Sequence[tuple[Value, Value | None]],
    wrt: Sequence[Value],
    missing: list[tuple[BoundNode, Any]] | None = None,
) -> list[Value | None]:
    """Adds the nodes that compute the gradients of sum(seed * value) over all seeds.

    Args:
        bound: the graph, its nodes in an order that can run.
        seeds: (value, gradient of the same shape); a gradient of None stands for 1, of a value with
            one element.
        wrt: values whose gradients are computed: inputs, states, or outputs of nodes.
        missing: receives (node, error) of nodes without a rule, treated as constant; None: raise.

    Returns:
        a gradient for each value of wrt; None where no seed depends on it

    Raises:
        MissingGradient: a node between wrt and the seeds has no rule.
    """
    return _reverse(Gradients(bound), list(bound.nodes), seeds, wrt, missing)


def _reverse(
    gradients: Gradients,
    forward: Sequence[BoundNode],
    seeds: Sequence[tuple[Value, Value | None]],
    wrt: Sequence[Value],
    missing: list[tuple[BoundNode, Any]] | None = None,
) -> list[Value | None]:
    """As add_gradients, for these nodes of the graph."""
    bound, needed = gradients.bound, {id(v) for v in wrt}
    for n in forward:
        if any(v is not None and id(v) in needed for v in n.inputs):
            needed.update(id(o) for o in n.outputs if o is not None and o.dtype in FLOATS)
    gradients.needed = needed
    sums = _Sums(gradients)
    for value, gradient in seeds:
        if id(value) in needed:
            if gradient is None:
                gradient = gradients.reshape(gradients.number(1.0), value.shape)
            sums.add(value, gradient)
    kept = {id(v) for v in wrt}
    for n in reversed(forward):
        # All readers of the outputs came before, so their gradients are complete.
        out = [sums.of.get(id(o)) if o is not None else None for o in n.outputs]
        for o in n.outputs:
            if o is not None and id(o) not in kept:
                sums.of.pop(id(o), None)
        if all(d is None for d in out) or not any(
            v is not None and id(v) in needed for v in n.inputs
        ):
            continue
        gradients.node, bound.binder.origin = n, n.origin
        try:
            if n.decl.grad_fn is None:
                raise _missing(n, forward, wrt)
            got = n.decl.grad_fn(n, gradients, *out)
        except UnsupportedOp as e:
            if missing is None:
                raise
            missing.append((n, e))
            continue
        for v, gradient in zip(n.inputs, got if isinstance(got, (list, tuple)) else [got]):
            if v is not None and gradient is not None and id(v) in needed:
                sums.add(v, gradient)
    gradients.node = bound.binder.origin = None
    return [sums.of.get(id(v)) for v in wrt]


class _Sums:
    """Gradients so far, {id of a value: gradient}."""

    def __init__(self, gradients: Gradients) -> None:
        self.of: dict[int, Value] = {}
        self._gradients = gradients

    def add(self, value: Value, gradient: Value) -> None:
        """Adds to the gradient of a value."""
        if list(gradient.shape) != list(value.shape):
            node = self._gradients.node
            raise AssertionError(
                f"the rule of {node.where if node else 'a seed'} gives {gradient} for {value}"
            )
        before = self.of.get(id(value))
        self.of[id(value)] = gradient if before is None else self._gradients.add(before, gradient)


def _missing(
    node: BoundNode, forward: Sequence[BoundNode], wrt: Sequence[Value]
) -> MissingGradient:
    """The error for a node without a rule: on which path it is, and what to freeze."""
    producers = {id(o): n for n in forward for o in n.outputs if o is not None}
    names, seen = {id(v): v.name for v in wrt}, set[int]()
    front: list[Value] = [v for v in node.inputs if v is not None]
    path: dict[int, list[str]] = {id(v): [] for v in front}
    start: Value | None = None
    after: list[str] = []
    while front:
        v = front.pop(0)
        if id(v) in seen:
            continue
        seen.add(id(v))
        if id(v) in names:
            start = start or v
            after.append(v.name)
            if len(after) > 20:
                break
            continue
        n = producers.get(id(v))
        for i in n.inputs if n is not None else ():
            if n is not None and i is not None and id(i) not in path:
                path[id(i)] = [*path[id(v)], n.name or n.op]
                front.append(i)
    through = (
        " -> ".join([f"'{start.name}'", *reversed(path[id(start)])][:8])
        if start is not None
        else "a parameter"
    )
    few = ", ".join(f"'{b}'" for b in after[:6]) + (" and others" if len(after) > 6 else "")
    return MissingGradient(
        f"the operator {node.domain + '.' if node.domain else ''}{node.op} has no gradient, and the"
        f" path {through} -> {node.name or node.op} -> loss needs it",
        node.where,
        f"Freeze {few}, train adapters behind this node only, or take the node out of the model.",
    )
