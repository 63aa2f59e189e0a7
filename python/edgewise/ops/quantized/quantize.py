"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, GatherBlockQuantized and the kernels
under them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BFLOAT16,
    E8M0,
    FLOAT,
    FLOAT16,
    INT4,
    INT8,
    INT32,
    INT64,
    MINIFLOATS,
    NAME,
    RANGE,
    UINT4,
    UINT8,
)
from ...declare.op import MS, Op, Weight, axis_of, fail, like, one_type, product, takes, unsupported

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

KERNEL_TYPES = (2, 3, 4, 5, INT32, UINT4, INT4)  # that the kernel dequantizes
QUANTIZED = {2, 3, 4, 5, UINT4, INT4, 25, 26, *MINIFLOATS} - {E8M0}

dynamic_quantize = Op("DynamicQuantizeLinear")


@dynamic_quantize.infer
def dynamic_quantize_infer(node: BoundNode) -> Inferred:
    if node.inputs[0].dtype != FLOAT:
        fail(node, f"it quantizes float32, not {node.inputs[0]}")
    if product(node.inputs[0].shape) == 0:
        fail(node, "it finds no range in an empty tensor")
    return [(UINT8, list(node.inputs[0].shape)), (FLOAT, []), (UINT8, [])]


@dynamic_quantize.lower
def dynamic_quantize_lower(node: BoundNode, builder: Builder) -> None:
    x, order = builder.dense(builder.view(node.inputs[0]))
    q, scale, zero = [*node.outputs, None, None][:3]
    y = builder.out_in_order(q, order) if q is not None else builder.temp(UINT8, x.shape)
    scale, zero = (
        builder.out(o) if o is not None else builder.temp(t, [])
        for o, t in ((scale, FLOAT), (zero, UINT8))
    )
    builder.emit(
        "dynamic_quantize", {"x": x, "y": y, "scale": scale, "zero": zero}, n=product(x.shape)
    )


def _layout(node: BoundNode):
    """(outer, axis, inner, block) of the scales."""
    x, scale = node.inputs[0], node.inputs[1]
    if (
        node.has(2)
        and list(node.inputs[2].shape) != list(scale.shape)
        and product(node.inputs[2].shape) != product(scale.shape)
    ):
        fail(node, f"zero point {node.inputs[2]} does not fit scale {scale}")
    block = node.attr("block_size", 0)
    if product(scale.shape) == 1 and not block:
        return 1, 1, product(x.shape), -1
    axis = axis_of(node, node.attr("axis", 1), x.rank)
    want = (
        [-(-d // block) if i == axis else d for i, d in enumerate(x.shape)]
        if block
        else [x.shape[axis]]
    )
    if list(scale.shape) != want:
        fail(node, f"scale {scale} does not fit {x}: {want} is wanted")
    return product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]), block


def _per_element(graph: Graph, node: BoundNode, v):
    """A scale or zero point of node n as what broadcasts to its input 0."""
    x, (outer, axis, inner, block) = node.inputs[0], _layout(node)

    def ints(values):
        return graph.constant(INT64, [len(values)], values)

    def reshape(v, shape):
        return (
            v if list(v.shape) == list(shape) else graph.op("Reshape", v, ints(shape), allowzero=1)
        )

    if block < 0:
        return reshape(v, [])
    at = axis_of(node, node.attr("axis", 1), x.rank)
    if not block:
        return reshape(v, [axis] + [1] * (x.rank - at - 1))
    blocks = -(-axis // block)
    v = graph.op(
        "Expand", reshape(v, [outer, blocks, 1, inner]), ints([outer, blocks, block, inner])
    )
    v = graph.op(
        "Slice", reshape(v, [outer, blocks * block, inner]), ints([0]), ints([axis]), ints([1])
    )
    return reshape(v, x.shape)


def _rounded(graph: Graph, v, dtype: int):
    """v, which is float32, as a half type would hold it."""
    return graph.op("Cast", graph.narrow(v, dtype), to=FLOAT) if dtype in (FLOAT16, BFLOAT16) else v


def _dense(builder: Builder, v, block):
    """A view without gaps and the order of its dimensions: with one scale for all any will do."""
    return builder.dense(v) if block < 0 else (builder.contiguous(v), list(range(len(v.shape))))


quantize = Op("QuantizeLinear")


def _quantized_type(node: BoundNode):
    dtype = node.inputs[2].dtype if node.has(2) else (node.attr("output_dtype", 0) or UINT8)
    if node.has(2) and node.attr("output_dtype", 0) not in (0, dtype):
        fail(
            node,
            f"its zero point is {node.inputs[2]}, its output_dtype"
            f" {NAME.get(node.attr('output_dtype', 0))}",
            "Quantize the model again.",
        )
    if dtype not in QUANTIZED:
        unsupported(node, f"quantizing to {NAME.get(dtype, dtype)}")
    return dtype


@quantize.decompose
def quantize_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """To types of less than a byte and to floats of 8 bits by the formula; to bytes and 16 bits
    there is a kernel. Half precision is divided in where `precision` says so.
    """
    x, scale, precision = node.inputs[0], node.inputs[1], node.attr("precision", 0)
    takes(node, (FLOAT, INT32), 0)
    takes(node, (FLOAT, INT32, E8M0), 1)
    dtype = _quantized_type(node)
    if precision not in (0, FLOAT, FLOAT16, BFLOAT16):
        fail(node, f"it divides in {NAME.get(precision, precision)}", "Quantize the model again.")
    if scale.dtype == FLOAT and dtype in (2, 3, 4, 5) and precision in (0, FLOAT):
        return None
    x, scale = (
        _rounded(graph, graph.op("Cast", v, to=FLOAT), precision)
        for v in (x, _per_element(graph, node, scale))
    )
    q = _rounded(graph, graph.op("Div", x, scale), precision)
    zero = (
        _per_element(graph, node, graph.op("Cast", node.inputs[2], to=FLOAT))
        if node.has(2) and node.inputs[2].numbers != [0] * product(node.inputs[2].shape)
        else None
    )
    if dtype not in RANGE:
        return [
            graph.op(
                "Cast",
                q if zero is None else graph.op("Add", q, zero),
                to=dtype,
                saturate=node.attr("saturate", 1),
            )
        ]
    q = graph.op("Round", q)
    low, high = (graph.constant(FLOAT, [], [float(v)]) for v in RANGE[dtype])
    return [
        graph.op(
            "Cast",
            graph.op("Clip", q if zero is None else graph.op("Add", q, zero), low, high),
            to=dtype,
        )
    ]


@quantize.infer
def quantize_infer(node: BoundNode) -> Inferred:
    _layout(node)
    return [(_quantized_type(node), list(node.inputs[0].shape))]


@quantize.lower
def quantize_lower(node: BoundNode, builder: Builder) -> None:
    outer, axis, inner, block = _layout(node)
    x, order = _dense(builder, builder.cast(builder.view(node.inputs[0]), FLOAT), block)
    y = builder.out_in_order(node.outputs[0], order)
    builder.emit(
        "quantize",
        {
            "x": x,
            "scale": builder.contiguous(builder.view(node.inputs[1])),
            "zero": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            "y": y,
        },
        type=y.dtype,
        outer=outer,
        axis=axis,
        inner=inner,
        block=block,
    )


dequantize = Op("DequantizeLinear", weight=Weight(0, quantized=True))


@dequantize.decompose
def dequantize_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Of floats, and of integers of two bits, by the formula; of other integers there is a
    kernel.
    """
    x, scale, zero = node.inputs[0], node.inputs[1], node.input(2)
    takes(node, (FLOAT, E8M0), 1)
    one_type(node, 0, 2)
    if x.dtype not in QUANTIZED and x.dtype != INT32:
        unsupported(node, f"dequantizing {x}")
    if node.attr("output_dtype", 0) not in (0, FLOAT, FLOAT16, BFLOAT16):
        fail(
            node,
            "its output_dtype is"
            f" {NAME.get(node.attr('output_dtype', 0), node.attr('output_dtype', 0))}",
            "float32 and the half types are what ONNX has.",
        )
    if scale.dtype == E8M0:
        return [
            graph.op("DequantizeLinear", x, graph.op("Cast", scale, to=FLOAT), zero, **node.attrs)
        ]
    if x.dtype in KERNEL_TYPES:
        return None
    v = graph.op("Cast", x, to=FLOAT)
    if zero is not None and zero.numbers != [0] * product(zero.shape):
        v = graph.op("Sub", v, _per_element(graph, node, graph.op("Cast", zero, to=FLOAT)))
    return [graph.op("Mul", v, _per_element(graph, node, scale))]


@dequantize.infer
def dequantize_infer(node: BoundNode) -> Inferred:
    _layout(node)
    return [(FLOAT, list(node.inputs[0].shape))]


@dequantize.lower
def dequantize_lower(node: BoundNode, builder: Builder) -> None:
    outer, axis, inner, block = _layout(node)
    x, order = _dense(builder, builder.view(node.inputs[0]), block)
    y = builder.out_in_order(node.outputs[0], order)
    builder.emit(
        "dequantize",
        {
            "x": x,
            "scale": builder.contiguous(builder.view(node.inputs[1])),
            "zero": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            "y": y,
        },
        type=x.dtype,
        bits={UINT4: 4, INT4: 4, UINT8: 8, INT8: 8, 4: 16, 5: 16, INT32: 32}[x.dtype],
        outer=outer,
        axis=axis,
        inner=inner,
        block=block,
    )


def _sum_to_scale(graph: Graph, node: BoundNode, d):
    """The gradient of a scale that _per_element repeated."""
    x, scale, (outer, axis, inner, block) = node.inputs[0], node.inputs[1], _layout(node)
    if block <= 0:
        shape = (
            []
            if block < 0
            else [axis] + [1] * (x.rank - axis_of(node, node.attr("axis", 1), x.rank) - 1)
        )
        return graph.reshape(graph.sum_to(d, shape), scale.shape)
    blocks = -(-axis // block)
    d = graph.op(
        "Pad",
        graph.reshape(d, [outer, axis, inner]),
        graph.ints([0, 0, 0, 0, blocks * block - axis, 0]),
    )
    return graph.reshape(
        graph.op(
            "ReduceSum",
            graph.reshape(d, [outer, blocks, block, inner]),
            graph.ints([2]),
            keepdims=0,
        ),
        scale.shape,
    )


def _off_zero(graph: Graph, node: BoundNode):
    """q - zero, in float32."""
    q = graph.op("Cast", node.inputs[0], to=FLOAT)
    return (
        graph.sub(q, _per_element(graph, node, graph.op("Cast", node.inputs[2], to=FLOAT)))
        if node.has(2)
        else q
    )


@dequantize.grad
def dequantize_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    return [
        None,
        (
            _sum_to_scale(gradients, node, gradients.mul(dy, _off_zero(gradients, node)))
            if gradients.wants(1)
            else None
        ),
    ]


# (q, scale, zero or None, x, x_scale or None, x_zero or None), made by passes/quantization.py of a
# DequantizeLinear whose q a QuantizeLinear (or, with attribute dynamic, a DynamicQuantizeLinear)
# made of x by x_scale and x_zero. Gradients go straight through the rounding to x where q is not at
# the end of its range, and to the scales as LSQ has it (Esser et al. 2020).
through = Op("QuantizeDequantize", "edgewise")
through.infer(dequantize.infer_fn)
through.lower(dequantize.lower_fn)


@through.grad
def through_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    x, dynamic, out = node.inputs[3], node.attr("dynamic", 0), [None] * len(node.inputs)
    if gradients.wants(1):
        out[1] = _sum_to_scale(gradients, node, gradients.mul(dy, _off_zero(gradients, node)))
    if dynamic:  # its range is that of x
        out[3] = dy
        return out
    low, high = RANGE[node.inputs[0].dtype]
    scale = _per_element(gradients, node, node.inputs[4])
    place = gradients.op("Round", gradients.div(x, scale))
    if node.has(5):
        place = gradients.add(
            place, _per_element(gradients, node, gradients.op("Cast", node.inputs[5], to=FLOAT))
        )
    inside = gradients.op(
        "Cast",
        gradients.op(
            "Equal",
            place,
            gradients.op("Clip", place, gradients.number(low), gradients.number(high)),
        ),
        to=FLOAT,
    )
    dx = gradients.mul(dy, inside)
    if node.inputs[1] is not node.inputs[4]:
        dx = gradients.mul(dx, gradients.div(_per_element(gradients, node, node.inputs[1]), scale))
    out[3] = dx
    if gradients.wants(4):
        out[4] = _sum_to_scale(
            gradients, node, gradients.neg(gradients.mul(dx, gradients.div(x, scale)))
        )
    return out


# (y, x): y, whose gradient goes to x
straight = Op("StraightThrough", "edgewise")


@straight.infer
def straight_infer(node: BoundNode) -> Inferred:
    return [like(node, 0)]


@straight.lower
def straight_lower(node: BoundNode, builder: Builder) -> None:
    builder.alias(node.outputs[0], builder.view(node.inputs[0]))


@straight.grad
def straight_grad(node: BoundNode, gradients: Gradients, dy: Value | None) -> InputGradients:
    return [None, dy]


fake_quant = Op("FakeQuant", MS)


@fake_quant.decompose
def fake_quant_decompose(node: BoundNode, builder: Binder) -> list[Value] | None:
    """(x, scale, zero_point in float): x rounded to the scale's steps; and whether each was within
    the range. Attributes quant_min 0, quant_max 255. As onnxruntime's training builds have it.
    """
    takes(node, (FLOAT,), 0, 1, 2)
    x, scale, zero = node.inputs[:3]
    low, high = (
        builder.constant(FLOAT, [], [float(node.attr(name, default))])
        for name, default in (("quant_min", 0), ("quant_max", 255))
    )
    place = builder.op("Add", builder.op("Div", x, scale), zero)
    rounded = builder.op(
        "StraightThrough",
        builder.op("Add", builder.op("Round", builder.op("Div", x, scale)), zero),
        place,
        domain="edgewise",
    )
    inside = builder.op(
        "And", builder.op("GreaterOrEqual", rounded, low), builder.op("LessOrEqual", rounded, high)
    )
    y = builder.op(
        "Mul",
        builder.op(
            "Sub",
            builder.op("Where", inside, rounded, builder.op("Clip", rounded, low, high)),
            zero,
        ),
        scale,
    )  # its ends belong to the range, also where gradients are concerned
    return [y, inside][: len(node.outputs)]


gather_quantized = Op(
    "GatherBlockQuantized", MS, half=[2], weight=Weight(0, "embedding", quantized=True)
)


def _packed(node: BoundNode):
    """(bits, columns): uint8 storage packs several weights to a byte, 4-bit types are one element
    each.
    """
    x = node.inputs[0]
    if x.dtype in (UINT4, INT4):
        return 4, x.shape[-1]
    bits = node.attr("bits", 4)
    return bits, x.shape[-1] * (8 // bits)


@gather_quantized.decompose
def gather_quantized_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Tables of more than two dimensions as rows: their blocks end where their last dimension
    does.
    """
    x, i, scale = node.inputs[:3]
    if (
        x.rank < 3
        or x.dtype not in (UINT4, INT4, UINT8)
        or axis_of(node, node.attr("gather_axis", 0), x.rank) != 0
        or axis_of(node, node.attr("quantize_axis", 1), x.rank) != x.rank - 1
    ):
        return None
    (bits, cols), block = _packed(node), node.attr("block_size", 128)
    if block < 16 or cols % block or node.has(3) and x.dtype == UINT8 and cols // block * bits % 8:
        return None
    tables = [
        (
            graph.op("Reshape", v, graph.constant(INT64, [2], [v.shape[0], product(v.shape[1:])]))
            if v is not None
            else None
        )
        for v in (x, scale, node.input(3))
    ]
    y = graph.op(
        "GatherBlockQuantized",
        tables[0],
        i,
        *tables[1:],
        domain=MS,
        **{**node.attrs, "quantize_axis": 1, "gather_axis": 0},
    )
    shape = [*i.shape, *x.shape[1:-1], cols]
    return [graph.reshape(y, shape)]


@gather_quantized.infer
def gather_quantized_infer(node: BoundNode) -> Inferred:
    x, i, scale = node.inputs[:3]
    rank = x.rank
    if (
        x.dtype not in (UINT4, INT4, UINT8)
        or rank != 2
        or axis_of(node, node.attr("gather_axis", 0), rank) != 0
        or axis_of(node, node.attr("quantize_axis", 1), rank) != 1
    ):
        unsupported(node, f"gathering from {x} with these axes")
    bits, cols = _packed(node)
    block = node.attr("block_size", 128)
    if (
        i.dtype not in (INT32, INT64)
        or block < 16
        or bits not in (2, 4, 8)
        or product(scale.shape) != x.shape[0] * -(-cols // block)
    ):
        fail(node, f"scales {scale} do not fit {x} in blocks of {block}")
    if cols * bits % 8:
        unsupported(node, f"rows of {cols} {bits}-bit weights, which do not end with a byte")
    if node.has(3):
        z, blocks = node.inputs[3], -(-cols // block)
        if z.dtype != x.dtype or product(z.shape) != x.shape[0] * (
            -(-blocks * bits // 8) if x.dtype == UINT8 else blocks
        ):
            fail(node, f"zero points {z} do not fit {x} in blocks of {block}")
    return [(FLOAT, list(i.shape) + [cols])]


@gather_quantized.lower
def gather_quantized_lower(node: BoundNode, builder: Builder) -> None:
    x, i, scale = node.inputs[:3]
    bits, cols = _packed(node)
    builder.emit(
        "gather_quantized",
        {
            "x": builder.contiguous(builder.view(x)),
            "index": builder.flat(builder.view(i)),
            "scales": builder.contiguous(builder.view(scale)),
            "zeros_": builder.contiguous(builder.view(node.inputs[3])) if node.has(3) else None,
            "y": builder.out(node.outputs[0]),
        },
        bits=bits,
        count=product(i.shape),
        rows=x.shape[0],
        cols=cols,
        block=node.attr("block_size", 128),
        index_type=i.dtype,
        scale_type=scale.dtype,
        signed=int(x.dtype == INT4),
        zeros=(1 if x.dtype == UINT8 else 2) if node.has(3) else -1 if x.dtype == UINT4 else 0,
    )
