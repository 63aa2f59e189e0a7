"""Declarations of operators: everything about an operator in one place.

    softmax = Op("Softmax")

    @softmax.infer
    def softmax_infer(node):  # (dtype, shape) of each output, or the Value that is the output
        return [like(node, 0)]

    @softmax.lower
    def softmax_lower(node, builder):  # emits calls of kernels
        ...

    @softmax.grad
    def softmax_grad(node, gradients, dy):  # the gradient of each input
        return [...]

An operator declares `infer` and `lower`, or only `decompose`, which expresses it by other
operators. `fold` computes small constants in Python (arithmetic on shapes). An operator of
sequences, strings or subgraphs, or with an output shape that depends on data, has a `host`
function, which the session runs between plans (session/driver.py).

What passes and training may do with an operator (add an epilogue, put an adapter beside its weight,
train its parameters) is given to `Op`.

Test cases are in the folder `cases` beside the module, which is not part of the wheel:

    @softmax.cases
    def softmax_cases(t):  # t: a Toolbox of tests/ops/harness.py
        yield t(t.f(2, 3, 5))  # a node Softmax on a random float32 [2, 3, 5], newest opset
        yield t(t.f(2, 3, 5), opset=11, axis=-2)  # attributes by name
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ...errors import ModelError, UnsupportedOp
from .dtypes import NAME
from .symbolic import NotStatic, Sym, most, product, strides_of

if TYPE_CHECKING:
    from ..ir import BoundNode, Value

Rule = TypeVar("Rule", bound=Callable[..., Any])
Dim = int | Sym
Shape = Sequence[Dim]

OPS: dict[tuple[str, str], Op] = {}  # by domain and name


class TooLong(ModelError):
    """The range of a register reaches beyond the end of a table.

    Attributes:
        excess: The number of rows that are missing.
    """

    def __init__(self, what: str, where: str, excess: int) -> None:
        super().__init__(what, where, "Use a smaller capacity.")
        self.excess = excess


@dataclass(frozen=True)
class Epilogue:
    """The operations that the kernel of a product can append; passes/epilogue.py moves nodes there.

    Attributes:
        bias, residual: The inputs for a bias and for a tensor of the output's shape, which are
            added. They exist in bound graphs only. The attribute `activation` is the function that
            is applied between both.
        factors: The inputs that are multiplied.
        any_rank: Whether factors may have less than two dimensions.
        bias_along_channels: Whether the bias is along the second dimension, as in convolutions:
            then the Add of a vector is not moved.
        fits: A further condition on a node.
    """

    bias: int
    residual: int
    factors: tuple[int, int] = (0, 1)
    any_rank: bool = False
    bias_along_channels: bool = False
    fits: Callable[[BoundNode], bool] | None = None


@dataclass(frozen=True)
class Weight:
    """The weight of an operator that is a layer.

    Attributes:
        input: Its input.
        kind: The kind of layer for LoRA: "linear", "conv" or "embedding"; "": no adapter is
            possible.
        quantized: Whether it is stored as integers, and so cannot be trained.
        by_rows: Whether each row of the output depends only on the same row of input 0, for all
            values of the attributes: then one position may be computed without the others.
    """

    input: int
    kind: str = ""
    quantized: bool = False
    by_rows: bool = False


class Op:
    """An operator, and the rules that are declared for it.

    Args:
        name: The name of the operator.
        domain: Its ONNX domain: "", "com.microsoft", "ai.onnx.ml", or "edgewise" for operators that
            exist in bound graphs only.
        half: Inputs that may stay float16 in memory; all others are converted to float32 first.
        moves: Whether it only moves elements, of any type; elements of less than a byte are moved
            as bytes.
        file_inputs: The number of inputs that it may have in files, where passes add more; None: it
            is not checked.
        epilogue: What passes may append to it.
        weight: The weight that makes it a layer.
        parameters: The inputs that hold trained parameters in exported models.
        jumps: Whether a plan may compute it by jumps (bind/jumps.py), although it has no rules for
            that.
    """

    def __init__(
        self,
        name: str,
        domain: str = "",
        half: Iterable[int] = (),
        moves: bool = False,
        *,
        file_inputs: int | None = None,
        epilogue: Epilogue | None = None,
        weight: Weight | None = None,
        parameters: tuple[int, ...] = (),
        jumps: bool = False,
    ) -> None:
        self.name, self.domain, self.half = name, domain, frozenset(half)
        self.moves, self.static = moves, False
        self.folds_without_numbers = False  # whether `fold` needs no known inputs
        self.file_inputs, self.epilogue, self.weight = file_inputs, epilogue, weight
        self.parameters, self.jumps = parameters, jumps
        self.infer_fn: Callable[..., Any] | None = None
        self.fold_fn: Callable[..., Any] | None = None
        self.lower_fn: Callable[..., Any] | None = None
        self.decompose_fn: Callable[..., Any] | None = None
        self.grad_fn: Callable[..., Any] | None = None
        self.cases_fn: Callable[..., Any] | None = None
        self.host_fn: Callable[..., Any] | None = None
        OPS[(domain, name)] = self

    def infer(self, rule: Rule) -> Rule:
        """Declares rule(node) -> [(dtype, shape) or Value of each output].

        The rule checks the node's inputs, and raises ModelError (`fail`) where they do not fit,
        UnsupportedOp (`unsupported`, `takes`) where they are valid but not implemented, NotStatic
        where a shape would depend on a register.
        """
        self.infer_fn = rule
        return rule

    def fold(self, rule: Rule) -> Rule:
        """Declares rule(node) -> [flat list of numbers of each output], or None.

        Called where all inputs are small constants; lists may hold Syms.
        """
        self.fold_fn = rule
        return rule

    def lower(self, rule: Rule) -> Rule:
        """Declares rule(node, builder), which emits the kernel calls that compute the node.

        builder: plan.builder.Builder.
        """
        self.lower_fn = rule
        return rule

    def decompose(self, rule: Rule) -> Rule:
        """Declares rule(node, graph) -> [Value of each output], in terms of nodes that graph adds.

        graph: bind.Binder. None instead of a list: this node is lowered as it is.
        """
        self.decompose_fn = rule
        return rule

    def grad(self, rule: Rule) -> Rule:
        """Declares rule(node, gradients, *dy) -> [gradient of each input].

        A gradient is a Value of the input's shape, or None (zero, or not differentiable). dy: the
        gradients of the outputs, None where none is needed. gradients: autodiff.Gradients, which
        adds nodes to the graph.
        """
        self.grad_fn = rule
        return rule

    def host(self, rule: Rule | None = None, *, static: bool = False) -> Any:
        """Declares rule(node, run, inputs) -> [outputs], which the session calls between plans.

        It is for values that are not tensors of numbers, and for shapes that depend on data. An
        operator that also has `infer` or `decompose` is run by it only where an input is not a
        tensor of numbers.

        Args:
            rule: Its arguments are the BoundNode; a session.driver.Host, where `run.op(name,
                *values, **attributes)` computes any operator and `run.body(graph)` is a function
                over the values of a subgraph; and the inputs, values of declare/values.py (None
                where absent). It may return None instead of outputs where it does not apply.
            static: Whether the rule uses only `run.op`, `run.constant` and `node.need`: then it
                also evaluates the node while a graph is bound, where the inputs are known.
        """
        if rule is None:
            return lambda rule: self.host(rule, static=static)
        self.host_fn, self.static = rule, static
        return rule

    @property
    def host_only(self) -> bool:
        """Whether no plan computes it."""
        return self.host_fn is not None and self.infer_fn is None and self.decompose_fn is None

    def cases(self, rule: Rule) -> Rule:
        """Declares rule(t), which yields t(input, ..., attribute=...): one test case each."""
        self.cases_fn = rule
        return rule


MS = "com.microsoft"


# ---- functions for rules


def like(node: BoundNode, i: int, dtype: int | None = None) -> tuple[int, list[Dim]]:
    """(dtype, shape) of input i, for `infer`; dtype: by default that of the input."""
    v = node.inputs[i]
    return (dtype or v.dtype, list(v.shape))


def fail(
    node: BoundNode,
    what: str,
    remedy: str = "Check the shapes that were fed; if they are right, export the model again.",
) -> NoReturn:
    """Raises ModelError: the node is not valid.

    Args:
        what: What is wrong with it.
        remedy: What the user can do.
    """
    raise ModelError(what, node.where, remedy)


def unsupported(
    node: BoundNode,
    what: str,
    remedy: str = (
        "Export the model with another opset or another exporter, or run it on a desktop runtime."
    ),
) -> NoReturn:
    """Raises UnsupportedOp: the node is valid, but not implemented."""
    raise UnsupportedOp(what, node.where, remedy)


def takes(node: BoundNode, types: Sequence[int], *indices: int) -> None:
    """Raises UnsupportedOp where one of these inputs is present and has another element type.

    Args:
        types: The ONNX codes of the types that are implemented.
        indices: The inputs to check.
    """
    for i in indices:
        v = node.input(i)
        if v is not None and v.dtype not in types:
            unsupported(
                node, f"its input {i} is {v}; {' or '.join(NAME[t] for t in types)} is expected"
            )


def one_type(node: BoundNode, i: int, zero: int) -> None:
    """Raises ModelError where the zero point, input `zero`, is present and has another element type
    than its tensor, input i.
    """
    if node.has(zero) and node.inputs[zero].dtype != node.inputs[i].dtype:
        fail(
            node,
            f"a zero point has the type of its tensor, but input {zero} is {node.inputs[zero]} and"
            f" input {i} is {node.inputs[i]}",
            "Check the element types that were fed; if they are right, quantize the model again.",
        )


def check_reach(node: BoundNode, index: Dim, rows: Dim) -> None:
    """Raises TooLong where a register may exceed the rows of a table, as a position does that of a
    position table in sequences that are too long.
    """
    if isinstance(index, Sym) and not isinstance(rows, Sym) and index.max >= rows:
        raise TooLong(
            f"position {index.max} exceeds a table of {rows} rows", node.where, index.max - rows + 1
        )


def axis_of(node: BoundNode, axis: int, rank: int, extra: int = 0) -> int:
    """The axis counted from 0, below rank + extra; negative ones count from `rank`.

    Raises:
        ModelError: there is no such axis.
    """
    if not -rank <= axis < rank + extra:
        fail(node, f"axis {axis} does not exist in a tensor of {rank} dimensions")
    return axis + rank if axis < 0 else axis


def broadcast(node: BoundNode, *shapes: Shape) -> list[Dim]:
    """The shape that these broadcast to, by NumPy's rules; Syms match only themselves and 1.

    Raises:
        ModelError: they do not broadcast together.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for i in range(-rank, 0):
        d: Dim = 1
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


def same_shape(shape: Shape, expected: Shape) -> bool:
    """Whether a tensor of this shape has the elements of one of the expected shape in the same
    places: the shapes are equal but for leading dimensions of 1. As many elements are not enough:
    [3, 1] is a column, [3] a row.
    """
    return without_ones(shape) == without_ones(expected)


def one_number(shape: Shape) -> bool:
    """Whether a tensor of this shape has one element."""
    return all(d == 1 for d in shape)


def stored_alike(shape: Shape, full: Shape) -> bool:
    """Whether a tensor of this shape is the full one with neighbouring dimensions merged, as files
    store blocks: [rows * blocks] or [rows, blocks], but not [blocks, rows].
    """
    edges = set(accumulate(full, mul))
    return product(shape) == product(full) and edges.issuperset(accumulate(shape, mul))


def without_ones(shape: Shape) -> list[Dim]:
    """A shape without its leading dimensions of 1."""
    first = next((i for i, d in enumerate(shape) if d != 1), len(shape))
    return list(shape[first:])


def broadcast_strides(shape: Shape, strides: Sequence[int], out_shape: Shape) -> list[int]:
    """Strides, in elements, that broadcast a tensor to out_shape."""
    pad = len(out_shape) - len(shape)
    return [0] * pad + [
        0 if d == 1 and o != 1 else s for d, s, o in zip(shape, strides, out_shape[pad:])
    ]


def indices(shape: Shape, strides: Sequence[int], offset: int = 0) -> list[int]:
    """Offsets, in elements, of all elements of a small strided tensor, in row-major order."""
    out = [offset]
    for d, s in zip(shape, strides):
        out = [o + i * s for o in out for i in range(d)]
    return out


def read_as(v: Value, out_shape: Shape) -> list[Any]:
    """The numbers of a small constant, broadcast to out_shape, as a flat list."""
    numbers = v.numbers
    assert numbers is not None
    if list(v.shape) == list(out_shape):
        return numbers
    count = product(out_shape)
    if len(numbers) == 1:
        return numbers * count
    return [
        numbers[i]
        for i in indices(out_shape, broadcast_strides(v.shape, strides_of(v.shape), out_shape))
    ]


def ints(node: BoundNode, i: int, default: Any = None) -> Any:
    """Input i, which must be known, as a list of ints (axes, shapes); default where absent."""
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
    "same_shape",
    "one_number",
    "stored_alike",
    "without_ones",
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
