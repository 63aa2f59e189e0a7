"""Graphs. `Graph` is what a file says: nodes that refer to tensors by name, dimensions that may be
names. `Value` and `BoundNode` are what binding makes of it: every tensor with a dtype and a shape,
every node with its declaration.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from .declare.dtypes import NAME, bytes_for, pack, unpack
from .declare.symbolic import NeedsHost as NeedsHost
from .declare.symbolic import Sym
from .errors import EdgewiseError, ModelError, OutOfMemory

SMALL = 4096  # elements up to which a tensor's numbers are looked at in Python
KINDS = {
    **dict.fromkeys(
        ("perm", "axes", "starts", "ends", "split", "pads", "shape"), list
    ),  # of attributes without a default
    **dict.fromkeys(
        (
            "to",
            "k",
            "num_outputs",
            "K",
            "N",
            "block_size",
            "num_heads",
            "kv_num_heads",
            "q_num_heads",
        ),
        int,
    ),
    "scale": float,
    "min": float,
    "max": float,
}
BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    struct.error,
    TypeError,
    ValueError,
)  # what code meets in a graph that makes no sense


@dataclass
class Tensor:
    """A constant tensor: either a place in a Source, or (small ones) its bytes."""

    name: str
    dtype: int
    shape: tuple
    source: object = None
    offset: int = 0
    nbytes: int = 0
    data: bytes | None = None
    strings: list | None = None  # of dtype string

    @property
    def count(self):
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    def bytes(self):
        """Its bytes, little-endian, row-major, elements of less than a byte packed: read from the
        source each time. Raises ModelError where the file ends before.
        """
        return self.data if self.data is not None else self.source.read(self.offset, self.nbytes)

    def numbers(self):
        """Flat list of its elements; meant for small tensors."""
        return unpack(self.dtype, self.bytes(), self.count)

    @staticmethod
    def of(name, dtype, shape, values):
        """A Tensor of a flat list of numbers. dtype: ONNX code."""
        data = pack(dtype, values)
        return Tensor(name, dtype, tuple(shape), None, 0, len(data), data)


@dataclass
class Info:
    """Name, dtype code and shape of a graph input or output; a dimension is an int, a name, or None
    (unknown). shape None: unknown rank.
    """

    name: str
    dtype: int = 0
    shape: list | None = None
    kind: str = "tensor"
    elem: object = (
        None  # of a sequence or optional: the Info of what is in it; of a map: of its values
    )
    key_type: int = 0  # of a map


@dataclass
class Node:
    """A node of a file (NodeProto). inputs, outputs: names, "" where optional and absent; attrs:
    {name: int, float, str, Tensor, Graph, Info (a type), or a list of one kind}; domain "" is
    ai.onnx.
    """

    op: str
    inputs: list
    outputs: list
    attrs: dict = field(default_factory=dict)
    domain: str = ""
    name: str = ""
    module: str = ""  # name of the PyTorch module it belongs to, where the exporter says

    @property
    def where(self):
        """What errors call it: name and operator."""
        return (
            f"node '{self.name or self.outputs[0] if self.outputs else self.name}'"
            f" ({self.domain + '.' if self.domain else ''}{self.op})"
        )

    def subgraphs(self):
        """Graphs among its attributes: branches, bodies."""
        return [a for a in self.attrs.values() if isinstance(a, Graph)]


@dataclass
class Graph:
    """A model, a subgraph or a function's body.

    nodes: in an order that can be run. inputs, outputs: Infos. constants: {name: Tensor}
    (initializers). value_info: {name: Info} of what the file says of tensors between. opsets:
    {domain: version}; functions: {(domain, name): onnx.reader.Function}, metadata: {key: text},
    ir_version, producer: of a whole model. source: the Source it was read from, or None.
    """

    name: str = ""
    nodes: list = field(default_factory=list)
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    value_info: dict = field(default_factory=dict)
    opsets: dict = field(default_factory=dict)
    functions: dict = field(default_factory=dict)
    metadata: dict = field(default_factory=dict)
    ir_version: int = 0
    producer: str = ""
    source: object = None
    values: dict | None = None  # constants as Values, made on first binding (bind.py)
    ours: bool = False  # made here, not read from a file: nodes may be of the domain 'edgewise'

    def input_names(self):
        """Inputs a caller feeds: those that are not initializers (IR version 3 listed both)."""
        return [i for i in self.inputs if i.name not in self.constants]

    def every_node(self):
        """Its nodes and those of subgraphs in them, at any depth."""
        for n in self.nodes:
            yield n
            for g in n.subgraphs():
                yield from g.every_node()

    def needed(self, names):
        """(nodes, names): its nodes that these tensors depend on, in its order, and the names of
        all tensors that they read, those of subgraphs included, and these.
        """
        by_output = {o: n for n in self.nodes for o in n.outputs if o}
        kept, read, stack = set(), set(), list(names)
        while stack:
            name = stack.pop()
            read.add(name)
            n = by_output.get(name)
            if n is not None and id(n) not in kept:
                kept.add(id(n))
                stack += n.inputs
                for g in n.subgraphs():
                    stack += (
                        [o.name for o in g.outputs]
                        + [i for inner in g.every_node() for i in inner.inputs]
                        + [
                            o.name
                            for inner in g.every_node()
                            for sub in inner.subgraphs()
                            for o in sub.outputs
                        ]
                    )
        return [n for n in self.nodes if id(n) in kept], read


class Value:
    """A tensor of a bound graph. dtype: ONNX code; shape: ints and Syms.

    What is known of its numbers:
    `numbers` (flat list, small constants, may hold Syms) or `tensor` (a weight). `constant`: the
    same in every run.
    """

    __slots__ = ("name", "dtype", "shape", "_numbers", "tensor", "producer", "constant", "role")

    def __init__(
        self, name, dtype, shape, numbers=None, tensor=None, producer=None, constant=False, role=""
    ):
        self.name, self.dtype, self.shape = name, dtype, list(shape)
        self._numbers, self.tensor, self.producer = numbers, tensor, producer
        self.constant = (
            constant
            or tensor is not None
            or (numbers is not None and not any(isinstance(x, Sym) for x in numbers))
        )
        # "input", "cache", "state" (a parameter or what an optimizer keeps: written by runs), or ""
        self.role = role

    @property
    def fixed(self):
        """Whether nothing in a run computes it: constants, and parameters, which only the end of a
        training step changes.
        """
        return self.constant or self.role == "state"

    @property
    def numbers(self):
        """Flat list of its elements (ints, floats, Syms) where they are known and at most SMALL;
        else None. Setting it makes the value a constant, unless a Sym is among them.
        """
        if self._numbers is None and self.tensor is not None and self.tensor.count <= SMALL:
            self._numbers = self.tensor.numbers()
        return self._numbers

    @numbers.setter
    def numbers(self, numbers):
        self._numbers = numbers
        if numbers is not None and not any(isinstance(x, Sym) for x in numbers):
            self.constant = True

    @property
    def rank(self):
        """Number of dimensions."""
        return len(self.shape)

    def scalar(self):
        """Its one number, or None."""
        n = self.numbers
        return n[0] if n is not None and len(n) == 1 else None

    def __repr__(self):
        return f"<{self.name} {NAME.get(self.dtype, self.dtype)}{self.shape}>"


class BoundNode:
    """A node whose inputs and outputs are Values (None where optional and absent)."""

    __slots__ = ("op", "domain", "name", "inputs", "outputs", "attrs", "opset", "decl", "module")

    def __init__(self, op, domain, name, inputs, outputs, attrs, opset, decl, module=""):
        self.module = module
        (
            self.op,
            self.domain,
            self.name,
            self.inputs,
            self.outputs,
            self.attrs,
            self.opset,
            self.decl,
        ) = (op, domain, name, inputs, outputs, attrs, opset, decl)

    @property
    def where(self):
        """What errors call it: name and operator."""
        first = next((o.name for o in self.outputs if o is not None), "")
        return f"node '{self.name or first}' ({self.domain + '.' if self.domain else ''}{self.op})"

    def attr(self, name, default=None):
        """An attribute; ModelError where the file gives it another kind than its default (or,
        without one, its name) has.
        """
        value = self.attrs.get(name)
        if value is None:
            return default
        kind = type(default) if default is not None else KINDS.get(name)
        if (
            kind is not None
            and type(value) is not kind
            and not (kind is float and type(value) is int)
            or kind is list
            and any(type(x) is not int for x in value)
        ):
            raise ModelError(
                f"its attribute '{name}' is of the wrong kind ({type(value).__name__})",
                self.where,
                "The file is damaged or not valid ONNX; export it again.",
            )
        if name == "keepdims" and value not in (0, 1):
            raise ModelError(
                f"its attribute 'keepdims' is {value}",
                self.where,
                "It is 0 or 1; the file is damaged or not valid ONNX, export it again.",
            )
        return value

    def has(self, i):
        """Whether input i is there: an optional one may be absent."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i):
        """Value of input i, or None where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def wants(self, i):
        """Whether output i is named, so somebody may read it."""
        return i < len(self.outputs) and self.outputs[i] is not None

    def need(self, i):
        """Numbers of input i, which the shape of the output depends on; NeedsValue when only a run
        can tell.
        """
        v = self.inputs[i]
        n = v.numbers
        if n is None:
            raise NeedsValue(v)
        return n

    def broken(self, e):
        """The error for an exception that is none of ours and came up while this node was worked
        on: OutOfMemory, or ModelError.
        """
        if isinstance(e, EdgewiseError):
            return e
        if isinstance(e, MemoryError):
            return OutOfMemory(
                "it takes more memory than there is",
                self.where,
                "Use a smaller batch, sequence or model.",
            )
        return ModelError(
            f"its inputs or attributes are not what {self.op} takes ({type(e).__name__}:"
            f" {str(e)[:200]})",
            self.where,
            "Check the shapes that were fed; if they are right, export the model again.",
        )

    def __repr__(self):
        return f"{self.outputs} = {self.op}({self.inputs})"


class NeedsValue(Exception):
    """Binding needs the numbers of a tensor that only running the graph up to it can tell (If's
    condition, a shape from data). node: the Node of the graph that asks.
    """

    def __init__(self, value):
        super().__init__(value.name)
        self.value, self.node = value, None


def check_tensor_bytes(t, where):
    """Raises ModelError unless a tensor's bytes are as many as its shape and dtype say."""
    expected = bytes_for(t.dtype, t.count)
    if t.nbytes != expected:
        raise ModelError(
            f"initializer '{t.name}' has {t.nbytes} bytes, its shape {list(t.shape)} of"
            f" {NAME[t.dtype]} needs {expected}",
            where,
            "The file is damaged; export it again.",
        )
