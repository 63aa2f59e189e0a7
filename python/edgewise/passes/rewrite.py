"""What passes share: looking at patterns and turning nodes into others."""

from __future__ import annotations

from ..declare.dtypes import FLOATS
from ..ir import BoundNode, Value
from ..ops import OPS


class Rewriter:
    """A bound graph with its users at hand.

    Nodes change in place (`become`); what loses its users is pruned afterwards.
    """

    def __init__(self, bound):
        self.bound = bound
        self.users = bound.users()
        self.position = {id(n): i for i, n in enumerate(bound.nodes)}
        self.pending = []  # (node before which, new node)

    def nodes(self, *ops):
        """Nodes of these ops, of whatever domain, as a list of now."""
        return [n for n in self.bound.nodes if n.op in ops]

    def only_user(self, value):
        """The one node that reads a value, or None when there are more, or it is an output."""
        u = self.users.get(id(value), ())
        return u[0] if len(u) == 1 else None

    def single(self, value):
        """Whether one input of one node reads a value (and it is no output)."""
        return len(self.users.get(id(value), ())) == 1

    def become(self, node, op, domain, inputs, **attrs):
        """Turns a node into another that computes the same outputs."""
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

    def insert(self, before, op, domain, inputs, dtype, shape, **attrs):
        """A new node right before another; returns its output."""
        out = Value(
            f"{before.outputs[0].name}~{op}{len(self.pending)}",
            dtype,
            shape,
            constant=all(v is None or v.constant for v in inputs),
        )
        n = BoundNode(op, domain, before.name, list(inputs), [out], attrs, 23, OPS[(domain, op)])
        out.producer = n
        self.pending.append((before, n))
        self.position[id(n)] = self.position[id(before)] - 0.5
        for v in inputs:
            if v is not None:
                self.users.setdefault(id(v), []).append(n)
        return out

    def reshape(self, before, value, shape):
        """A Reshape right before a node; the value itself where it has that shape."""
        if list(value.shape) == list(shape):
            return value
        number = Value("shape", 7, [len(shape)], numbers=list(shape))
        return self.insert(before, "Reshape", "", [value, number], value.dtype, shape)

    def transpose(self, before, value, perm):
        """A Transpose right before a node."""
        return self.insert(
            before,
            "Transpose",
            "",
            [value],
            value.dtype,
            [value.shape[p] for p in perm],
            perm=list(perm),
        )

    def slice(self, before, value, axis, start, length):
        """A Slice of `length` elements from `start` on along one axis, right before a node."""
        shape = list(value.shape)
        shape[axis] = length
        numbers = [Value("slice", 7, [1], numbers=[x]) for x in (start, start + length, axis)]
        return self.insert(before, "Slice", "", [value, *numbers], value.dtype, shape)

    def before(self, value, node):
        """Whether a value is there when `node` runs."""
        return (
            value.producer is None
            or self.position.get(id(value.producer), -1) < self.position[id(node)]
        )

    def done(self):
        """Puts the inserted nodes in their places and prunes what nobody reads; the Rewriter is of
        no use then.
        """
        if self.pending:
            by_node = {}
            for before, n in self.pending:
                by_node.setdefault(id(before), []).append(n)
            out = []
            for n in self.bound.nodes:
                out += by_node.get(id(n), [])
                out.append(n)
            self.bound.nodes = out
        self.bound.prune()


def constants_first(bound):
    """Nodes that compute the same in every run go before all others, so that any of those can take
    their outputs.
    """
    bound.nodes.sort(key=lambda n: not all(o is None or o.constant for o in n.outputs))


def number(v):
    """The one float a constant holds, or None."""
    if v is None or v.dtype not in FLOATS:
        return None
    n = v.numbers if (v.tensor is not None or v.numbers is not None) else None
    return n[0] if n is not None and len(n) == 1 else None


def op_of(v):
    """Name of the op that computes a value; None for inputs and constants."""
    return v.producer.op if v is not None and v.producer is not None else None


def split_scalar(v, *ops):
    """v = x * c or x / c (ops) -> (x, factor); (v, 1.0) when it is neither."""
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


def other(node, value):
    """The input of a two-input node that is not `value`."""
    return node.inputs[1] if node.inputs[0] is value else node.inputs[0]


def near(a, b, rel=1e-3):
    """Whether a constant is meant to be b: float16 exports round to three digits."""
    return abs(a - b) <= rel * abs(b)
