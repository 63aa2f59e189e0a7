"""How an op is declared: everything about it in one place.

    softmax = Op("Softmax")

    @softmax.infer
    def _(n): return [like(n, 0)]          # (dtype, shape) of each output, or a Value that already is the output

    @softmax.lower
    def _(n, b): ...                       # emits kernel calls

    @softmax.grad
    def _(n, g, dy): return [...]          # gradient of each input from those of the outputs (autodiff.py)

`n` is a BoundNode (ir.py): inputs are Values with dtype, shape and, where known, numbers. `b` is a
plan Builder (plan/builder.py). An op gives `infer` and `lower`, or only `decompose`, which says
what it is in terms of other ops. `fold` computes small constants in Python (shape arithmetic). An
op of sequences, strings or subgraphs, or one whose output's shape its data decides, has a `host`
function: the session runs it between plans (session/driver.py). `cases` are what the test harness
(tests/ops) runs on every engine and compares with other implementations:

    @softmax.cases
    def _(t):                                           # t: a Toolbox of tests/ops/harness.py, which has NumPy; nothing of it is needed at run time
        yield t(t.f(2, 3, 5))                           # one node Softmax on a random float32 [2, 3, 5], newest opset
        yield t(t.f(2, 3, 5), opset=11, axis=-2)        # attributes by name
"""

from __future__ import annotations

from ..errors import ModelError, UnsupportedOp
from .dtypes import NAME
from .symbolic import NotStatic, Sym, most, product, strides_of

OPS: dict = {}


class TooLong(ModelError):
    """A register's range leads behind the end of a table; `excess`: by how much."""

    def __init__(self, what, where, excess):
        super().__init__(what, where, "Use a smaller capacity.")
        self.excess = excess


class Op:
    def __init__(self, name, domain="", half=(), moves=False):
        """half: indices of inputs that may stay float16 in memory; all others are widened to
        float32 first. moves: it only moves elements, whatever they are: those of less than a byte
        as bytes.
        """
        self.name, self.domain, self.half = name, domain, frozenset(half)
        self.infer_fn = self.fold_fn = self.lower_fn = self.decompose_fn = self.grad_fn = (
            self.cases_fn
        ) = self.host_fn = None
        self.moves, self.static = moves, False
        OPS[(domain, name)] = self

    def infer(self, f):
        self.infer_fn = f
        return f

    def fold(self, f):
        self.fold_fn = f
        return f

    def lower(self, f):
        self.lower_fn = f
        return f

    def decompose(self, f):
        """f(n, g): the outputs of BoundNode n as nodes that g adds; None where this node is to be
        lowered as it is.
        """
        self.decompose_fn = f
        return f

    def grad(self, f):
        """f(n, g, dy, ...): one gradient per input of BoundNode n (None: zero, or not
        differentiable) from one per output (None: nobody wants it).

        g: autodiff.Gradients, which adds nodes to the graph.
        """
        self.grad_fn = f
        return f

    def host(self, f=None, *, static=False):
        """f(n, run, inputs) -> [outputs]: what a session does itself, between plans, where values
        are no tensors of numbers or shapes depend on data.

        n: BoundNode whose inputs are `inputs`, values of ops/values.py (None where absent). run:
        session/driver.py's Host: `run.op(name, *values, **attributes)` computes with any op,
        `run.body(graph)` is a function over the values of a subgraph. An op that also has `infer`
        or `decompose` is run so only where an input is no tensor of numbers. None instead of
        outputs: not this way. static: f needs nothing but `run.op`, `run.constant` and `n.need`, so
        it also evaluates the node while a graph is bound, where what it needs is known by then.
        """
        if f is None:
            return lambda f: self.host(f, static=static)
        self.host_fn, self.static = f, static
        return f

    @property
    def host_only(self):
        """Whether no plan computes it."""
        return self.host_fn is not None and self.infer_fn is None and self.decompose_fn is None

    def cases(self, f):
        """f(t) yields t(input, ..., attribute=...): one test case each."""
        self.cases_fn = f
        return f


MS = "com.microsoft"


def like(node, i, dtype=None):
    v = node.inputs[i]
    return (dtype or v.dtype, list(v.shape))


def fail(
    node, what, remedy="Check the shapes that were fed; if they are right, export the model again."
):
    raise ModelError(what, node.where, remedy)


def unsupported(
    node,
    what,
    remedy="Export the model with another opset or another exporter, or run it on a desktop runtime.",
):
    raise UnsupportedOp(what, node.where, remedy)


def takes(node, types, *indices):
    """UnsupportedOp where one of these inputs is there and has another element type than the kernel
    computes on.
    """
    for i in indices:
        v = node.input(i)
        if v is not None and v.dtype not in types:
            unsupported(
                node,
                f"its input {i} is {v}; {' or '.join(NAME[t] for t in types)} is what can be"
                " computed on",
            )


def one_type(node, i, zero):
    """Fails where the zero point, input `zero`, is there and not of the type of input i, which it
    is subtracted from.
    """
    if node.has(zero) and node.inputs[zero].dtype != node.inputs[i].dtype:
        fail(
            node,
            f"a zero point has the type of its tensor, but input {zero} is {node.inputs[zero]} and"
            f" input {i} is {node.inputs[i]}",
            "Check the element types that were fed; if they are right, quantize the model again.",
        )


def check_reach(node, index, rows):
    """Fails where a row that a register chooses would lie behind the end of its table, as position
    tables do for sequences that are too long.
    """
    if isinstance(index, Sym) and not isinstance(rows, Sym) and index.max >= rows:
        raise TooLong(
            f"position {index.max} is asked of a table of {rows}", node.where, index.max - rows + 1
        )


def axis_of(node, axis, rank, extra=0):
    """A normalised axis; rank + extra exclusive. Negative ones count from `rank`."""
    if not -rank <= axis < rank + extra:
        fail(node, f"axis {axis} does not exist in a tensor of {rank} dimensions")
    return axis + rank if axis < 0 else axis


def broadcast(node, *shapes):
    """Numpy broadcasting; Syms match only themselves and 1."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for i in range(-rank, 0):
        d = 1
        for s in shapes:
            if -i <= len(s):
                e = s[i]
                if e == 1 or e == d:
                    continue
                if d != 1:
                    fail(
                        node,
                        f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast"
                        " together",
                    )
                d = e
        out.append(d)
    return out


def broadcast_strides(shape, strides, out_shape):
    """Strides that read a tensor as if it had out_shape."""
    pad = len(out_shape) - len(shape)
    return [0] * pad + [
        0 if d == 1 and o != 1 else s for d, s, o in zip(shape, strides, out_shape[pad:])
    ]


def indices(shape, strides, offset=0):
    """Flat offsets of all elements of a small tensor in row-major order."""
    out = [offset]
    for d, s in zip(shape, strides):
        out = [o + i * s for o in out for i in range(d)]
    return out


def read_as(v, out_shape):
    """Numbers of a small constant broadcast to out_shape."""
    numbers = v.numbers
    if list(v.shape) == list(out_shape):
        return numbers
    count = product(out_shape)
    if len(numbers) == 1:
        return numbers * count
    return [
        numbers[i]
        for i in indices(out_shape, broadcast_strides(v.shape, strides_of(v.shape), out_shape))
    ]


def ints(node, i, default=None):
    """Input i as a list of ints (axes, shapes); default when absent."""
    return node.need(i) if node.has(i) else default


__all__ = [
    "Op",
    "OPS",
    "MS",
    "like",
    "fail",
    "one_type",
    "TooLong",
    "unsupported",
    "axis_of",
    "broadcast",
    "check_reach",
    "takes",
    "broadcast_strides",
    "indices",
    "read_as",
    "ints",
    "NotStatic",
    "Sym",
    "most",
    "product",
    "strides_of",
]
