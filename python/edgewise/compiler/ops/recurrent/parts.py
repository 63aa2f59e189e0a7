"""What LSTM, GRU and RNN have in common: the checks of their inputs, and the product of all steps
with W, which the operator Recurrent continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, INT32
from ...declare.op import Dim, fail, takes
from .activations import activation_table

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


@dataclass(frozen=True)
class _RecurrentSizes:
    """Of a recurrent layer.

    Attributes:
        gates: 4: LSTM, 3: GRU, 1: RNN.
        directions: 1 or 2.
        by_batch: whether tensors begin with the batch (ONNX's layout 1), not with the steps.
        separate_bias: whether the last gate's recurrent product has a bias of its own: GRU's
            linear_before_reset.
    """

    gates: int
    directions: int
    hidden: int
    by_batch: bool
    separate_bias: bool

    @property
    def columns(self) -> int:
        """Of the product of one direction."""
        return self.gates * self.hidden

    @property
    def state_inputs(self) -> tuple[int, int, int]:
        """The inputs initial_h, initial_c and the peepholes; 99 where there is none."""
        return (5, 6, 7) if self.gates == 4 else (5, 99, 99)


def _checked_sizes(
    node: BoundNode, gates: int, weight_types: Sequence[int], columns_last: bool
) -> _RecurrentSizes:
    """The sizes of a layer. Raises ModelError or UnsupportedOp where its inputs do not fit."""
    takes(node, (FLOAT,), 0, 3, 5, 6, 7)
    takes(node, weight_types, 1, 2)
    takes(node, (INT32,), 4)
    x, w, r = node.inputs[:3]
    direction, layout = node.attr("direction", "forward"), node.attr("layout", 0)
    if direction not in ("forward", "reverse", "bidirectional") or layout not in (0, 1):
        fail(node, f"its direction is {direction!r}, its layout {layout}")
    d, hidden = (
        2 if direction == "bidirectional" else 1,
        ((r.shape[1] if columns_last else r.shape[2]) if r.rank == 3 else 0),
    )

    def weights(rows: Dim) -> list[Dim]:
        return [d, rows, gates * hidden] if columns_last else [d, gates * hidden, rows]

    if (
        x.rank != 3
        or list(r.shape) != weights(hidden)
        or list(w.shape) != weights(x.shape[2])
        or node.attr("hidden_size", hidden) != hidden
        or not hidden
    ):
        fail(
            node,
            f"X {x}, W {w}, R {r} and a hidden size of {node.attr('hidden_size', hidden)} do"
            " not fit",
        )
    batch = x.shape[0] if layout else x.shape[1]
    separate_bias = gates == 3 and bool(node.attr("linear_before_reset", 0))
    sizes = _RecurrentSizes(gates, d, hidden, bool(layout), separate_bias)
    h_at, c_at, p_at = sizes.state_inputs
    for i, shape in (
        (3, [d, 2 * gates * hidden]),
        (4, [batch]),
        *((k, [batch, d, hidden] if layout else [d, batch, hidden]) for k in (h_at, c_at)),
        (p_at, [d, 3 * hidden]),
    ):
        if node.has(i) and list(node.inputs[i].shape) != shape:
            fail(node, f"its input {i} is {node.inputs[i]} instead of {shape}")
    return sizes


def _biases(
    node: BoundNode, graph: Binder, sizes: _RecurrentSizes
) -> tuple[Value | None, Value | None]:
    """(bias of the product with W [directions * columns], bias of the last gate's product with R
    [directions, hidden]). ONNX gives each product a bias; where nothing comes between the products,
    their sum is added to the first one.
    """
    if not node.has(3):
        return None, None
    d, hidden, columns = sizes.directions, sizes.hidden, sizes.columns

    def part(v: Value, start: int, end: int, axis: int = 1) -> Value:
        return graph.op("Slice", v, graph.ints([start]), graph.ints([end]), graph.ints([axis]))

    inner = None
    both = graph.op("Reshape", node.inputs[3], graph.ints([d, 2, columns]))
    summed = part(both, 0, 2 * hidden, 2) if sizes.separate_bias else both
    bias = graph.op("ReduceSum", summed, graph.ints([1]), keepdims=0)
    if sizes.separate_bias:
        last, inner = (
            graph.op(
                "Reshape",
                part(part(both, 2 * hidden, columns, 2), k, k + 1),
                graph.ints([d, hidden]),
            )
            for k in (0, 1)
        )
        bias = graph.op("Concat", bias, last, axis=1)
    return graph.op("Reshape", bias, graph.ints([d * columns])), inner


def recurrent_parts(
    node: BoundNode,
    graph: Binder,
    gates: int,
    weight_types: Sequence[int] = (FLOAT,),
    columns_last: bool = False,
    product: Callable[[Value, Value | None], Value] | None = None,
) -> tuple[list[Value | None], dict[str, Any]]:
    """The inputs and attributes of the operator Recurrent for a layer.

    Args:
        gates: 4: LSTM, 3: GRU, 1: RNN.
        weight_types: element types that W and R may have.
        columns_last: whether W and R are [directions, rows, gates * hidden], not [directions,
            gates * hidden, rows].
        product: (rows, bias or None) -> rows [steps * batch, width] times W, [steps * batch,
            directions * gates * hidden]; None: a product of floats.

    Returns:
        (products with W [steps, batch, directions * gates * hidden], R, bias of GRU's last gate,
        initial h, initial c, lengths, peepholes), and the attributes.
    """
    sizes = _checked_sizes(node, gates, weight_types, columns_last)
    x, w, r = node.inputs[:3]
    size = sizes.directions * sizes.columns
    bias, inner = _biases(node, graph, sizes)
    rows = graph.op("Reshape", x, graph.ints([x.shape[0] * x.shape[1], x.shape[2]]), allowzero=1)
    if product is not None:
        p = product(rows, bias)
    else:
        weights = graph.op("Reshape", w, graph.ints([size, x.shape[2]]), allowzero=1)
        p = graph.op("Gemm", rows, weights, *([bias] if bias is not None else []), transB=1)
    p = graph.op("Reshape", p, graph.ints([x.shape[0], x.shape[1], size]), allowzero=1)
    h_at, c_at, p_at = sizes.state_inputs
    first = [node.input(h_at), node.input(c_at)]
    if sizes.by_batch:
        p = graph.op("Transpose", p, perm=[1, 0, 2])
        first = [graph.op("Transpose", v, perm=[1, 0, 2]) if v is not None else None for v in first]
    attrs = {
        "gates": gates,
        "lbr": int(sizes.separate_bias),
        "reverse": int(node.attr("direction", "forward") == "reverse"),
        "coupled": int(bool(node.attr("input_forget", 0))) if gates == 4 else 0,
        "table": activation_table(node, gates, sizes.directions),
    }
    return [p, r, inner, *first, node.input(4), node.input(p_at)], attrs
