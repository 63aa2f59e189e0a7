"""Products of mixtures of experts: each slot is a row of the input and the expert whose weights
multiply it. A token that chose k experts is k slots.

These operators exist in bound graphs only. MoE and QMoE consist of them (contrib/moe.py), and so do
graphs in which exporters sort tokens by expert (compile/grouped.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, FLOAT16, INT32, INT64, UINT8
from ...declare.op import Dim, Op, fail, stored_alike, takes
from ...ir import Tensor

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )

# Inputs: A [rows, in]; B [experts, in, out], with transB [experts, out, in]; index [rows * each],
# the expert of each slot; bias [experts, out] or None. Slot s has row s / each.
expert_matmul = Op("ExpertMatMul", "edgewise", half=[1])


def _slots(node: BoundNode, index: int, *rows: tuple[int, str]) -> Dim:
    """The number of slots. rows: inputs with a row for as many slots as an attribute says."""
    takes(node, (INT32, INT64), index)
    slots = node.inputs[index]
    if slots.rank != 1:
        fail(node, f"its experts {slots} are not one number for each slot")
    for i, name in rows:
        v, each = node.inputs[i], node.attr(name, 1)
        if v.rank != 2 or v.shape[0] * each != slots.shape[0]:
            fail(node, f"{v} does not have a row for {each} of the slots {slots}")
    return slots.shape[0]


def _check_bias(node: BoundNode, experts: Dim, out: Dim) -> None:
    bias = node.inputs[-1]
    if bias is not None and (bias.dtype != FLOAT or list(bias.shape) != [experts, out]):
        fail(node, f"its bias is {bias}; {[experts, out]} is expected")


@expert_matmul.infer
def expert_matmul_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (FLOAT, FLOAT16), 1)
    a, w = node.inputs[:2]
    slots = _slots(node, 2, (0, "each"))
    turned = bool(node.attr("transB", 0))
    if w.rank != 3 or w.shape[2 if turned else 1] != a.shape[1]:
        fail(node, f"the experts' weights {w} do not fit {a}")
    out = w.shape[1 if turned else 2]
    if node.has(3):
        _check_bias(node, w.shape[0], out)
    return [(FLOAT, [slots, out])]


def _index(node: BoundNode, builder: Builder, i: int) -> View:
    return builder.contiguous(builder.view(node.inputs[i]))


def _rows(builder: Builder, v: Value) -> View:
    """A matrix whose rows have no gaps within."""
    view = builder.view(v)
    return builder.as_rows(view, view.shape[-1])


@expert_matmul.lower
def expert_matmul_lower(node: BoundNode, builder: Builder) -> None:
    a, w, index = _rows(builder, node.inputs[0]), builder.narrow(node.inputs[1]), node.inputs[2]
    if w.dtype not in (FLOAT, FLOAT16):
        w = builder.cast(w, FLOAT)
    if min(w.strides) < 0:
        w = builder.contiguous(w)
    row, column = (2, 1) if node.attr("transB", 0) else (1, 2)
    y = builder.out(node.outputs[0])
    builder.emit(
        "expert_gemm",
        {
            "a": a,
            "index": _index(node, builder, 2),
            "b": w,
            "bias": builder.contiguous(builder.view(node.inputs[3])) if node.has(3) else None,
            "y": y,
        },
        slots=y.shape[0],
        each=node.attr("each", 1),
        experts=w.shape[0],
        n=w.shape[column],
        k=w.shape[row],
        a_row=a.strides[0],
        b_expert=w.strides[0],
        b_row=w.strides[row],
        b_col=w.strides[column],
        b_type=w.dtype,
        b_normal=int(w.power is not None),
        index_type=index.dtype,
        alpha=2.0 ** -(w.power or 0),
    )


def _sum_of_slots(graph: Gradients, v: Value, each: int) -> Value:
    """The sum of the slots of each row."""
    if each == 1:
        return v
    slots, width = v.shape
    parts = graph.reshape(v, [slots // each, each, width])
    return graph.op("ReduceSum", parts, graph.ints([1]), keepdims=0)


def _bias_gradient(graph: Gradients, dy: Value, index: Value, bias: Value) -> Value:
    """The sum of dy over the slots of each expert."""
    one = Tensor.of("one", FLOAT, [1], [1.0])
    ones = graph.op("ConstantOfShape", graph.ints([dy.shape[0], 1]), value=one)
    shape = graph.ints([bias.shape[0]])
    sums = graph.op("ExpertOuter", dy, ones, index, shape, domain="edgewise")
    return graph.reshape(sums, bias.shape)


@expert_matmul.grad
def expert_matmul_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    (a, w, index), graph = node.inputs[:3], gradients
    each, turned = node.attr("each", 1), node.attr("transB", 0)
    da = dw = db = None
    if graph.wants(0):
        da = graph.op("ExpertMatMul", dy, w, index, domain="edgewise", transB=1 - turned)
        da = _sum_of_slots(graph, da, each)
    if graph.wants(1):
        count = graph.ints([w.shape[0]])
        dw = (
            graph.op("ExpertOuter", dy, a, index, count, domain="edgewise", b_each=each)
            if turned
            else graph.op("ExpertOuter", a, dy, index, count, domain="edgewise", a_each=each)
        )
    if node.has(3) and graph.wants(3):
        db = _bias_gradient(graph, dy, index, node.inputs[3])
    return [da, dw, None, db][: len(node.inputs)]


# Inputs: A [slots / a_each, n], B [slots / b_each, k], index [slots], the number of experts [1].
# Output [experts, n, k]: for each expert, the sum of the outer products of its slots' rows.
expert_outer = Op("ExpertOuter", "edgewise")


@expert_outer.infer
def expert_outer_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1)
    _slots(node, 2, (0, "a_each"), (1, "b_each"))
    a, b = node.inputs[:2]
    return [(FLOAT, [*node.need(3), a.shape[1], b.shape[1]])]


@expert_outer.lower
def expert_outer_lower(node: BoundNode, builder: Builder) -> None:
    a, b = (_rows(builder, v) for v in node.inputs[:2])
    y = builder.out(node.outputs[0])
    if node.inputs[2].shape[0] == 0:
        builder.fill(y, 0.0)
        return
    builder.emit(
        "expert_outer",
        {"a": a, "b": b, "index": _index(node, builder, 2), "y": y},
        slots=node.inputs[2].shape[0],
        a_each=node.attr("a_each", 1),
        b_each=node.attr("b_each", 1),
        experts=y.shape[0],
        n=y.shape[1],
        k=y.shape[2],
        a_row=a.strides[0],
        b_row=b.strides[0],
        index_type=node.inputs[2].dtype,
    )


@expert_outer.grad
def expert_outer_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    (a, b, index), graph = node.inputs[:3], gradients
    found: list[Value | None] = [None] * 4
    for i, other, name, turned in ((0, b, "b_each", 1), (1, a, "a_each", 0)):
        if graph.wants(i):
            each = node.attr(name, 1)
            v = graph.op(
                "ExpertMatMul", other, dy, index, domain="edgewise", transB=turned, each=each
            )
            mine = node.attr("a_each" if i == 0 else "b_each", 1)
            found[i] = _sum_of_slots(graph, v, mine)
    return found


# MatMulNBits of each slot's row with the weights of its expert. Inputs: A [rows, K]; B, scales and
# zero points (or None) of MatMulNBits, with a first dimension of experts; index [rows * each]; bias
# [experts, N] or None. transposed: A is [rows, N] and the output [slots, K], the product of the
# gradient.
expert_nbits = Op("ExpertMatMulNBits", "edgewise", half=[2, 3])


@expert_nbits.infer
def expert_nbits_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (UINT8,), 1)
    takes(node, (FLOAT, FLOAT16), 2)
    takes(node, (FLOAT, FLOAT16, UINT8), 3)
    a, w, scales, zeros = node.inputs[:4]
    k, cols, bits, block = (node.attr(name) for name in ("K", "N", "bits", "block_size"))
    width, out = (cols, k) if node.attr("transposed", 0) else (k, cols)
    slots = _slots(node, 4, (0, "each"))
    experts, blocks = w.shape[0], -(-k // block)
    stored = -(-blocks * bits // 8) if zeros is not None and zeros.dtype == UINT8 else blocks
    if (
        a.shape[1] != width
        or not stored_alike(w.shape, [experts, cols, blocks, block * bits // 8])
        or not stored_alike(scales.shape, [experts, cols, blocks])
        or zeros is not None
        and not stored_alike(zeros.shape, [experts, cols, stored])
    ):
        fail(
            node,
            f"{a}, and weights {w} with the scales {scales} and zero points {zeros}, are not those"
            f" of experts with K = {k} and N = {cols} in blocks of {block}",
        )
    if node.has(5):
        _check_bias(node, experts, out)
    return [(FLOAT, [slots, out])]


@expert_nbits.lower
def expert_nbits_lower(node: BoundNode, builder: Builder) -> None:
    a, y = _rows(builder, node.inputs[0]), builder.out(node.outputs[0])
    w, scales, zeros = (
        builder.contiguous(builder.view(v)) if v is not None else None for v in node.inputs[1:4]
    )
    assert w is not None and scales is not None
    builder.emit(
        "expert_nbits",
        {
            "a": a,
            "index": _index(node, builder, 4),
            "b": w,
            "scales": scales,
            "zeros": zeros,
            "bias": builder.contiguous(builder.view(node.inputs[5])) if node.has(5) else None,
            "y": y,
        },
        slots=y.shape[0],
        each=node.attr("each", 1),
        experts=w.shape[0],
        n=node.attr("N"),
        k=node.attr("K"),
        a_row=a.strides[0],
        bits=node.attr("bits"),
        block=node.attr("block_size"),
        scale_type=scales.dtype,
        zero_type=zeros.dtype if zeros is not None else UINT8,
        accuracy=node.attr("accuracy_level", 0),
        transposed=node.attr("transposed", 0),
        index_type=node.inputs[4].dtype,
    )


@expert_nbits.grad
def expert_nbits_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    """Gradients of A and of the bias; quantized weights, scales and zero points are not trained."""
    graph, index = gradients, node.inputs[4]
    da = db = None
    if graph.wants(0):
        attrs = {**node.attrs, "transposed": 1 - node.attr("transposed", 0), "each": 1}
        weights = node.inputs[1:4]
        da = graph.op("ExpertMatMulNBits", dy, *weights, index, domain="edgewise", **attrs)
        da = _sum_of_slots(graph, da, node.attr("each", 1))
    if node.has(5) and graph.wants(5):
        db = _bias_gradient(graph, dy, index, node.inputs[5])
    return [da, None, None, None, None, db][: len(node.inputs)]
