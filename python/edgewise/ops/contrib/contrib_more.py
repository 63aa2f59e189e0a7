"""Operators of com.microsoft that are ONNX's under another name or a few of them: older spellings,
channels last, and what newer exporters fuse around linear attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import MS, Op, axis_of, fail, product, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Graph


def _cut(graph: Graph, v, axis, start, end, step=1):
    return graph.op("Slice", v, *(graph.ints([i]) for i in (start, end, axis, step)))


# ---- older names ----
def _alias(name, make, cases):
    """com.microsoft's `name`: make(n, g) gives the node's outputs."""
    o = Op(name, MS)
    o.decompose(make)
    o.cases(cases)


def _expand_dims(node: BoundNode, graph: Graph):
    if product(node.inputs[1].shape) != 1:
        fail(node, f"its axis is {node.inputs[1]}; one number is wanted")
    return [graph.op("Unsqueeze", node.inputs[0], graph.ints([node.need(1)[0]]))]


_alias(
    "ExpandDims",
    _expand_dims,
    lambda t: (t(t.f(2, 3), t.const(t.of("int32", axis))) for axis in (0, 1, -1, 2)),
)
_alias(
    "Trilu",
    lambda n, g: [g.op("Trilu", *n.inputs, upper=n.attr("upper", 1))],
    lambda t: (
        t(t.f(2, 3, 4), t.const(t.of("int64", k)), upper=upper)
        for k in (-1, 0, 1)
        for upper in (0, 1)
    ),
)
_alias(
    "GatherND",
    lambda n, g: [g.op("GatherND", n.inputs[0], g.op("Cast", n.inputs[1], to=INT64))],
    lambda t: (t(t.f(3, 4, 5), t.n(kind, 2, 2, low=0, high=2)) for kind in ("int32", "int64")),
)


def _range(node: BoundNode, graph: Graph):
    start, limit, *delta = node.inputs
    delta = delta[0] if delta else graph.constant(start.dtype, [], [1])
    return [graph.op("Range", *(graph.reshape(v, []) for v in (start, limit, delta)))]


_alias(
    "Range",
    _range,
    lambda t: [
        t(t.const(t.of("float32", 1)), t.const(t.of("float32", 7)), t.const(t.of("float32", 2))),
        t(t.const(t.of("int64", [1])), t.const(t.of("int64", [7]))),
        t(t.const(t.of("int32", 9)), t.const(t.of("int32", 1)), t.const(t.of("int32", -2))),
    ],
)


def _pad(node: BoundNode, graph: Graph):
    pads = node.inputs[1]
    value = [graph.reshape(node.inputs[2], [])] if node.has(2) else []
    return [
        graph.op(
            "Pad",
            node.inputs[0],
            graph.reshape(pads, [product(pads.shape)]),
            *value,
            mode=node.attr("mode", "constant"),
        )
    ]


_alias(
    "Pad",
    _pad,
    lambda t: [
        t(t.f(2, 3), [1, 0, 2, 1]),
        t(t.f(2, 3), t.const(t.of("int64", [[0, 1, 0, 1]])), t.const(t.of("float32", [7]))),
        t(t.f(4, 5), [1, 2, 1, 0], mode="reflect"),
        t(t.f(4, 5), [1, 2, 1, 0], mode="edge"),
    ],
)


def _grid_sample(node: BoundNode, graph: Graph):
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        node.attr("mode", "bilinear"), node.attr("mode", "bilinear")
    )
    return [
        graph.op(
            "GridSample",
            *node.inputs,
            mode=mode,
            padding_mode=node.attr("padding_mode", "zeros"),
            align_corners=node.attr("align_corners", 0),
        )
    ]


_alias(
    "GridSample",
    _grid_sample,
    lambda t: (
        t(
            t.f(2, 3, 5, 6),
            t.f(2, 4, 3, 2, low=-1.2, high=1.2),
            mode=mode,
            padding_mode=padding,
            align_corners=corners,
            tol=1e-4,
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border")
        for corners in (0, 1)
    ),
)


def _transposed_pads(node: BoundNode, graph: Graph):
    pads = node.need(2)
    attrs = {
        k: v
        for k, v in node.attrs.items()
        if k in ("group", "strides", "dilations", "output_padding", "kernel_shape", "auto_pad")
    }
    return [
        graph.op(
            "ConvTranspose",
            node.inputs[0],
            node.inputs[1],
            *node.inputs[3:4],
            pads=list(pads),
            **attrs,
        )
    ]


_alias(
    "ConvTransposeWithDynamicPads",
    _transposed_pads,
    lambda t: [
        t(t.f(1, 3, 5, 5), t.f(3, 4, 3, 3), [1, 1, 1, 1], t.f(4), strides=[2, 2], tol=1e-4),
        t(t.f(1, 3, 5, 5), t.f(3, 4, 3, 3), [0, 1, 1, 0], tol=1e-4),
    ],
)


def _unfold(node: BoundNode, graph: Graph):
    x, size, step = node.inputs[0], node.attr("size", -1), node.attr("step", 1)
    axis = axis_of(node, node.attr("dim", -1), x.rank)
    if not 0 < size <= x.shape[axis] or step < 1:
        fail(node, f"slices of {size}, {step} apart, of {x}")
    count = (x.shape[axis] - size) // step + 1
    y = graph.op(
        "Gather",
        x,
        graph.constant(
            INT64, [count, size], [i * step + j for i in range(count) for j in range(size)]
        ),
        axis=axis,
    )
    return [
        graph.op("Transpose", y, perm=[*range(axis + 1), *range(axis + 2, x.rank + 1), axis + 1])
    ]


_alias(
    "UnfoldTensor",
    _unfold,
    lambda t: [
        t(t.f(2, 7, 3), dim=1, size=3, step=2),
        t(t.f(2, 7), dim=-1, size=2, step=1),
        t(t.f(7), dim=0, size=7, step=1),
    ],
)


def _no_repeats(node: BoundNode, graph: Graph):
    """Each token that would end an n-gram that is there already gets -inf."""
    ids, scores = node.inputs
    size, (batch, length) = node.attr("ngram_size", 0), ids.shape
    if size < 1:
        fail(node, f"its ngram_size is {size}")
    count = length - size + 1
    if count < 1:
        return [scores]
    tail, same = _cut(graph, ids, 1, count, length), None
    for j in range(size - 1):
        each = graph.op("Equal", _cut(graph, ids, 1, j, j + count), _cut(graph, tail, 1, j, j + 1))
        same = each if same is None else graph.op("And", same, each)
    low, high = (graph.constant(FLOAT, [], [v]) for v in (float("-inf"), float("inf")))
    limit = (
        graph.op("Where", same, low, high)
        if same is not None
        else graph.op("Expand", low, graph.ints([batch, count]))
    )
    return [
        graph.op(
            "ScatterElements",
            scores,
            graph.op("Cast", _cut(graph, ids, 1, size - 1, length), to=INT64),
            limit,
            axis=1,
            reduction="min",
        )
    ]


_alias(
    "NGramRepeatBlock",
    _no_repeats,
    lambda t: (
        t(t.n("int64", 3, length, low=0, high=3), t.f(3, 6), ngram_size=size)
        for length in (1, 2, 9)
        for size in (1, 2, 3)
    ),
)


for _name in (
    "QuantizeLinear",
    "DequantizeLinear",
):  # what quantizers write for 16 bits before opset 21
    _alias(
        _name,
        lambda n, g: [g.op(n.op, *n.inputs, axis=n.attr("axis", 1))],
        lambda t: (
            t(
                t.f(2, 3, 4) if t.name == "QuantizeLinear" else t.n(kind, 2, 3, 4),
                t.f(*shape, low=0.01, high=0.1),
                t.n(kind, *shape, low=0, high=9),
            )
            for kind in ("uint8", "int8", "uint16", "int16")
            for shape in ((), (3,))
        ),
    )


# ---- channels last ----
def _channels_last(name, op, domain: str, keep, cases):
    """x [batch, ..., channels], and a fourth input of a sum like y; weights as Conv has them."""

    def make(node: BoundNode, graph: Graph):
        def turned(v):
            return (
                graph.op("Transpose", v, perm=[0, v.rank - 1, *range(1, v.rank - 1)])
                if v is not None
                else None
            )

        inputs = [turned(v) if i in (0, 3) else v for i, v in enumerate(node.inputs)]
        y = graph.op(
            op, *inputs, domain=domain, **{k: v for k, v in node.attrs.items() if k in keep}
        )
        return [graph.op("Transpose", y, perm=[0, *range(2, y.rank), 1])]

    _alias(name, make, cases)


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _conv_cases(t):
    """A kernel of one place is a matrix product."""
    x, w, bias = t.f(2, 4, 5, 3), t.f(6, 3, 1, 1), t.f(6)
    yield t(
        x,
        w,
        bias,
        tol=1e-4,
        expect=[x @ w[:, :, 0, 0].T + bias],
        why="onnxruntime has it on GPUs only",
    )


def _fused_cases(t):
    x, w, bias, more = t.f(2, 4, 5, 3), t.f(6, 3, 1, 1), t.f(6), t.f(2, 4, 5, 6)
    yield t(
        x,
        w,
        bias,
        more,
        activation="Relu",
        tol=1e-4,
        expect=[(x @ w[:, :, 0, 0].T + bias + more).clip(0)],
        why="onnxruntime has it on GPUs only",
    )


_channels_last("NhwcConv", "Conv", "", _CONV, _conv_cases)
_channels_last(
    "NhwcFusedConv", "FusedConv", MS, (*_CONV, "activation", "activation_params"), _fused_cases
)
_channels_last(
    "NhwcMaxPool",
    "MaxPool",
    "",
    ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"),
    lambda t: (
        t(
            t.n(kind, 2, 7, 6, 3),
            kernel_shape=[3, 2],
            strides=[2, 2],
            pads=[1, 0, 1, 0],
            ceil_mode=ceil,
        )
        for kind in ("int8", "uint8")
        for ceil in (0, 1)
    ),
)


# ---- around linear attention and experts ----
def _silu(graph: Graph, x):
    return graph.op("Mul", x, graph.op("Sigmoid", x))


def _gated_norm(node: BoundNode, graph: Graph):
    x, scale, gate = node.inputs
    takes(node, (FLOAT,), 0, 1, 2)
    name, width = node.attr("activation", "silu"), product(scale.shape)
    if name not in ("silu", "swish", "sigmoid") or not width or x.shape[-1] % width:
        fail(node, f"{x} in groups of {scale}, gated by {name!r}")
    y = graph.op(
        "SimplifiedLayerNormalization",
        graph.reshape(x, [*x.shape[:-1], x.shape[-1] // width, width]),
        scale,
        epsilon=node.attr("epsilon", 1e-5),
    )
    return [
        graph.op(
            "Mul",
            graph.reshape(y, x.shape),
            graph.op("Sigmoid", gate) if name == "sigmoid" else _silu(graph, gate),
        )
    ]


_alias(
    "GatedRMSNorm",
    _gated_norm,
    lambda t: (
        t(t.f(2, 3, 16), t.f(width), t.f(2, 3, 16), activation=name, epsilon=1e-5, tol=1e-4)
        for width in (16, 4)
        for name in ("silu", "sigmoid", "swish")
    ),
)
_alias(
    "GatedAdd",
    lambda n, g: [g.op("Add", n.inputs[0], g.op("Mul", n.inputs[1], n.inputs[2]))],
    lambda t: [t(t.f(2, 3, 8), t.f(2, 3, 8), t.f(2, 3, 1))],
)


def _gates(node: BoundNode, graph: Graph):
    a, bias, scale = node.inputs[:3]
    outs = [graph.op("Mul", scale, graph.op("Softplus", graph.op("Add", a, bias)))]
    if node.wants(1) and not node.has(3):
        fail(node, "its second output needs the input b")
    return outs + ([graph.op("Sigmoid", node.inputs[3])] if node.wants(1) else [])


_alias(
    "LinearAttentionGate",
    _gates,
    lambda t: [
        t(t.f(2, 3, 4), t.f(4), -abs(t.f(4)), t.f(2, 3, 4), outputs=2),
        t(t.f(2, 3, 4), t.f(4), -abs(t.f(4))),
    ],
)


def _scaled_silu(node: BoundNode, graph: Graph):
    scale = (
        graph.reshape(node.inputs[1], [])
        if node.has(1)
        else graph.constant(FLOAT, [], [node.attr("alpha", 1.0)])
    )
    return [_silu(graph, graph.op("Mul", node.inputs[0], scale))]


_alias(
    "ScaledSiLU",
    _scaled_silu,
    lambda t: [t(t.f(2, 3, 4), alpha=1.5), t(t.f(2, 3, 4), t.of("float32", 0.5), alpha=1.5)],
)


def _multimodal_rotary(node: BoundNode, graph: Graph):
    """Rotary embedding whose frequencies are of three positions: in time, height and width."""
    x, ids, cos, sin = node.inputs
    takes(node, (FLOAT,), 0, 2, 3)
    sections, layout, half = (
        node.attr("mrope_section", []),
        node.attr("mrope_layout", 0),
        cos.shape[-1],
    )
    if (
        len(sections) != 3
        or min(sections) < 0
        or sum(sections) != half
        or layout not in (0, 1)
        or ids.rank != 3
        or ids.shape[0] != 3
        or cos.rank != 2
        or list(sin.shape) != list(cos.shape)
    ):
        fail(node, f"sections of {sections} frequencies do not fit {cos} and {ids}")
    if node.attr("scale", 1.0) != 1.0:
        unsupported(node, "a scale")
    owner = [i for i, count in enumerate(sections) for _ in range(count)]
    if layout:
        owner = [
            next((k for k in (1, 2) if i % 3 == k and i < 3 * sections[k]), 0) for i in range(half)
        ]
    tables = []
    for table in (cos, sin):
        of_each = [
            graph.op(
                "Gather",
                table,
                graph.reshape(_cut(graph, ids, 0, k, k + 1), [*ids.shape[1:]]),
                axis=0,
            )
            for k in range(3)
        ]
        y = of_each[0]
        for k in (1, 2):
            y = graph.op(
                "Where", graph.constant(BOOL, [half], [o == k for o in owner]), of_each[k], y
            )
        tables.append(y)
    heads = node.attr("num_heads", 0) or (
        x.shape[2] // (node.attr("rotary_embedding_dim", 0) or 2 * half) if x.rank == 3 else 0
    )
    return [
        graph.op(
            "RotaryEmbedding",
            x,
            *tables,
            interleaved=node.attr("interleaved", 0),
            rotary_embedding_dim=node.attr("rotary_embedding_dim", 0),
            **({"num_heads": heads} if x.rank == 3 else {}),
        )
    ]


_alias(
    "MRotaryEmbedding",
    _multimodal_rotary,
    lambda t: (
        t(
            x,
            t.n("int64", 3, 2, 5, low=0, high=19),
            t.f(20, 6),
            t.f(20, 6),
            mrope_section=[2, 2, 2],
            mrope_layout=layout,
            interleaved=interleaved,
            num_heads=3,
            tol=1e-4,
        )
        for layout in (0, 1)
        for interleaved in (0, 1)
        for x in (t.f(2, 5, 36), t.f(2, 3, 5, 12))
    ),
)


# ---- others ----
def _gemm_fast_gelu(node: BoundNode, graph: Graph):
    y = graph.op("MatMul", *node.inputs[:2])
    return [graph.op("FastGelu", y, *node.inputs[2:3], domain=MS)]


_alias(
    "GemmFastGelu",
    _gemm_fast_gelu,
    lambda t: [
        t(
            t.of("float32", [[1.0, 2.0]]),
            t.of("float32", [[1.0, 0.0], [0.0, 0.5]]),
            t.of("float32", [0.0, 1.0]),
            tol=1e-4,
            expect=[t.of("float32", [[0.841192, 1.9545977]])],
            why="onnxruntime has it on GPUs only",
        )
    ],
)


def _distances(node: BoundNode, graph: Graph):
    """Of each row of A to each of B."""
    a, b = node.inputs
    name = node.attr("metric", "sqeuclidean")
    if (
        name not in ("euclidean", "sqeuclidean")
        or a.rank != 2
        or b.rank != 2
        or a.shape[1] != b.shape[1]
    ):
        unsupported(node, f"the distance {name!r} of {a} and {b}")
    d = graph.op(
        "Sub", graph.op("Unsqueeze", a, graph.ints([1])), graph.op("Unsqueeze", b, graph.ints([0]))
    )
    y = graph.op("ReduceSum", graph.op("Mul", d, d), graph.ints([2]), keepdims=0)
    return [graph.op("Sqrt", y) if name == "euclidean" else y]


_alias(
    "CDist",
    _distances,
    lambda t: (
        t(t.f(4, 3), t.f(5, 3), metric=name, tol=1e-4) for name in ("euclidean", "sqeuclidean")
    ),
)


def _crop(node: BoundNode, graph: Graph):
    """GridSample over each region; places outside of the image get a value of their own."""
    x, rois, batch = node.inputs[:3]
    takes(node, (FLOAT,), 0, 1)
    mode, size = node.attr("mode", "bilinear"), list(node.need(3))
    if (
        mode not in ("bilinear", "nearest")
        or len(size) != 2
        or min(size) < 1
        or x.rank != 4
        or rois.rank != 2
        or rois.shape[1] != 4
        or batch.dtype != INT32
    ):
        fail(node, f"crops of {size} ({mode}) of {x} at {rois}")
    count, whole, inside, grid = rois.shape[0], x.shape[2:], None, []

    def number(v: float):
        return graph.constant(FLOAT, [], [v])

    for axis, (out, length) in enumerate(zip(size, whole)):
        first, last = (_cut(graph, rois, 1, axis + i, axis + i + 1) for i in (0, 2))  # [count, 1]
        steps = graph.constant(
            FLOAT, [out], [i / (out - 1) if out > 1 else 0.5 for i in range(out)]
        )
        at = graph.op(
            "Mul",
            graph.op("Add", first, graph.op("Mul", graph.op("Sub", last, first), steps)),
            number(float(length - 1)),
        )
        shape = [count, out, 1] if axis == 0 else [count, 1, out]
        seen = graph.reshape(
            graph.op(
                "And",
                graph.op("GreaterOrEqual", at, number(0.0)),
                graph.op("LessOrEqual", at, number(float(length - 1))),
            ),
            shape,
        )
        inside = seen if inside is None else graph.op("And", inside, seen)
        at = graph.op("Round", at) if mode == "nearest" else at
        at = graph.op("Sub", graph.op("Mul", at, number(2.0 / max(1, length - 1))), number(1.0))
        grid.append(
            graph.reshape(
                graph.op("Expand", graph.reshape(at, shape), graph.ints([count, *size])),
                [count, *size, 1],
            )
        )
    y = graph.op(
        "GridSample",
        graph.op("Gather", x, batch, axis=0),
        graph.op("Concat", *grid[::-1], axis=3),
        mode="linear",
        padding_mode="border",
        align_corners=1,
    )
    return [
        graph.op(
            "Where",
            graph.reshape(inside, [count, 1, *size]),
            y,
            number(node.attr("extrapolation_value", 0.0)),
        )
    ]


_alias(
    "CropAndResize",
    _crop,
    lambda t: (
        t(
            t.f(2, 3, 7, 9),
            t.of("float32", [[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [-0.3, 0.2, 0.6, 1.4]]),
            t.of("int32", [0, 1, 0]),
            t.const(t.of("int32", size)),
            mode=mode,
            extrapolation_value=2.5,
            tol=1e-4,
        )
        for size in ([4, 5], [1, 3])
        for mode in ("bilinear", "nearest")
    ),
)
