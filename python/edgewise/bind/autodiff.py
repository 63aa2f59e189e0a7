"""Reverse-mode differentiation of bound graphs: nodes that compute gradients are added behind those
that are there.

Each op's rule stands beside the op (`grad`, ops/op.py) and is built from ops, so that a gradient is
a graph like any other: passes fuse it, plans schedule it, and where rules are made of ops that have
rules it can be differentiated again. (Reverse accumulation: Griewank and Walther, Evaluating
Derivatives, 2008, chapter 3; rules as in PyTorch's derivatives.yaml.)
"""

from __future__ import annotations

from ..declare.dtypes import FLOAT, FLOATS
from ..declare.symbolic import product
from ..errors import MissingGradient, UnsupportedOp
from ..ir import Value


class Gradients:
    """What a rule builds with. `node` is the forward node whose rule runs."""

    def __init__(self, bound):
        self.bound, self.binder = bound, bound.binder
        self.node, self.needed = None, set()

    # ---- nodes ----
    def op(self, name, *inputs, domain="", outputs=1, **attrs):
        """Adds a node in the newest opset; its output, or a list where outputs > 1."""
        return self.binder.op(name, *inputs, domain=domain, outputs=outputs, **attrs)

    def constant(self, dtype, shape, numbers):
        """A Value of known numbers. dtype: ONNX code; numbers: flat list."""
        return self.binder.constant(dtype, shape, numbers)

    def number(self, x):
        """A float32 scalar."""
        return self.constant(FLOAT, [], [float(x)])

    def ints(self, values):
        """An int64 vector."""
        return self.binder.ints([int(x) for x in values])

    def wants(self, i):
        """Whether the gradient of the forward node's input i is wanted."""
        return (
            i < len(self.node.inputs)
            and self.node.inputs[i] is not None
            and id(self.node.inputs[i]) in self.needed
        )

    def output(self, i, dtype, shape):
        """Output i of the forward node, which is made to exist.

        The op's lowering must be able to give it.
        """
        n = self.node
        while len(n.outputs) <= i:
            n.outputs.append(None)
        if n.outputs[i] is None:
            n.outputs[i] = Value(self.binder.fresh(n.op), dtype, shape)
            n.outputs[i].producer = n
        return n.outputs[i]

    # ---- arithmetic ----
    def add(self, a, b):
        """a + b, broadcast as ONNX's Add."""
        return self.op("Add", a, b)

    def sub(self, a, b):
        """a - b, broadcast."""
        return self.op("Sub", a, b)

    def mul(self, a, b):
        """a * b, element by element, broadcast."""
        return self.op("Mul", a, b)

    def div(self, a, b):
        """a / b, element by element, broadcast."""
        return self.op("Div", a, b)

    def neg(self, a):
        """-a."""
        return self.op("Neg", a)

    def scale(self, v, factor):
        """v times a Python float; v itself where it is 1."""
        return v if factor == 1.0 else self.op("Mul", v, self.number(factor))

    # ---- shapes ----
    def transpose(self, v, perm):
        """Dimension i of the result is dimension perm[i] of v; v itself where nothing moves."""
        return (
            v if list(perm) == list(range(len(perm))) else self.op("Transpose", v, perm=list(perm))
        )

    def swap(self, v):
        """The last two dimensions exchanged."""
        return self.transpose(v, [*range(v.rank - 2), v.rank - 1, v.rank - 2])

    def reshape(self, v, shape):
        """v in another shape (ints and Syms) of as many elements."""
        return self.binder.reshape(v, shape)

    def sum_to(self, v, shape):
        """Undoes broadcasting: the sum over what a tensor of `shape` was repeated along."""
        pad = v.rank - len(shape)
        axes = [
            *range(pad),
            *(i + pad for i, d in enumerate(shape) if d == 1 and v.shape[i + pad] != 1),
        ]
        if axes:
            v = self.op("ReduceSum", v, self.ints(axes), keepdims=1)
        return self.reshape(v, shape)

    def zeros(self, shape):
        """float32 zeros of a shape."""
        return (
            self.op("Expand", self.number(0.0), self.ints(shape))
            if product(shape) != 1
            else self.reshape(self.number(0.0), shape)
        )


def add_gradients(bound, seeds, wrt, missing=None):
    """Adds the nodes that compute the gradients of sum(seed * value) over all seeds.

    Args:
        bound: BoundGraph made by `bind`, its nodes in an order that can be run.
        seeds: [(Value, gradient Value of the same shape)]; a gradient of None stands for 1 and
        wants a value of one element. wrt: [Value] the gradients of which are wanted: inputs,
        states, or values that nodes compute. missing: a list: nodes whose rule is missing or
        refuses are added to it as (node, error), and taken as if they were constant, instead of
        raising.
    Returns:
        [Value or None] in the order of wrt; None: nothing of it reaches the seeds.
    Raises:
        MissingGradient: a node between wrt and the seeds has no rule.
    """
    g = Gradients(bound)
    needed = {id(v) for v in wrt}  # values that something of wrt flows into
    forward = list(bound.nodes)
    for n in forward:
        if any(v is not None and id(v) in needed for v in n.inputs):
            needed.update(id(o) for o in n.outputs if o is not None and o.dtype in FLOATS)
    g.needed = needed
    grads = {}  # id of value -> gradient so far

    def give(value, gradient):
        if list(gradient.shape) != list(value.shape):
            raise AssertionError(
                f"the rule of {g.node.where if g.node else 'a seed'} gives {gradient} for {value}"
            )
        before = grads.get(id(value))
        grads[id(value)] = gradient if before is None else g.add(before, gradient)

    for value, gradient in seeds:
        if id(value) in needed:
            give(value, gradient if gradient is not None else g.reshape(g.number(1.0), value.shape))
    wanted = {id(v) for v in wrt}
    for n in reversed(forward):
        out = [grads.get(id(o)) if o is not None else None for o in n.outputs]
        for o in n.outputs:  # complete: all readers of o came before
            if o is not None and id(o) not in wanted:
                grads.pop(id(o), None)
        if all(d is None for d in out) or not any(
            v is not None and id(v) in needed for v in n.inputs
        ):
            continue
        g.node = n
        try:
            if n.decl.grad_fn is None:
                raise _missing(n, forward, wrt)
            got = n.decl.grad_fn(n, g, *out)
        except UnsupportedOp as e:
            if missing is None:
                raise
            missing.append((n, e))
            continue
        for v, gradient in zip(n.inputs, got if isinstance(got, (list, tuple)) else [got]):
            if v is not None and gradient is not None and id(v) in needed:
                give(v, gradient)
    g.node = None
    return [grads.get(id(v)) for v in wrt]


def _missing(node, forward, wrt):
    """What stands in the way, from which parameter, and what to freeze."""
    producers = {id(o): n for n in forward for o in n.outputs if o is not None}
    names, seen, path, front = (
        {id(v): v.name for v in wrt},
        set(),
        {},
        [v for v in node.inputs if v is not None],
    )
    path = {id(v): [] for v in front}
    start, behind = None, []
    while front:
        v = front.pop(0)
        if id(v) in seen:
            continue
        seen.add(id(v))
        if id(v) in names:
            start = start or v
            behind.append(v.name)
            if len(behind) > 20:
                break
            continue
        n = producers.get(id(v))
        for i in n.inputs if n is not None else ():
            if i is not None and id(i) not in path:
                path[id(i)] = [*path[id(v)], n.name or n.op]
                front.append(i)
    through = (
        " -> ".join([f"'{start.name}'", *reversed(path[id(start)])][:8])
        if start is not None
        else "a parameter"
    )
    few = ", ".join(f"'{b}'" for b in behind[:6]) + (" and others" if len(behind) > 6 else "")
    return MissingGradient(
        f"the operator {node.domain + '.' if node.domain else ''}{node.op} has no gradient, and the"
        f" path {through} -> {node.name or node.op} -> loss needs it",
        node.where,
        f"Freeze {few}, train adapters behind this node only, or take the node out of the model.",
    )
