"""MatMul, Gemm, quantized-weight MatMuls and the kernels under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from ...declare.op import (
    MS,
    Epilogue,
    Op,
    Weight,
    broadcast,
    fail,
    most,
    product,
    takes,
    unsupported,
)
from ...declare.packing import packed, unpacked
from ...declare.symbolic import Sym
from ...errors import UnsupportedOp
from .contracts import ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Graph,
        Inferred,
        InputGradients,
        Value,
    )


def matmul_shape(node: BoundNode, a, b):
    if not a or not b:
        fail(node, "it wants tensors of at least one dimension")
    a2 = [1] + a if len(a) == 1 else a
    b2 = b + [1] if len(b) == 1 else b
    if a2[-1] != b2[-2]:
        fail(node, f"shapes {a} and {b} do not fit: {a2[-1]} columns meet {b2[-2]} rows")
    out = broadcast(node, a2[:-2], b2[:-2])
    return out + ([a2[-2]] if len(a) > 1 else []) + ([b2[-1]] if len(b) > 1 else [])


def emit_gemm(
    builder: Builder, a, w, y, bias=None, residual=None, alpha=1.0, beta=1.0, activation="none"
):
    """y = activation(alpha a @ w + beta bias) + residual. a [.., m, k], w [.., k, n], y [.., m, n]
    views with equal or broadcast batch dimensions.
    """
    if len(w.shape) == 2 or product(w.shape[:-2]) == 1:
        w = w.drop_leading(len(w.shape) - 2)
        if len(a.shape) > 2:  # one weight for all: batches are rows
            a, y = builder.as_rows(a, a.shape[-1]), builder.as_rows(y, y.shape[-1])
            residual = builder.as_rows(residual, y.shape[-1]) if residual is not None else None
    if not isinstance(a.shape[-1], Sym) and a.shape[-1] == 0:  # the sum of nothing
        a, w = (
            builder.scalar(FLOAT, 0.0).broadcast(s)
            for s in (a.shape[:-1] + [1], w.shape[:-2] + [1, w.shape[-1]])
        )
    batch = y.shape[:-2]
    a, w = (v.broadcast(batch + v.shape[-2:]) for v in (a, w))
    if min(a.strides) < 0 or (min(a.strides[-2:]) > 1 and a.shape[-1] != 1 and a.shape[-2] != 1):
        a = builder.contiguous(a)
    if min(w.strides) < 0 or (
        a.shape[-1] != 1 and a.strides[-1] == w.strides[-2] == 0
    ):  # the kernel wants its work to be bounded by memory
        w = builder.contiguous(w)
    dims, (sa, sw, sy) = builder.merge_dims(batch, [a.strides[:-2], w.strides[:-2], y.strides[:-2]])
    if (
        len(dims) > 2 and (isinstance(dims[0], Sym) or dims[0] > 64) and not (a.plain and w.plain)
    ):  # too many to unroll: laid out one behind the other, they are one loop
        return emit_gemm(
            builder,
            builder.contiguous(a),
            builder.contiguous(w),
            y,
            bias,
            residual,
            alpha,
            beta,
            activation,
        )
    if len(dims) > 2:  # more than two batch loops: unroll the outermost ones
        if isinstance(dims[0], Sym) or dims[0] > 4096:
            raise UnsupportedOp(
                f"a product over {len(dims)} batch dimensions {dims} that do not merge",
                builder.label.where if builder.label else "product",
                "Report this model.",
            )
        for i in range(dims[0]):
            part = [v.with_batch(dims[1:], s[1:], i * s[0]) for v, s in ((a, sa), (w, sw), (y, sy))]
            emit_gemm(
                builder,
                *part,
                bias=bias,
                residual=(
                    residual.with_batch(dims[1:], sy[1:], i * sy[0])
                    if residual is not None
                    else None
                ),
                alpha=alpha,
                beta=beta,
                activation=activation,
            )
        return
    pad = [0] * (2 - len(dims))
    dims, sa, sw, sy = [1] * len(pad) + dims, pad + sa, pad + sw, pad + sy
    bias_strides = [0, 0]
    if bias is not None:
        bias = bias.broadcast([y.shape[-2], y.shape[-1]])
        if min(bias.strides) < 0:
            bias = builder.contiguous(bias)
        bias_strides = bias.strides
    if w.dtype not in (FLOAT, FLOAT16, INT8, UINT8):
        w = builder.cast(w, FLOAT)
    builder.emit(
        "gemm",
        {"a": a, "b": w, "bias": bias, "residual": residual, "y": y},
        scratch=product_is_large(y.shape, w),
        batch0=dims[0],
        batch1=dims[1],
        m=y.shape[-2],
        n=y.shape[-1],
        k=a.shape[-1],
        a0=sa[0],
        a1=sa[1],
        a_row=a.strides[-2],
        a_col=a.strides[-1],
        b0=sw[0],
        b1=sw[1],
        b_row=w.strides[-2],
        b_col=w.strides[-1],
        y0=sy[0],
        y1=sy[1],
        y_row=y.strides[-2],
        bias_row=bias_strides[0],
        bias_col=bias_strides[1],
        b_type=w.dtype,
        activation=ACTIVATION[activation],
        alpha=alpha,
        beta=beta,
    )


def product_is_large(shape, w):
    """Whether a product of this shape wants scratch: to pack w, or, with one row, which is a stream
    over w, for sums of parts of large w's rows.
    """
    return (
        most(shape[-2]) > 1 or w.strides[-1] == 1 and most(w.shape[-2]) * most(w.shape[-1]) >= 65536
    )


def _lower_matmul(node: BoundNode, builder: Builder, a, w, alpha=1.0):
    y = builder.out(node.outputs[0])
    if len(a.shape) == 1:
        a, y = a.unsqueeze(0), y.unsqueeze(len(y.shape) - (1 if len(w.shape) > 1 else 0))
    if len(w.shape) == 1:
        w, y = w.unsqueeze(1), y.unsqueeze(len(y.shape))
    emit_gemm(
        builder,
        a,
        w,
        y,
        bias=builder.view(node.inputs[2]) if node.has(2) else None,
        residual=builder.view_like(node.inputs[3], y) if node.has(3) else None,
        alpha=alpha,
        activation=node.attr("activation", "none"),
    )


def gradient_product(graph: Graph, a, w, turn_a=False, turn_w=False, alpha=1.0):
    """alpha * a @ w, each seen with its last two dimensions exchanged where its turn says so: a
    view, not a copy.
    """
    if a.dtype != FLOAT:
        a, w = graph.swap(a) if turn_a else a, graph.swap(w) if turn_w else w
        y = graph.op("MatMul", a, w)
        return y if alpha == 1.0 else graph.mul(y, graph.constant(y.dtype, [], [alpha]))
    if turn_a or turn_w or alpha != 1.0:
        return graph.op(
            "FusedMatMul",
            a,
            w,
            domain=MS,
            transA=int(turn_a),
            transB=int(turn_w),
            alpha=float(alpha),
        )
    return graph.op("MatMul", a, w)


def product_gradients(node: BoundNode, graph: Graph, dy, turn_a=False, turn_w=False, alpha=1.0):
    """Gradients of a and w where y = alpha * a' @ w', a' and w' as in gradient_product, vectors and
    broadcast batches as in MatMul.

    Each is computed the way round in which it lies in memory. A weight that all batches share meets
    their rows in one product.
    """
    a, w = node.inputs[:2]
    vectors = a.rank == 1, w.rank == 1
    if any(vectors):
        lead = dy.shape[: dy.rank - 2 + sum(vectors)]
        dy = graph.reshape(
            dy, lead + [1 if vectors[0] else dy.shape[len(lead)], 1 if vectors[1] else dy.shape[-1]]
        )
        a, w = (
            graph.reshape(a, [1, *a.shape]) if vectors[0] else a,
            (graph.reshape(w, [*w.shape, 1]) if vectors[1] else w),
        )
    da = dw = None
    if graph.wants(0):
        da = (
            gradient_product(graph, w, dy, turn_w, True, alpha)
            if turn_a
            else gradient_product(graph, dy, w, False, not turn_w, alpha)
        )
        da = graph.sum_to(da, node.inputs[0].shape)
    if graph.wants(1):
        if product(w.shape[:-2]) == 1 and (a.rank > 2 or w.rank > 2):
            a, turn_a = graph.swap(a) if turn_a else a, False
            a, dy = (graph.reshape(v, [product(v.shape[:-1]), v.shape[-1]]) for v in (a, dy))
        dw = (
            gradient_product(graph, dy, a, True, turn_a, alpha)
            if turn_w
            else gradient_product(graph, a, dy, not turn_a, False, alpha)
        )
        dw = (
            graph.sum_to(dw, node.inputs[1].shape)
            if dw.rank > 2
            else graph.reshape(dw, node.inputs[1].shape)
        )
    return da, dw


# inputs 2 and 3 (bias, residual) and the attribute `activation` come from passes/epilogue.py
matmul = Op(
    "MatMul",
    half=[1],
    file_inputs=2,
    epilogue=Epilogue(bias=2, residual=3),
    weight=Weight(1, "linear", by_rows=True),
    parameters=(0, 1),
)


@matmul.decompose
def matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Of other types than float32 by a kernel of its own (product.py)."""
    return (
        [graph.op("Product", *node.inputs[:2], domain="edgewise")]
        if node.inputs[0].dtype in (DOUBLE, INT32, INT64)
        else None
    )


@matmul.infer
def matmul_infer(node: BoundNode) -> Inferred:
    a, w = node.inputs[:2]
    if a.dtype != w.dtype and w.dtype not in (FLOAT16, BFLOAT16):
        fail(node, f"{a} and {w} have different element types")
    if a.dtype != FLOAT:
        unsupported(node, f"a product of {a}")
    return [(a.dtype, matmul_shape(node, a.shape, w.shape))]


@matmul.lower
def matmul_lower(node: BoundNode, builder: Builder) -> None:
    _lower_matmul(node, builder, builder.view(node.inputs[0]), builder.view(node.inputs[1]))


@matmul.grad
def matmul_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    return product_gradients(node, gradients, dy)


fused_matmul = Op(
    "FusedMatMul",
    MS,
    half=[1],
    file_inputs=2,
    epilogue=Epilogue(bias=2, residual=3),
    weight=Weight(1, "linear"),
    parameters=(0, 1),
)


def _turned(v, node: BoundNode, name):
    return (
        v.transpose(list(range(len(v.shape) - 2)) + [len(v.shape) - 1, len(v.shape) - 2])
        if node.attr(name, 0)
        else v
    )


def _turned_shape(v, node: BoundNode, name):
    return v.shape[:-2] + [v.shape[-1], v.shape[-2]] if node.attr(name, 0) else v.shape


@fused_matmul.decompose
def fused_matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """transBatch: the first dimension is that of rows, or of what is summed over, and those of the
    batch come before the last.
    """
    turns = [node.attr(name, 0) for name in ("transBatchA", "transBatchB")]
    if not any(turns):
        return None
    inputs = [
        (
            graph.op("Transpose", v, perm=[*range(1, v.rank - 1), 0, v.rank - 1])
            if turn and v.rank > 2
            else v
        )
        for v, turn in zip(node.inputs, turns)
    ]
    return [
        graph.op(
            "FusedMatMul",
            *inputs,
            domain=MS,
            **{k: v for k, v in node.attrs.items() if not k.startswith("transBatch")},
        )
    ]


@fused_matmul.infer
def fused_matmul_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    takes(node, (FLOAT, FLOAT16, BFLOAT16), 1)
    a, w = node.inputs[:2]
    if a.dtype != FLOAT or w.dtype not in (FLOAT, FLOAT16, BFLOAT16):
        fail(node, f"it takes float tensors, not {a} and {w}")
    return [
        (
            a.dtype,
            matmul_shape(node, _turned_shape(a, node, "transA"), _turned_shape(w, node, "transB")),
        )
    ]


@fused_matmul.lower
def fused_matmul_lower(node: BoundNode, builder: Builder) -> None:
    _lower_matmul(
        node,
        builder,
        _turned(builder.view(node.inputs[0]), node, "transA"),
        _turned(builder.view(node.inputs[1]), node, "transB"),
        node.attr("alpha", 1.0),
    )


@fused_matmul.grad
def fused_matmul_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    return product_gradients(
        node,
        gradients,
        dy,
        bool(node.attr("transA", 0)) and node.inputs[0].rank > 1,
        bool(node.attr("transB", 0)) and node.inputs[1].rank > 1,
        node.attr("alpha", 1.0),
    )


transpose_matmul = Op("TransposeMatMul", MS, half=[1])  # an older name of FusedMatMul


@transpose_matmul.decompose
def transpose_matmul_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return [graph.op("FusedMatMul", *node.inputs, domain=MS, **node.attrs)]


gemm = Op(
    "Gemm",
    half=[1],
    file_inputs=3,
    epilogue=Epilogue(bias=2, residual=3),
    weight=Weight(1, "linear"),
    parameters=(0, 1, 2),
)


@gemm.decompose
def gemm_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Of other types than float32: the parts of the formula."""
    a, w, c = node.inputs[0], node.inputs[1], node.input(2)
    if a.dtype not in (DOUBLE, INT32, INT64):
        return None
    if a.rank != 2 or w.rank != 2 or any(v is not None and v.dtype != a.dtype for v in (w, c)):
        fail(node, f"it wants matrices of one type, not {a}, {w} and {c}")

    def times(v, factor):
        if factor == 1:
            return v
        if a.dtype != DOUBLE and factor != int(factor):
            unsupported(node, f"integers times {factor}")
        return graph.op(
            "Mul", v, graph.constant(a.dtype, [], [factor if a.dtype == DOUBLE else int(factor)])
        )

    a, w = (
        graph.op("Transpose", v, perm=[1, 0]) if node.attr(name, 0) else v
        for v, name in ((a, "transA"), (w, "transB"))
    )
    y = times(graph.op("MatMul", a, w), node.attr("alpha", 1.0))
    if c is not None and broadcast(node, c.shape, y.shape) != y.shape:
        fail(node, f"C {c} does not broadcast to {y.shape}")
    return [y if c is None else graph.op("Add", y, times(c, node.attr("beta", 1.0)))]


@gemm.infer
def gemm_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 2)
    takes(node, (FLOAT, FLOAT16, BFLOAT16), 1)
    a, w = node.inputs[:2]
    if a.rank != 2 or w.rank != 2 or a.dtype != FLOAT:
        fail(node, f"it wants two float matrices, not {a} and {w}")
    shape = matmul_shape(node, _turned_shape(a, node, "transA"), _turned_shape(w, node, "transB"))
    if node.has(2) and broadcast(node, node.inputs[2].shape, shape) != shape:
        fail(node, f"C {node.inputs[2]} does not broadcast to {shape}")
    if node.has(2) and node.inputs[2].dtype != a.dtype or w.dtype not in (FLOAT, FLOAT16, BFLOAT16):
        fail(node, f"{a}, {w} and {node.input(2)} have different element types")
    return [(a.dtype, shape)]


@gemm.lower
def gemm_lower(node: BoundNode, builder: Builder) -> None:
    emit_gemm(
        builder,
        _turned(builder.view(node.inputs[0]), node, "transA"),
        _turned(builder.view(node.inputs[1]), node, "transB"),
        builder.out(node.outputs[0]),
        bias=builder.view(node.inputs[2]) if node.has(2) else None,
        residual=builder.view_like(node.inputs[3], node.outputs[0]) if node.has(3) else None,
        alpha=node.attr("alpha", 1.0),
        beta=node.attr("beta", 1.0),
        activation=node.attr("activation", "none"),
    )


@gemm.grad
def gemm_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    dc = (
        gradients.scale(gradients.sum_to(dy, node.inputs[2].shape), node.attr("beta", 1.0))
        if gradients.wants(2)
        else None
    )
    return [
        *product_gradients(
            node,
            gradients,
            dy,
            bool(node.attr("transA", 0)),
            bool(node.attr("transB", 0)),
            node.attr("alpha", 1.0),
        ),
        dc,
    ]


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
    """Where weights were quantized in the order of their importance (g_idx says which group each of
    them is of): the same with its columns, and those of A, sorted by group.
    """
    if not node.has(4):
        return None
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
    if bits not in (2, 4, 8) or [index[i] for i in order] != [i // block for i in range(k)]:
        unsupported(
            node,
            f"a g_idx whose groups do not have {block} columns each",
            "Quantize without activation order.",
        )
    if (
        node.inputs[0].shape[-1:] != [k]
        or node.inputs[1].dtype != UINT8
        or product(node.inputs[1].shape) != cols * -(-k // block) * (block * bits // 8)
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
            "Quantize to 2, 4 or 8 bits with a block size of 16 or more.",
        )
    blocks = -(-k // block)
    if product(w.shape) != cols * blocks * (block * bits // 8):
        fail(node, f"B {w} is not {cols} columns of {blocks} blocks of {block} {bits}-bit weights")
    if product(node.inputs[2].shape) != cols * blocks:
        fail(node, f"scales {node.inputs[2]}: {cols * blocks} are wanted")
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
        if product(z.shape) != (
            cols * (-(-blocks * bits // 8)) if z.dtype == UINT8 else cols * blocks
        ):
            fail(node, f"zero points {z} do not fit {cols} columns of {blocks} blocks")
    return [(FLOAT, a.shape[:-1] + [cols])]


def emit_nbits(
    node: BoundNode,
    builder: Builder,
    bits,
    block,
    cols,
    k,
    format=0,
    accuracy=0,
    zeros=None,
    bias=None,
    transposed=0,
):
    a, y = (
        builder.as_rows(builder.view(node.inputs[0]), cols if transposed else k),
        builder.as_rows(builder.out(node.outputs[0]), k if transposed else cols),
    )
    w, scales, zeros = (
        builder.contiguous(v) if v is not None else None
        for v in (builder.view(node.inputs[1]), builder.view(node.inputs[2]), zeros)
    )
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


# (dy [.., N], B, scales, zero_points or None) of MatMulNBits (format 0) or MatMulBnb4 (1 fp4, 2
# nf4), and its attributes: the gradient of A [.., K]. Weights become float32 as they are packed, a
# block at a time.
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
def nbits_grad_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
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


def _nbits_gradients(node: BoundNode, graph: Graph, dy, format=0):
    """Of the activations and the bias; quantized weights, their scales and zero points stay as they
    are.
    """
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
def nbits_grad_rule(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
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
        product(node.inputs[1].shape) != cols * k // 2
        or product(node.inputs[2].shape) != cols * k // block
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
def bnb4_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    return _nbits_gradients(node, gradients, dy, 1 + node.attr("quant_type", 0))[:3]
