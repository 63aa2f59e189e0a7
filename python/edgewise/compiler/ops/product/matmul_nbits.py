"""MatMulNBits and MatMulBnb4: products with weights quantized in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, FLOAT16, INT8, INT64, UINT8
from ...declare.op import MS, Epilogue, Op, Weight, fail, stored_alike, takes, unsupported
from ...declare.packing import packed, unpacked
from ...ir import Tensor
from .contracts import ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


nbits = Op(
    "MatMulNBits",
    MS,
    half=[2, 3],
    file_inputs=6,
    epilogue=Epilogue(bias=5, residual=6, any_rank=True),
    weight=Weight(1, "linear", quantized=True, by_rows=True),
    parameters=(5,),
)


@nbits.decompose
def nbits_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """The same node without g_idx, the group of each row of B: rows of B and columns of A are
    sorted by group. Quantizers that take weights in the order of their importance write g_idx.
    Weights of one bit become those of two.
    """
    if not node.has(4):
        return _of_two_bits(node, graph) if node.attr("bits", 4) == 1 else None
    k, cols, bits, block = (
        node.attr("K"),
        node.attr("N"),
        node.attr("bits", 4),
        node.attr("block_size"),
    )
    index = node.inputs[4].tensor.numbers() if node.inputs[4].tensor is not None else node.need(4)
    if index[:k] == [i // block for i in range(k)]:
        return None
    order = sorted(range(min(k, len(index))), key=lambda i: index[i])
    if bits not in (1, 2, 4, 8) or [index[i] for i in order] != [i // block for i in range(k)]:
        unsupported(
            node,
            f"a g_idx whose groups do not have {block} columns each",
            "Quantize without activation order.",
        )
    if (
        node.inputs[0].shape[-1:] != [k]
        or node.inputs[1].dtype != UINT8
        or not stored_alike(node.inputs[1].shape, [cols, -(-k // block), block * bits // 8])
    ):
        fail(node, f"{node.inputs[0]} and {node.inputs[1]} do not fit K = {k} and N = {cols}")
    wide = -(-k // block) * block
    rows = graph.op("Reshape", node.inputs[1], graph.constant(INT64, [2], [cols, wide * bits // 8]))
    w = packed(
        graph,
        graph.op(
            "Gather",
            unpacked(graph, rows, bits, wide),
            graph.constant(INT64, [wide], [*order, *range(k, wide)]),
            axis=1,
        ),
        bits,
    )
    a = graph.op("Gather", node.inputs[0], graph.constant(INT64, [k], order), axis=-1)
    return [
        graph.op(
            "MatMulNBits", a, w, *node.inputs[2:4], None, *node.inputs[5:6], domain=MS, **node.attrs
        )
    ]


def _of_two_bits(node: BoundNode, graph: Binder) -> list[Value]:
    """A product with weights of one bit, (q - zero) * scale where zero is 1 by default."""
    k, cols, block = (node.attr(name) for name in ("K", "N", "block_size"))
    blocks = -(-k // block)
    weights = node.inputs[1]
    if weights.dtype != UINT8 or not stored_alike(weights.shape, [cols, blocks, block // 8]):
        fail(node, f"B {weights} is not {cols} columns of {blocks} blocks of {block} 1-bit weights")
    rows = graph.reshape(weights, [cols, blocks * block // 8])
    wide = packed(graph, unpacked(graph, rows, 1, blocks * block), 2)
    zeros = node.input(3)
    if zeros is None:
        shape = graph.constant(INT64, [2], [cols, blocks])
        one = Tensor.of("one", FLOAT, [1], [1.0])
        zeros = graph.op("ConstantOfShape", shape, value=one)
    elif zeros.dtype == UINT8:
        if not stored_alike(zeros.shape, [cols, -(-blocks // 8)]):
            fail(node, f"zero points {zeros} do not fit {cols} columns of {blocks} blocks")
        bits = unpacked(graph, graph.reshape(zeros, [cols, -(-blocks // 8)]), 1, blocks)
        zeros = graph.op("Cast", bits, to=FLOAT)
    attrs = {**node.attrs, "bits": 2}
    wide = graph.reshape(wide, [cols, blocks, block // 4])
    inputs = [node.inputs[0], wide, node.inputs[2], zeros, None, *node.inputs[5:6]]
    return [graph.op("MatMulNBits", *inputs, domain=MS, **attrs)]


@nbits.infer
def nbits_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 5)
    takes(node, (UINT8,), 1)
    takes(node, (FLOAT, FLOAT16), 2)
    takes(node, (FLOAT, FLOAT16, UINT8), 3)
    a, w = node.inputs[:2]
    k, cols, bits, block = (
        node.attr("K"),
        node.attr("N"),
        node.attr("bits", 4),
        node.attr("block_size"),
    )
    if not a.rank or a.shape[-1] != k or a.dtype != FLOAT:
        fail(node, f"A {a} does not have K = {k} columns")
    if bits not in (2, 4, 8) or not block or block < 16 or block & (block - 1):
        unsupported(
            node,
            f"{bits} bits in blocks of {block}",
            "Quantize to 1, 2, 4 or 8 bits with a block size of 16 or more.",
        )
    blocks = -(-k // block)
    if not stored_alike(w.shape, [cols, blocks, block * bits // 8]):
        fail(node, f"B {w} is not {cols} columns of {blocks} blocks of {block} {bits}-bit weights")
    if not stored_alike(node.inputs[2].shape, [cols, blocks]):
        fail(node, f"its scales are {node.inputs[2]}; {[cols, blocks]} is expected")
    if (
        w.dtype not in (UINT8, INT8)
        or node.inputs[2].dtype not in (FLOAT, FLOAT16)
        or node.has(3)
        and node.inputs[3].dtype not in (UINT8, FLOAT, FLOAT16)
        or node.has(5)
        and (node.inputs[5].dtype != FLOAT or list(node.inputs[5].shape) != [cols])
    ):
        fail(
            node,
            f"its inputs {w}, {node.inputs[2]}, {node.input(3)}, {node.input(5)} are not of the"
            " types or shapes it takes",
        )
    if node.has(3):
        z = node.inputs[3]
        stored = -(-blocks * bits // 8) if z.dtype == UINT8 else blocks
        if not stored_alike(z.shape, [cols, stored]):
            fail(node, f"zero points {z} do not fit {cols} columns of {blocks} blocks")
    return [(FLOAT, a.shape[:-1] + [cols])]


def emit_nbits(
    node: BoundNode,
    builder: Builder,
    bits: int,
    block: int,
    cols: int,
    k: int,
    format: int = 0,
    accuracy: int = 0,
    zeros: View | None = None,
    bias: View | None = None,
    transposed: int = 0,
) -> None:
    """Adds a call of the kernel `matmul_nbits` on the node's inputs A, B and scales; the arguments
    are parameters and optional operands of the kernel.
    """
    a, y = (
        builder.as_rows(builder.view(node.inputs[0]), cols if transposed else k),
        builder.as_rows(builder.out(node.outputs[0]), k if transposed else cols),
    )
    w, scales = (builder.contiguous(builder.view(v)) for v in node.inputs[1:3])
    zeros = builder.contiguous(zeros) if zeros is not None else None
    residual = node.input(6)  # from passes/epilogue.py
    builder.emit(
        "matmul_nbits",
        {
            "a": a,
            "b": w,
            "scales": scales,
            "zeros": zeros,
            "bias": builder.contiguous(bias) if bias is not None else None,
            "residual": (
                builder.as_rows(builder.view_like(residual, node.outputs[0]), cols)
                if residual is not None
                else None
            ),
            "y": y,
        },
        m=y.shape[0],
        n=cols,
        k=k,
        bits=bits,
        block=block,
        format=format,
        scale_type=scales.dtype,
        zero_type=zeros.dtype if zeros is not None else UINT8,
        a_row=a.strides[0],
        y_row=y.strides[0],
        activation=ACTIVATION[node.attr("activation", "none")],
        accuracy=accuracy,
        transposed=transposed,
    )


# The gradient of A [..., K] of MatMulNBits (attribute format: 0) or MatMulBnb4 (1: fp4, 2: nf4),
# with its other attributes. Inputs: dy [..., N], B, scales, zero_points or None. The kernel
# dequantizes one block of weights at a time, as it packs them.
nbits_grad = Op("MatMulNBitsGrad", "edgewise", half=[2, 3])


@nbits_grad.infer
def nbits_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, node.inputs[0].shape[:-1] + [node.attr("K")])]


@nbits_grad.lower
def nbits_grad_lower(node: BoundNode, builder: Builder) -> None:
    emit_nbits(
        node,
        builder,
        node.attr("bits", 4),
        node.attr("block_size"),
        node.attr("N"),
        node.attr("K"),
        node.attr("format", 0),
        zeros=builder.view(node.inputs[3]) if node.has(3) else None,
        transposed=1,
    )


@nbits_grad.grad
def nbits_grad_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    if node.attr("format", 0):
        return [
            gradients.op(
                "MatMulBnb4",
                dy,
                *node.inputs[1:3],
                domain=MS,
                K=node.attr("K"),
                N=node.attr("N"),
                block_size=node.attr("block_size"),
                quant_type=node.attr("format", 0) - 1,
            )
        ]
    return [
        gradients.op(
            "MatMulNBits",
            dy,
            *node.inputs[1:],
            domain=MS,
            K=node.attr("K"),
            N=node.attr("N"),
            block_size=node.attr("block_size"),
            bits=node.attr("bits", 4),
        )
    ]


def _nbits_gradients(
    node: BoundNode, graph: Gradients, dy: Value, format: int = 0
) -> list[Value | None]:
    """Gradients of A and of the bias; quantized weights, scales and zero points are not trained."""
    zeros = node.inputs[3:4] if node.has(3) else []
    dx = (
        graph.op(
            "MatMulNBitsGrad",
            dy,
            *node.inputs[1:3],
            *zeros,
            domain="edgewise",
            K=node.attr("K"),
            N=node.attr("N"),
            block_size=node.attr("block_size"),
            bits=node.attr("bits", 4),
            format=format,
        )
        if graph.wants(0)
        else None
    )
    return [
        dx,
        None,
        None,
        None,
        None,
        graph.sum_to(dy, node.inputs[5].shape) if graph.wants(5) else None,
    ]


@nbits.lower
def nbits_lower(node: BoundNode, builder: Builder) -> None:
    emit_nbits(
        node,
        builder,
        node.attr("bits", 4),
        node.attr("block_size"),
        node.attr("N"),
        node.attr("K"),
        0,
        node.attr("accuracy_level", 0),
        builder.view(node.inputs[3]) if node.has(3) else None,
        builder.view(node.inputs[5]) if node.has(5) else None,
    )


@nbits.grad
def nbits_grad_rule(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return _nbits_gradients(node, gradients, dy)


bnb4 = Op(
    "MatMulBnb4",
    MS,
    half=[2],
    file_inputs=3,
    weight=Weight(1, "linear", quantized=True, by_rows=True),
)


@bnb4.infer
def bnb4_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (UINT8,), 1)
    takes(node, (FLOAT, FLOAT16), 2)
    a, k, cols, block = node.inputs[0], node.attr("K"), node.attr("N"), node.attr("block_size")
    if a.shape[-1] != k or not block or k % block:
        unsupported(
            node,
            f"blocks of {block} over rows of {k}",
            "Quantize with a block size that divides K.",
        )
    if (
        not stored_alike(node.inputs[1].shape, [cols, k // 2])
        or not stored_alike(node.inputs[2].shape, [cols, k // block])
        or node.attr("transB", 1) != 1
    ):
        fail(
            node,
            f"B {node.inputs[1]} and absmax {node.inputs[2]} do not hold {cols} x {k} weights in"
            f" blocks of {block}",
        )
    return [(FLOAT, a.shape[:-1] + [cols])]


@bnb4.lower
def bnb4_lower(node: BoundNode, builder: Builder) -> None:
    emit_nbits(
        node,
        builder,
        4,
        node.attr("block_size"),
        node.attr("N"),
        node.attr("K"),
        1 + node.attr("quant_type", 0),
    )


@bnb4.grad
def bnb4_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return _nbits_gradients(node, gradients, dy, 1 + node.attr("quant_type", 0))[:3]
