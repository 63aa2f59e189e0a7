"""A graph under construction whose dimensions are known for each of the shapes that it will run
with.

A dimension is a tuple of its sizes: one for each set of lengths. Therefore a family of operators
checks what it needs (a window fits, two values can be broadcast) for all of them by arithmetic on
these tuples, and nothing has to be inferred.
"""

from __future__ import annotations

import dataclasses
import random
from typing import NamedTuple

import numpy as np
from onnx import helper, numpy_helper

MS = "com.microsoft"
OPSETS = (13, 17, 18, 21, 23)
MAX_ELEMENTS = 6000  # of a value, for the largest lengths
NUMPY = {"i8": np.int64, "i4": np.int32, "?": np.bool_, "u1": np.uint8, "i1": np.int8}
NAMES = {"b": "batch", "n": "length", "m": "other"}


@dataclasses.dataclass(eq=False)
class Value:
    """An input, an initializer or the output of a node.

    dtype: "f" (the graph's type of floats) or a key of NUMPY. dims: see above. size: roughly the
    largest absolute value. numbers: of an int64 vector that only lengths decide, its values for
    each set of lengths.
    """

    name: str
    dtype: str
    dims: tuple[tuple[int, ...], ...]
    size: float = 3.0
    numbers: tuple[tuple[int, ...], ...] | None = None

    @property
    def rank(self):
        return len(self.dims)


class Run(NamedTuple):
    """Inputs of a run, and the names of the outputs that it asks for; None: all."""

    feeds: dict[str, np.ndarray]
    names: list[str] | None


class Graph:
    """lengths: [{"b": .., "n": .., "m": ..}]. floats: "f4", "f2" or "f8"."""

    def __init__(self, rng: random.Random, lengths, floats="f4", opset=17, qdq=False):
        self.rng, self.lengths, self.opset, self.qdq = rng, lengths, opset, qdq
        self.floats = np.dtype(floats)
        self.numpy = np.random.default_rng(rng.getrandbits(32))
        self.nodes, self.initializers, self.inputs, self.values = [], {}, [], []
        self.outputs, self.used, self.count = [], set(), 0
        self.known = {}  # bytes of an array: its initializer
        self.weights = {}  # shape: initializers of random numbers
        # How often an input gives a number, and a constant is a node.
        self.fed_numbers = rng.choice((0, 0, 0, 0.15))
        self.constant_nodes = rng.choice((0, 0, 0.5))
        self.declared = rng.random() < 0.93  # whether the file has the inputs' shapes

    # Dimensions
    def fixed(self, size):
        return (size,) * len(self.lengths)

    def dim(self, name, add=0):
        return tuple(at[name] + add for at in self.lengths)

    def total(self, dims):
        """Elements for each set of lengths."""
        return tuple(int(np.prod([d[i] for d in dims])) for i in range(len(self.lengths)))

    def fits(self, dims):
        return max(self.total(dims)) <= MAX_ELEMENTS

    @staticmethod
    def is_fixed(dim):
        return len(set(dim)) == 1

    def broadcast(self, a, b):
        """Dimensions of both together, or None."""
        out = []
        one = self.fixed(1)
        for i in range(1, max(len(a), len(b)) + 1):
            x = a[-i] if i <= len(a) else one
            y = b[-i] if i <= len(b) else one
            if x != y and one not in (x, y):
                return None
            out.insert(0, y if x == one else x)
        return tuple(out)

    # Values
    def type_of(self, dtype):
        return self.floats if dtype == "f" else np.dtype(NUMPY[dtype])

    def fresh(self, stem):
        self.count += 1
        return f"{stem}_{self.count}"

    def input(self, dtype, dims, kind="normal", stem="x"):
        """An input. kind: what `feeds` fills it with: normal, mask, the number of ids, or a
        dimension, whose size it is.
        """
        value = Value(self.fresh(stem), dtype, dims, 3.0 if kind == "normal" else 1.0)
        self.inputs.append((value, kind))
        self.values.append(value)
        return value

    def const(self, array, size=None):
        """An initializer; equal arrays are one."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.known:
            name = self.fresh("const")
            self.initializers[name] = numpy_helper.from_array(array, name)
            dtype = next((k for k, v in NUMPY.items() if v == array.dtype.type), "f")
            big = size or (float(np.abs(array).max()) if array.size and array.dtype != bool else 1)
            self.known[key] = Value(name, dtype, tuple(map(self.fixed, array.shape)), big)
            if dtype == "i8" and array.ndim == 1:
                at = tuple(int(x) for x in array)
                self.known[key].numbers = (at,) * len(self.lengths)
        return self.known[key]

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def number(self, value):
        """A scalar float."""
        return self.const(np.array(value, self.floats))

    def weight(self, *shape, scale=1.0, positive=False):
        """Random floats; now and then those of an earlier node."""
        old = self.weights.setdefault((shape, positive), [])
        if old and self.rng.random() < 0.35:
            return self.rng.choice(old)
        array = self.numpy.standard_normal(shape) * scale
        array = (np.abs(array) + 0.3) if positive else array
        value = self.const(array.astype(self.floats), 3 * scale)
        old.append(value)
        return value

    def node(self, op, inputs, dims, dtype=None, size=None, domain="", keep=True, **attrs):
        """A node with one output. keep: whether other nodes may use it.

        inputs: Values, None for one that is left out, floats and tuples of ints for constants.
        """
        return self.many(op, inputs, [dims], [dtype], size, domain, keep, **attrs)[0]

    def many(self, op, inputs, dims, dtypes=None, size=None, domain="", keep=True, **attrs):
        """A node with several outputs; None instead of dimensions leaves one out."""
        values = [self.as_value(x) for x in inputs]
        self.used.update(v.name for v in values if v)
        first = next((v for v in values if v), None)
        dtypes = dtypes or [None] * len(dims)
        outs = [
            d
            if d is None
            else Value(
                self.fresh(op.lower()),
                t or first.dtype,
                tuple(d),
                (first.size if first else 3.0) if size is None else size,
            )
            for d, t in zip(dims, dtypes)
        ]
        self.nodes.append(
            helper.make_node(
                op,
                [v.name if v else "" for v in values],
                [o.name if o else "" for o in outs],
                name=self.fresh("node"),
                domain=domain,
                **attrs,
            )
        )
        if keep:
            self.values += [o for o in outs if o]
        return outs

    def as_value(self, x):
        if isinstance(x, (float, np.floating)):
            return self.number(x)
        return self.ints(*x) if isinstance(x, tuple) else x

    def pick(self, accept=lambda v: True, dtype="f", rank=None):
        """A value, more likely a late one, or None."""
        found = [
            v
            for v in self.values
            if v.dtype == dtype and (rank is None or v.rank == rank) and accept(v)
        ]
        if not found:
            return None
        return found[-1 - int(len(found) * self.rng.random() ** 2.2)]

    # Numbers that lengths decide
    def length(self, dim):
        """An int64 vector of one number: a dimension's size."""
        rng = self.rng
        sources = [(v, k) for v in self.values for k, d in enumerate(v.dims) if d == dim]
        if not self.is_fixed(dim) and rng.random() < self.fed_numbers:
            return self.fed_number(dim)
        if self.is_fixed(dim) and (not sources or rng.random() < 0.85):
            return self.ints(dim[0])
        if not sources:
            return None
        value, axis = rng.choice(sources)
        numbers = tuple((x,) for x in dim)

        def made(op, inputs, rank=1, **attrs):
            dims = [self.fixed(1)] * rank
            out = self.node(op, inputs, dims, "i8", keep=False, **attrs)
            out.numbers = numbers
            return out

        how = rng.randrange(5)
        if how == 0 and self.opset >= 15:
            return made("Shape", [value], start=axis, end=axis + 1)
        shape = self.node("Shape", [value], [self.fixed(value.rank)], "i8", keep=False)
        if how == 1:
            scalar = made("Gather", [shape, self.const(np.array(axis, np.int64))], 0)
            return made("Unsqueeze", [scalar, (0,)])
        if how == 2:
            return made("Slice", [shape, (axis,), (axis + 1,)])
        out = made("Gather", [shape, (axis,)], axis=0)
        return self.detour(out) if how == 3 else out

    def fed_number(self, dim):
        """An input that gives a dimension."""
        old = next((v for v, kind in self.inputs if kind == dim), None)
        if old is None:
            old = self.input("i8", (self.fixed(1),), dim, "number")
            old.numbers, old.size = tuple((x,) for x in dim), 50.0
        return old

    def detour(self, number):
        """The same number after some arithmetic, as exporters write it."""
        k = self.rng.choice((2, 3, 5))
        there, back = self.rng.choice((("Add", "Sub"), ("Mul", "Div"), ("Sub", "Add")))
        one = (self.fixed(1),)
        out = self.node(there, [number, (k,)], one, "i8", keep=False)
        out = self.node(back, [out, (k,)], one, "i8", keep=False)
        out.numbers = number.numbers
        return out

    def arithmetic(self, op, number, k):
        """number (op) k: for lengths that differ from a dimension by a constant."""
        change = {"Add": lambda x: x + k, "Sub": lambda x: x - k, "Mul": lambda x: x * k}[op]
        out = self.node(op, [number, (k,)], (self.fixed(1),), "i8", keep=False)
        out.numbers = tuple((change(x),) for (x,) in number.numbers)
        return out

    def shape_of(self, dims):
        """An int64 vector of these dimensions; None if one cannot be computed."""
        if all(map(self.is_fixed, dims)) and self.rng.random() < 0.5:
            return self.ints(*(d[0] for d in dims))
        for v in self.values:
            if v.dims == tuple(dims) and self.rng.random() < 0.3:
                return self.node("Shape", [v], [self.fixed(v.rank)], "i8", keep=False)
        parts = [self.length(d) for d in dims]
        if not parts or None in parts:
            return None if parts else self.const(np.zeros(0, np.int64))
        return self.node("Concat", parts, [self.fixed(len(parts))], "i8", keep=False, axis=0)

    def scalar(self, number):
        """The number as a scalar."""
        return self.node("Squeeze", [number, (0,)], (), "i8", keep=False)

    # Results
    def finish(self):
        """The outputs: what no node uses, and some of the rest, in any order."""
        rng = self.rng
        inputs = {v.name for v, _ in self.inputs}
        made = [v for v in self.values if v.name not in inputs]
        loose = [v for v in made if v.name not in self.used]
        if len(loose) > 4:
            loose = rng.sample(loose, 4)
        some = [v for v in made if rng.random() < 0.12 and v not in loose][:2]
        self.outputs = loose + some or made[-1:]
        rng.shuffle(self.outputs)
        return bool(self.outputs)

    def names_of(self, dims, axes):
        """What a file says of the dimensions of an input or output."""
        out = []
        for axis, d in enumerate(dims):
            same = [k for k in ("b", "n", "m") if self.dim(k) == d]
            out.append(d[0] if self.is_fixed(d) else NAMES[same[0]] if same else f"{axes}_{axis}")
        return out

    def in_any_order(self):
        """The nodes in another order in which each follows those that it reads."""
        made = {name for node in self.nodes for name in node.output if name}
        left, ready, out = list(self.nodes), set(), []
        while left:
            free = [n for n in left if all(x in ready or x not in made for x in names_in(n))]
            node = free[0] if self.rng.random() < 0.3 else self.rng.choice(free)
            left.remove(node)
            out.append(node)
            ready.update(node.output)
        return out

    def model(self):
        def info(v, shape):
            kind = helper.np_dtype_to_tensor_dtype(self.type_of(v.dtype))
            return helper.make_tensor_value_info(v.name, kind, shape)

        nodes = self.in_any_order() if self.rng.random() < 0.4 else self.nodes
        used = {name for node in nodes for name in names_in(node)}
        tensors = [t for name, t in self.initializers.items() if name in used]
        moved = [t for t in tensors if self.rng.random() < self.constant_nodes]
        constants = [helper.make_node("Constant", [], [t.name], value=t) for t in moved]
        graph = helper.make_graph(
            constants + nodes,
            "graph",
            [
                info(v, self.names_of(v.dims, v.name) if self.declared else None)
                for v, _ in self.inputs
            ],
            [info(v, None) for v in self.outputs],
            [t for t in tensors if t not in moved],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, at, numpy):
        """Arrays for the set of lengths number `at`; some are views of others."""
        out = {}
        for v, kind in self.inputs:
            shape, dtype = [d[at] for d in v.dims], self.type_of(v.dtype)
            if isinstance(kind, tuple):
                out[v.name] = np.array([kind[at]], dtype)
            elif kind == "normal":
                out[v.name] = numpy.standard_normal(shape).astype(dtype)
            elif kind == "mask":
                out[v.name] = (numpy.random(shape) < 0.8).astype(dtype)
            else:
                out[v.name] = numpy.integers(0, kind, shape).astype(dtype)
            if numpy.random() < 0.1:
                out[v.name] = np.repeat(out[v.name], 2, -1)[..., ::2]
        return out


def names_in(node):
    """Names that a node reads, and its bodies."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from names_in(inner)
            yield from (o.name for o in body.output)


def body(name, nodes, inputs, outputs):
    """A graph of an attribute. inputs, outputs: [(name, numpy type, shape or None)]."""

    def info(name, dtype, shape):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)

    return helper.make_graph(nodes, name, [info(*x) for x in inputs], [info(*x) for x in outputs])
