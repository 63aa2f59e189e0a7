"""Graphs before and after binding.

A `Graph` is what a file contains: nodes that refer to tensors by name, and dimensions that may be
names. Binding makes `Value`s and `BoundNode`s of it: every tensor has an element type and a shape,
every node has the declaration of its op.
"""

from __future__ import annotations

import builtins
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import EdgewiseError, ModelError, OutOfMemory
from ..model_metadata import ModelMetadata
from .declare.dtypes import NAME, pack, unpack
from .declare.needs import Growth as Growth
from .declare.needs import NeedsValue as NeedsValue
from .declare.symbolic import Sym

if TYPE_CHECKING:
    from .bind.graph import BoundGraph
    from .declare.op import Op
    from .onnx.reader import Function
    from .onnx.source import Source

SMALL = 4096  # elements up to which a tensor's numbers are read in Python
# Types of attributes that have no default.
KINDS: dict[str, type] = {
    **dict.fromkeys(("perm", "axes", "starts", "ends", "split", "pads", "shape"), list),
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
# What code raises for a graph that makes no sense.
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
)


@dataclass
class Tensor:
    """A constant tensor.

    Attributes:
        name: of the tensor.
        dtype: ONNX code.
        shape: dimensions.
        source, offset, nbytes: where its bytes are in a file.
        data: its bytes, where they are in no file.
        strings: its elements, where dtype is string.
        power: k where plans store it as float16 numbers of w * 2^k, which are exact; None: as it is
            (compile/half_weights.py).
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    source: Source | None = None
    offset: int = 0
    nbytes: int = 0
    data: builtins.bytes | None = None
    strings: list[Any] | None = None
    power: int | None = None

    @property
    def count(self) -> int:
        """Number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    def bytes(self) -> builtins.bytes:
        """Its bytes: little-endian, row-major, elements of less than a byte packed.

        They are read from the source each time.

        Raises:
            ModelError: the file is shorter.
        """
        if self.data is not None:
            return self.data
        assert self.source is not None
        return self.source.read(self.offset, self.nbytes)

    def numbers(self) -> list[Any]:
        """Flat list of its elements; for small tensors."""
        return unpack(self.dtype, self.bytes(), self.count)

    @staticmethod
    def of(name: str, dtype: int, shape: Sequence[int], values: Sequence[Any]) -> Tensor:
        """A Tensor of a flat list of numbers. dtype: ONNX code."""
        data = pack(dtype, values)
        return Tensor(name, dtype, tuple(shape), None, 0, len(data), data)


def content_of(tensor: Tensor) -> str:
    """Identifies the content of a constant of a model: where its bytes are, or what they are; 32
    hexadecimal digits.
    """
    if tensor.source is not None:
        where: object = tensor.source.location, tensor.offset
    else:
        where = hashlib.sha256(tensor.bytes()).digest()
    content = tensor.dtype, tensor.nbytes, tensor.power, where
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


@dataclass
class Info:
    """An input or output of a graph, as the file declares it.

    Attributes:
        name: of the tensor.
        dtype: ONNX code; 0: not declared.
        shape: each dimension an int, a name, or None (unknown); None: unknown rank.
        kind: "tensor", "sequence", "optional" or "map".
        elem: type of the items of a sequence or optional, or of a map's values.
        key_type: ONNX code of a map's keys.
        denotations: meaning of each dimension, such as "DATA_BATCH"; "": not said.
    """

    name: str
    dtype: int = 0
    shape: list[Any] | None = None
    kind: str = "tensor"
    elem: Info | None = None
    key_type: int = 0
    denotations: list[str] = field(default_factory=list)


OVERLOAD = ":"  # which no identifier contains


def overloaded(name: str, overload: str) -> str:
    """The name of a function, or of the operator of a node that calls it, with its overload."""
    return f"{name}{OVERLOAD}{overload}" if overload else name


@dataclass
class Node:
    """A node of a file (NodeProto).

    Attributes:
        op: name of the operator; of a function with overloads NAME:OVERLOAD (`overloaded`).
        inputs, outputs: names, "" where optional and absent.
        attrs: {name: int, float, str, Tensor, Graph, Info (a type), or a list of one kind}.
        domain: of the operator; "" is ai.onnx.
        name: of the node.
        module: name of the PyTorch module that it belongs to, where the exporter notes it.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    name: str = ""
    module: str = ""

    @property
    def where(self) -> str:
        """Its name and operator, for errors."""
        return f"node '{self.title}' ({self.domain + '.' if self.domain else ''}{self.op})"

    @property
    def title(self) -> str:
        """Its name, or that of its first output."""
        return self.name or next(filter(None, self.outputs), "")

    def subgraphs(self) -> list[Graph]:
        """Graphs among its attributes: branches and bodies."""
        return [a for a in self.attrs.values() if isinstance(a, Graph)]


@dataclass
class Graph:
    """A model, a subgraph or a function's body.

    Attributes:
        name: of the graph.
        nodes: in the order of the file.
        inputs, outputs: as declared.
        constants: {name: Tensor} of the initializers.
        value_info: {name: Info} that the file declares of inner tensors.
        opsets: {domain: version}, of a whole model.
        functions: {(domain, name): Function}, of a whole model.
        about: the metadata of a whole model.
        ir_version: of a whole model.
        source: the file that it was read from; None: no file.
        values: constants as Values, made on first binding (bind.constants).
        ours: whether it was made here instead of read from a file, so that nodes may be of the
            domain 'edgewise'.
    """

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Info] = field(default_factory=list)
    outputs: list[Info] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    value_info: dict[str, Info] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    functions: dict[tuple[str, str], Function] = field(default_factory=dict)
    about: ModelMetadata = field(default_factory=ModelMetadata)
    ir_version: int = 0
    source: Source | None = None
    values: dict[str, Value] | None = None
    ours: bool = False

    def input_names(self) -> list[Info]:
        """Inputs that a caller feeds; IR version 3 also lists initializers, which are left out."""
        return [i for i in self.inputs if i.name not in self.constants]

    def overridable(self) -> list[Info]:
        """Initializers that are inputs too: a caller may feed other values. Before IR version 4
        every initializer had to be listed as an input, and is a constant.
        """
        return [i for i in self.inputs if i.name in self.constants and self.ir_version >= 4]

    def every_node(self) -> Iterator[Node]:
        """Its nodes and those of their subgraphs, at any depth."""
        for n in self.nodes:
            yield n
            for g in n.subgraphs():
                yield from g.every_node()

    def needed(self, names: Iterable[str]) -> tuple[list[Node], set[str]]:
        """What tensors depend on.

        Args:
            names: of the tensors.

        Returns:
            (nodes that they depend on, in the graph's order; names of all tensors that these nodes
            and their subgraphs read, and of the tensors themselves)
        """
        by_output = {o: n for n in self.nodes for o in n.outputs if o}
        kept: set[int] = set()
        read: set[str] = set()
        stack = list(names)
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
    """A tensor of a bound graph.

    Attributes:
        name: of the tensor.
        dtype: ONNX code.
        shape: ints and Syms.
        tensor: its content, of a weight.
        producer: the node that computes it.
        constant: whether it is the same in every run.
        role: "input", "cache" (grows in memory with room for more), "kept" (of a fixed shape; each
            run of a sequence reads what the run before it wrote), "state" (a parameter or what an
            optimizer keeps: runs write it), or "".
        growth: what is known of its number, where that is not the number itself.
    """

    __slots__ = (
        "name",
        "dtype",
        "shape",
        "_numbers",
        "tensor",
        "producer",
        "constant",
        "role",
        "growth",
    )

    def __init__(
        self,
        name: str,
        dtype: int,
        shape: Sequence[Any],
        numbers: list[Any] | None = None,
        tensor: Tensor | None = None,
        producer: BoundNode | None = None,
        constant: bool = False,
        role: str = "",
    ) -> None:
        self.name, self.dtype = name, dtype
        self.shape: list[Any] = list(shape)
        self._numbers, self.tensor, self.producer = numbers, tensor, producer
        self.constant = (
            constant
            or tensor is not None
            or (numbers is not None and not any(isinstance(x, Sym) for x in numbers))
        )
        self.role = role
        self.growth: Growth | None = None

    @property
    def fixed(self) -> bool:
        """Whether no node computes it: a constant, or a state, which is written at the end of a
        step.
        """
        return self.constant or self.role == "state"

    @property
    def numbers(self) -> list[Any] | None:
        """Flat list of its elements (ints, floats, Syms), where they are known and at most SMALL.

        Setting it makes the value a constant, unless a Sym is among them.
        """
        if self._numbers is None and self.tensor is not None and self.tensor.count <= SMALL:
            self._numbers = self.tensor.numbers()
        return self._numbers

    @numbers.setter
    def numbers(self, numbers: list[Any] | None) -> None:
        self._numbers = numbers
        if numbers is not None and not any(isinstance(x, Sym) for x in numbers):
            self.constant = True

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def scalar(self) -> Any:
        """Its one number, or None."""
        n = self.numbers
        return n[0] if n is not None and len(n) == 1 else None

    def __repr__(self) -> str:
        return f"<{self.name} {NAME.get(self.dtype, self.dtype)}{self.shape}>"


@dataclass
class Body:
    """A subgraph that is part of a plan.

    Attributes:
        bound: the subgraph; its outputs are named by their positions.
        inputs: its Values that are given: its own inputs, then those for values around it.
    """

    bound: BoundGraph
    inputs: list[Value]

    @property
    def outputs(self) -> list[Value]:
        """Its outputs in order."""
        return list(self.bound.outputs.values())


@dataclass(frozen=True)
class Repetition:
    """How often a body runs, and what happens to its values.

    Its node has the inputs [limit, condition, carried values, scanned tensors, values around the
    body], of which the first two may be absent. The body has the inputs [counter, condition] if
    there is a counter, carried values, slices, values around it; and the outputs [condition] if
    there is a counter, carried values, slices of what is collected.

    Attributes:
        trips: maximum number of iterations.
        carried: number of values that an iteration passes on to the next one.
        counter: the body's Value for the number of the iteration; None: it has none.
        tested: whether the body's condition decides about another iteration.
        scans: (axis, whether the last slice is first) of each scanned tensor.
        stacks: the same of each output that slices are collected in.
    """

    trips: int | Sym
    carried: int
    counter: Value | None
    tested: bool
    scans: list[tuple[int, bool]]
    stacks: list[tuple[int, bool]]


class BoundNode:
    """A node of a bound graph.

    Attributes:
        op, domain: of the operator.
        name: of the node in the file, "" where it was added.
        inputs, outputs: Values, None where optional and absent.
        attrs: {name: value}.
        opset: version of the operator's domain.
        decl: declaration of the op; None while a call of a model-local function is bound.
        module: PyTorch module that it belongs to, where the exporter notes it.
        origin: the node of the file that it is, or was made for; None where there is none.
    """

    __slots__ = tuple("op domain name inputs outputs attrs opset decl module origin".split())

    def __init__(
        self,
        op: str,
        domain: str,
        name: str,
        inputs: list[Any],
        outputs: list[Any],
        attrs: dict[str, Any],
        opset: int,
        decl: Op | None,
        module: str = "",
        origin: Node | None = None,
    ) -> None:
        self.op, self.domain, self.name, self.origin = op, domain, name, origin
        self.inputs: list[Any] = inputs
        self.outputs: list[Any] = outputs
        self.attrs: Any = attrs  # {name: value}; rules know the types
        self.opset, self.module = opset, module
        self.decl: Any = decl

    @property
    def bodies(self) -> Sequence[Body]:
        """Its subgraphs, where they are part of the plan (bind/jumps.py)."""
        return self.attrs.get("bodies", ()) if self.domain == "edgewise" else ()

    @property
    def where(self) -> str:
        """Name and operator, for errors: of the node of the file, which users know."""
        if self.origin is not None:
            return self.origin.where
        return f"node '{self.title}' ({self.domain + '.' if self.domain else ''}{self.op})"

    @property
    def title(self) -> str:
        """Its name, or that of its first output; of a node that was added, of the file's node."""
        if self.name or self.origin is None:
            return self.name or next((o.name for o in self.outputs if o is not None), "")
        return self.origin.title

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute.

        Args:
            name: of the attribute.
            default: where the node does not have it.

        Raises:
            ModelError: its type is not that of the default, or without one that of its name
                (KINDS).
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

    def has(self, i: int) -> bool:
        """Whether input i is there: an optional one may be absent."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> Any:
        """Value of input i; None where it is absent. (Any: rules know which inputs are there.)"""
        return self.inputs[i] if i < len(self.inputs) else None

    def wants(self, i: int) -> bool:
        """Whether output i is named, so that it may be read."""
        return i < len(self.outputs) and self.outputs[i] is not None

    def need(self, i: int) -> list[Any]:
        """Numbers of input i, which the shape of the output depends on.

        Raises:
            NeedsValue: only a run can tell.
        """
        v = self.inputs[i]
        n = v.numbers
        if n is None:
            raise NeedsValue(v)
        return n

    def broken(self, e: Exception) -> EdgewiseError:
        """The error for an exception of another class that was raised for this node: OutOfMemory or
        ModelError.
        """
        if isinstance(e, EdgewiseError):
            return e
        if isinstance(e, MemoryError):
            return OutOfMemory(
                "out of memory", self.where, "Use a smaller batch, sequence or model."
            )
        return ModelError(
            f"its inputs or attributes are not valid for {self.op} ({type(e).__name__}:"
            f" {str(e)[:200]})",
            self.where,
            "Check the shapes that were fed; if they are right, export the model again.",
        )

    def __repr__(self) -> str:
        return f"{self.outputs} = {self.op}({self.inputs})"
