"""Rewrites `x[mask]` and `y[mask] = rows` of exported graphs so that no shape depends on the mask.

torch.onnx exports both with NonZero: the rows where the mask is true are gathered, computed and
scattered. Here all rows are computed, those where the mask is false from zeros, and the results are
chosen by the mask. That is the same where rows do not depend on each other, which is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..declare.dtypes import BOOL, FLOAT, INT64, pack
from ..ir import Graph, Node, Tensor

# Operators of which each row of the result depends on the same row of the inputs, if the axis that
# some of them have is not the first.
ROWWISE = frozenset(
    "Abs Add And Cast Ceil Clip Concat ConstantOfShape CumSum Div Equal Erf Exp Expand Floor Gather"
    " GatherElements Greater GreaterOrEqual Identity Less LessOrEqual Log Max Min Mul Neg Not Or"
    " Pad Pow Range ReduceSum Relu Reshape ScatterND Shape Sigmoid Slice Softmax Softplus Sqrt"
    " Squeeze Sub Tanh Transpose Unsqueeze Where".split()
)
# Of these, those that mix elements along their last axis: their rows need two dimensions.
MIXING = frozenset(["CumSum", "ReduceSum", "Softmax"])
END = (1 << 63) - 1


@dataclass
class Selections:
    """What selects rows in a graph.

    Attributes:
        masks: {name of the indices of rows: name of the mask that they are of}.
        rows: names of tensors that must have two dimensions for rows to be independent.
    """

    masks: dict[str, str] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)


def without_selection(graph: Graph) -> tuple[Graph, list[str]]:
    """Computes each selection by a mask for all rows.

    Returns:
        (the graph, which is the given one where it has no selection, or where rows may depend on
        each other; names of tensors: only if all have two dimensions or more are rows independent)
    """
    found = _selections(graph)
    if not found.masks or not _find_rows(graph, found):
        return graph, []
    writer = _Writer()
    for node in graph.nodes:
        mask = found.masks.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if node.op == "NonZero" and node.inputs[0] in found.masks.values():
            writer.indices(node)
        elif node.op == "GatherND" and mask is not None:
            writer.gather(node, mask)
        elif node.op == "ScatterND" and mask is not None:
            writer.scatter(node, mask)
        else:
            writer.nodes.append(node)
    constants = {**graph.constants, **writer.constants}
    return replace(graph, nodes=writer.nodes, constants=constants, values=None), found.rows


def with_all_selected(graph: Graph, name: str) -> Graph:
    """Takes masks that depend on an input for true everywhere.

    Encoders of pictures leave out pictures of zeros, which fill up a batch: there are none where
    pictures are encoded one by one.

    Args:
        graph: the encoder.
        name: of the input.
    """
    found, follows = _selections(graph), {name}
    for node in graph.nodes:
        if not follows.isdisjoint(node.inputs):
            follows.update(node.outputs)
    masks = {i: mask for i, mask in found.masks.items() if mask in follows}
    if not masks:
        return graph
    writer = _Writer()
    for node in graph.nodes:
        mask = masks.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if node.op == "NonZero" and node.inputs[0] in masks.values():
            writer.indices(node)
        elif node.op == "GatherND" and mask is not None:
            writer.all_rows(node, mask)
        elif node.op == "ScatterND" and mask is not None:
            x, rows = node.inputs[0], node.inputs[2]
            writer.nodes.append(Node("Shape", [x], [f"{x}/sizes"], name=f"{x}/sizes"))
            writer.nodes.append(Node("Reshape", [rows, f"{x}/sizes"], node.outputs))
        else:
            writer.nodes.append(node)
    constants = {**graph.constants, **writer.constants}
    return replace(graph, nodes=writer.nodes, constants=constants, values=None)


def _readers(graph: Graph) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return readers


def _selections(graph: Graph) -> Selections:
    """The masks whose indices are only used to select rows, or for their number."""
    readers, found = _readers(graph), Selections()
    outputs = {o.name for o in graph.outputs}
    for node in graph.nodes:
        if node.op != "NonZero" or node.domain or node.outputs[0] in outputs:
            continue
        turned = readers.get(node.outputs[0], [])
        if len(turned) != 1 or turned[0].op != "Transpose":
            continue
        indices = turned[0].outputs[0]
        if all(_is_selection(n, indices) for n in readers.get(indices, [])):
            found.masks[indices] = node.inputs[0]
    return found


def _is_selection(node: Node, indices: str) -> bool:
    if node.op == "Shape":
        return True
    whole = node.op == "GatherND" and not node.attrs.get("batch_dims", 0)
    whole = whole or (node.op == "ScatterND" and node.attrs.get("reduction", "none") == "none")
    return whole and node.inputs[1] == indices and indices not in (node.inputs[0], *node.inputs[2:])


def _find_rows(graph: Graph, found: Selections) -> bool:
    """Whether selected rows only take part in operators that keep them apart. Adds `rows`."""
    readers = _readers(graph)
    constants = {n.outputs[0]: n.attrs.get("value") for n in graph.nodes if n.op == "Constant"}

    def numbers(name: str) -> Sequence[int] | None:
        tensor = graph.constants.get(name) or constants.get(name)
        return list(tensor.numbers()) if isinstance(tensor, Tensor) else None

    stack = [n.outputs[0] for n in graph.nodes if n.op == "GatherND" and n.inputs[1] in found.masks]
    seen = set(stack)
    while stack:
        name = stack.pop()
        for node in readers.get(name, []):
            if node.op == "ScatterND" and node.inputs[1] in found.masks:
                continue
            if node.op not in ROWWISE or node.domain or not _keeps_rows(node, numbers):
                return False
            if node.op in MIXING:
                found.rows.append(node.inputs[0])
            if node.op != "Shape":  # the number of rows may be used as a size
                stack += [o for o in node.outputs if o not in seen]
                seen.update(node.outputs)
    return True


def _keeps_rows(node: Node, numbers: Callable[[str], Sequence[int] | None]) -> bool:
    """Whether the axis of an operator is not that of the rows."""
    if node.op == "Transpose":
        perm = node.attrs.get("perm")
        return isinstance(perm, list) and perm[:1] == [0]
    if node.op in ("Softmax", "Concat", "Gather", "GatherElements"):
        default = -1 if node.op == "Softmax" else 0
        return node.attrs.get("axis", default) != 0
    if node.op in ("CumSum", "ReduceSum"):
        axes = node.attrs.get("axes")
        if axes is None and len(node.inputs) > 1:
            axes = numbers(node.inputs[1])
        return axes is not None and [*axes] in ([-1], [1])
    return True


class _Writer:
    """Writes the nodes that stand for a selection.

    Attributes:
        nodes, constants: of the new graph.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Tensor] = {}

    def _op(self, op: str, *inputs: str, output: str | None = None, **attrs: object) -> str:
        name = output or f"selection/{len(self.nodes)}"
        self.nodes.append(Node(op, list(inputs), [name], dict(attrs), name=name))
        return name

    def _ints(self, *numbers: int) -> str:
        name = f"selection/{','.join(map(str, numbers))}"
        data = pack(INT64, list(numbers))
        shape = (len(numbers),)
        self.constants[name] = Tensor(name, INT64, shape, data=data, nbytes=len(data))
        return name

    def _number(self, dtype: int, value: int) -> Tensor:
        data = pack(dtype, [value])
        return Tensor("", dtype, (1,), data=data, nbytes=len(data))

    def _sizes(self, mask: str, x: str) -> tuple[str, str]:
        """(the mask as bool, with dimensions of 1 for those of x that it lacks; their sizes)"""
        shape = self._op("Shape", mask)
        rest = self._op("Slice", self._op("Shape", x), self._op("Shape", shape), self._ints(END))
        ones = self._op("ConstantOfShape", self._op("Shape", rest), value=self._number(INT64, 1))
        wide = self._op("Concat", shape, ones, axis=0)
        return self._op("Reshape", self._op("Cast", mask, to=BOOL), wide), rest

    def indices(self, node: Node) -> None:
        """Only the size of the indices is used: [dimensions of the mask, its elements]."""
        shape = self._op("Shape", node.inputs[0])
        count = self._op("ReduceProd", shape, keepdims=1)
        size = self._op("Concat", self._op("Shape", shape), count, axis=0)
        zero = self._number(INT64, 0)
        self._op("ConstantOfShape", size, output=node.outputs[0], value=zero)

    def gather(self, node: Node, mask: str) -> None:
        """All rows of x [mask's dimensions, ...], zeros where the mask is false."""
        x = node.inputs[0]
        chosen, rest = self._sizes(mask, x)
        zero = self._op("ConstantOfShape", self._ints(1), value=self._number(FLOAT, 0))
        zero = self._op("CastLike", zero, x)
        rows = self._op("Where", chosen, x, zero)
        size = self._op("Concat", self._ints(-1), rest, axis=0)
        self._op("Reshape", rows, size, output=node.outputs[0])

    def all_rows(self, node: Node, mask: str) -> None:
        """All rows of x [mask's dimensions, ...]."""
        x = node.inputs[0]
        shape = self._op("Shape", self._op("Shape", mask))
        rest = self._op("Slice", self._op("Shape", x), shape, self._ints(END))
        size = self._op("Concat", self._ints(-1), rest, axis=0)
        self._op("Reshape", x, size, output=node.outputs[0])

    def scatter(self, node: Node, mask: str) -> None:
        """The rows where the mask is true, x elsewhere."""
        x = node.inputs[0]
        chosen, _ = self._sizes(mask, x)
        rows = self._op("Reshape", node.inputs[2], self._op("Shape", x))
        self._op("Where", chosen, rows, x, output=node.outputs[0])


def dependent_rows(names: Sequence[str], ranks: Mapping[str, int]) -> bool:
    """Whether one of these tensors has a single dimension, so that rows depend on each other."""
    return any(ranks.get(name, 2) < 2 for name in names)
