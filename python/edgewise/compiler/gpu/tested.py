# long: a table of cases
"""What is computed to test a GPU: for each kernel with a shader a node on a shape that fills no
tile, by the part of the shaders that it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..bind import add_gradients
from ..declare.dtypes import FLOAT, INT8, INT32, INT64, UINT8
from ..ir import Value
from ..training.optimizers import AdamW, AdamW8bit, Optimizer

if TYPE_CHECKING:
    from .self_test import TestGraph

Make = Callable[["TestGraph"], Value]
MICROSOFT: dict[str, Any] = {"domain": "com.microsoft"}
OURS: dict[str, Any] = {"domain": "edgewise"}
PADS = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def _as_floats(of: TestGraph, x: Value) -> Value:
    return of.g.op("Cast", x, to=FLOAT)


def _gradient(of: TestGraph, y: Value, x: Value) -> Value:
    """The gradient of x for a sum of y with other factors."""
    seed = of.floats(f"d{len(of.kinds)}", *cast(Any, y.shape))
    return cast(Value, add_gradients(of.bound, [(y, seed)], [x])[0])


def _through(op: str, *shape: int, **attrs: Any) -> Make:
    """The gradient of an operator with one input."""

    def make(of: TestGraph) -> Value:
        x = of.floats(f"{op} x", *shape)
        return _gradient(of, of.g.op(op, x, **attrs), x)

    return make


def _rope(of: TestGraph) -> Value:
    x, cos, sin = of.floats("rx", 1, 3, 5, 16), of.floats("rc", 9, 8), of.floats("rs", 9, 8)
    places = of.ids("rp", 9, 1, 5)
    return of.g.op("RotaryEmbedding", x, cos, sin, places)


def _conv(of: TestGraph, channels: int, filters: int, group: int) -> Value:
    x = of.floats(f"cx{group}", 1, channels, 9, 11)
    w = of.floats(f"cw{group}", filters, channels // group, 3, 3)
    return of.g.op("Conv", x, w, of.floats(f"cb{group}", filters), group=group, **PADS)


def _conv_gradient(of: TestGraph) -> Value:
    x, w = of.floats("gx", 1, 5, 9, 11), of.floats("gw", 7, 5, 3, 3)
    return _gradient(of, of.g.op("Conv", x, w, **PADS), w)


def _batch_norm(of: TestGraph) -> list[Value]:
    x, scale, b = of.floats("bx", 3, 5, 7, 3), of.floats("bs", 5), of.floats("bb", 5)
    mean, spread = of.floats("bm", 5), of.floats("bv", 5)
    var = of.g.mul(spread, spread)
    return [x, scale, b, mean, of.g.add(var, of.g.number(0.5))]


def _top(of: TestGraph) -> Value:
    return cast(Value, of.g.op("TopK", of.floats("tx", 5, 37), of.g.ints([6]), outputs=2)[0])


def _linear_attention(of: TestGraph) -> Value:
    q, k, v = (of.floats(f"linear {n}", 1, 6, 16) for n in "qkv")
    state, gate = of.floats("linear s", 1, 2, 8, 8), of.floats("linear g", 1, 6, 2)
    more = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated", **MICROSOFT}
    inputs = (q, k, v, state, of.g.neg(of.g.mul(gate, gate)))
    return cast(Value, of.g.op("LinearAttention", *inputs, outputs=2, **more)[0])


def _experts(of: TestGraph) -> Value:
    a, w, index = of.floats("xa", 5, 13), of.floats("xw", 3, 13, 11), of.ids("xi", 3, 5)
    return of.g.op("ExpertMatMul", a, w, index, **OURS)


def _experts_4_bits(of: TestGraph) -> Value:
    sizes = {"K": 64, "N": 11, "bits": 4, "block_size": 32}
    inputs = (of.floats("ya", 5, 64), of.bytes("yw", 3, 11, 2, 16), of.floats("ys", 3, 11, 2))
    return of.g.op("ExpertMatMulNBits", *inputs, None, of.ids("yi", 3, 5), **sizes, **OURS)


def _experts_outer(of: TestGraph) -> Value:
    a, b, index = of.floats("va", 6, 7), of.floats("vb", 6, 5), of.ids("vi", 3, 6)
    return of.g.op("ExpertOuter", a, b, index, of.g.ints([3]), **OURS)


def _recurrent(of: TestGraph, op: str, gates: int) -> Value:
    x = of.floats(f"{op} x", 4, 2, 5)
    w, r = of.floats(f"{op} w", 1, gates * 6, 5), of.floats(f"{op} r", 1, gates * 6, 6)
    b = of.floats(f"{op} b", 1, 2 * gates * 6)
    return cast(Value, of.g.op(op, x, w, r, b, hidden_size=6, outputs=2)[0])


def _lstm_gradient(of: TestGraph) -> Value:
    x, w, r = of.floats("Lx", 4, 2, 5), of.floats("Lw", 1, 24, 5), of.floats("Lr", 1, 24, 6)
    y = of.g.op("LSTM", x, w, r, hidden_size=6, outputs=2)[0]
    return _gradient(of, y, w)


def _random(of: TestGraph) -> Value:
    return of.g.op("RandomUniform", dtype=FLOAT, shape=[7, 9], seed=3.0)


MORE: dict[str, Make] = {
    "Where": lambda of: of.g.op(
        "Where",
        of.g.op("Less", of.floats("wa", 5, 13), of.floats("wb", 13)),
        of.floats("wc", 5, 13),
        of.floats("wd", 5, 1),
    ),
    "RotaryEmbedding": _rope,
    "ReduceSum": lambda of: of.g.op(
        "ReduceSum", of.floats("sx", 7, 13, 5), of.g.ints([1]), keepdims=0
    ),
    "ReduceMean of rows": lambda of: of.g.op(
        "ReduceMean", of.floats("sy", 7, 77), of.g.ints([1]), keepdims=0
    ),
    "Cast": lambda of: _as_floats(
        of, of.g.op("Cast", of.g.scale(of.floats("ax", 65), 100.0), to=INT32)
    ),
    "Trilu": lambda of: of.g.op("Trilu", of.floats("ux", 3, 7, 9), upper=0),
    "ScatterND": lambda of: of.g.op(
        "ScatterND",
        of.floats("na", 9, 6),
        of.ids("ni", 9, 4, 1),
        of.floats("nb", 4, 6),
        reduction="add",
    ),
    "ScatterElements": lambda of: of.g.op(
        "ScatterElements",
        of.floats("ea", 9, 6),
        of.ids("ei", 9, 4, 6),
        of.floats("eb", 4, 6),
        axis=0,
        reduction="add",
    ),
    "GatherBlockQuantized": lambda of: of.g.op(
        "GatherBlockQuantized",
        of.bytes("qt", 9, 32),
        of.ids("qi", 9, 5),
        of.floats("qs", 9, 2),
        bits=4,
        block_size=32,
        gather_axis=0,
        quantize_axis=1,
        **MICROSOFT,
    ),
    "MatMul of 512 x 512": lambda of: of.g.op(
        "MatMul", of.floats("la", 513, 3), of.floats("lb", 3, 515)
    ),
    "TopK": _top,
    "MoE": _experts,
    "QMoE": _experts_4_bits,
    "RandomUniform": _random,
    "LSTM": lambda of: _recurrent(of, "LSTM", 4),
    "GRU": lambda of: _recurrent(of, "GRU", 3),
    "LinearAttention": _linear_attention,
    "Pad": lambda of: of.g.op("Pad", of.floats("Bx", 3, 5), of.g.ints([1, 0, 2, 1])),
}


IMAGES: dict[str, Make] = {
    "Conv": lambda of: _conv(of, 6, 7, 1),
    "Conv of groups": lambda of: _conv(of, 6, 6, 6),
    "ConvTranspose": lambda of: of.g.op(
        "ConvTranspose", of.floats("ox", 1, 5, 7, 6), of.floats("ow", 5, 3, 3, 3), strides=[2, 2]
    ),
    "MaxPool": lambda of: of.g.op(
        "MaxPool", of.floats("px", 1, 5, 11, 9), kernel_shape=[3, 3], strides=[2, 2]
    ),
    "AveragePool": lambda of: of.g.op(
        "AveragePool", of.floats("py", 1, 5, 11, 9), kernel_shape=[3, 3], strides=[2, 2]
    ),
    "BatchNormalization": lambda of: of.g.op("BatchNormalization", *_batch_norm(of)),
    "ArgMax": lambda of: _as_floats(of, of.g.op("ArgMax", of.floats("ay", 7, 37), axis=1)),
    "CumSum": lambda of: of.g.op("CumSum", of.floats("cs", 5, 37), of.g.constant(INT64, [], [1])),
    "GatherElements": lambda of: of.g.op(
        "GatherElements", of.floats("hx", 9, 6), of.ids("hi", 9, 4, 6), axis=0
    ),
    "GatherND": lambda of: of.g.op("GatherND", of.floats("kx", 9, 6), of.ids("ki", 9, 5, 1)),
    "GridSample": lambda of: of.g.op(
        "GridSample", of.floats("fx", 1, 3, 7, 9), of.floats("fg", 1, 5, 6, 2)
    ),
    "Resize": lambda of: of.g.op(
        "Resize",
        of.floats("zx", 1, 3, 7, 9),
        None,
        of.g.constant(FLOAT, [4], [1.0, 1.0, 1.5, 2.0]),
        mode="linear",
    ),
    "RoiAlign": lambda of: of.g.op(
        "RoiAlign",
        of.floats("ix", 1, 3, 9, 9),
        of.g.constant(FLOAT, [2, 4], [0.5, 1.0, 6.0, 7.0, 2.0, 2.0, 8.0, 5.0]),
        of.g.constant(INT64, [2], [0, 0]),
        output_height=3,
        output_width=4,
    ),
}


def _int8(of: TestGraph, name: str, *shape: int) -> Value:
    return of.g.op("Cast", of.g.scale(of.floats(name, *shape), 100.0), to=INT8)


def _int32(of: TestGraph, name: str, *shape: int) -> Value:
    return of.g.op("Cast", of.g.scale(of.floats(name, *shape), 100.0), to=INT32)


def _lstm_in_bytes(of: TestGraph) -> Value:
    w, r = of.bytes("Zw", 1, 5, 24), of.bytes("Zr", 1, 6, 24)
    factor, zero = of.g.constant(FLOAT, [1], [0.01]), of.g.constant(UINT8, [1], [128])
    rest = (None, None, None, None, None, factor, zero, factor, zero)
    inputs = (of.floats("Zx", 4, 2, 5), w, r, *rest)
    return cast(
        Value, of.g.op("DynamicQuantizeLSTM", *inputs, outputs=2, hidden_size=6, **MICROSOFT)[0]
    )


def _quantized(of: TestGraph, name: str, *shape: int) -> Value:
    scale = of.g.number(0.01)
    return of.g.op("QuantizeLinear", of.floats(name, *shape), scale, of.g.constant(UINT8, [], [7]))


def _integers(of: TestGraph, op: str, x: Value, w: Value, **attrs: Any) -> Value:
    zero, other = of.g.constant(UINT8, [], [7]), of.g.constant(INT8, [], [3])
    return _as_floats(of, of.g.op(op, x, w, zero, other, **attrs))


def _qlinear(of: TestGraph, op: str, **more: Any) -> Value:
    scale, zero = of.g.number(0.02), of.g.constant(UINT8, [], [9])
    a, b = of.bytes(f"{op} a", 3, 37), of.bytes(f"{op} b", 3, 37)
    of_y = (of.g.number(0.03), of.g.constant(UINT8, [], [11]))
    return _as_floats(of, of.g.op(op, a, scale, zero, b, scale, zero, *of_y, **MICROSOFT))


def _dynamic(of: TestGraph) -> Value:
    y, scale, zero = of.g.op("DynamicQuantizeLinear", of.floats("Dx", 5, 37), outputs=3)
    return of.g.op("DequantizeLinear", y, scale, zero)


BYTES: dict[str, Make] = {
    "QuantizeLinear": lambda of: _as_floats(of, _quantized(of, "Qx", 5, 37)),
    "DequantizeLinear": lambda of: of.g.op(
        "DequantizeLinear", of.bytes("Qy", 5, 37), of.g.number(0.01), of.g.constant(UINT8, [], [7])
    ),
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": lambda of: _integers(
        of, "MatMulInteger", of.bytes("Ix", 5, 42), _int8(of, "Iw", 42, 37)
    ),
    "ConvInteger": lambda of: _integers(
        of, "ConvInteger", of.bytes("Ic", 1, 5, 9, 7), _int8(of, "Id", 6, 5, 3, 3), **PADS
    ),
    "ConvInteger of groups": lambda of: _integers(
        of,
        "ConvInteger",
        of.bytes("Ie", 1, 16, 9, 7),
        _int8(of, "If", 16, 1, 3, 3),
        group=16,
        **PADS,
    ),
    "MatMul of integers": lambda of: _as_floats(
        of, of.g.op("MatMul", _int32(of, "Wx", 5, 13), _int32(of, "Wy", 13, 11))
    ),
    "table of bytes": lambda of: _as_floats(
        of, of.g.op("ByteLookup", of.bytes("Tx", 5, 37), of.bytes("Ty", 256), **OURS)
    ),
    "DynamicQuantizeLSTM": _lstm_in_bytes,
    "QLinearAdd": lambda of: _qlinear(of, "QLinearAdd"),
    "MaxPool of bytes": lambda of: _as_floats(
        of, of.g.op("MaxPool", of.bytes("Mx", 1, 3, 9, 7), kernel_shape=[3, 3], strides=[2, 2])
    ),
}


def _loss(of: TestGraph, name: str) -> tuple[Value, Value]:
    x = of.floats(f"{name} x", 7, 23)
    return x, of.g.op("SoftmaxCrossEntropyLoss", x, of.ids(f"{name} i", 23, 7))


def _loss_gradient(of: TestGraph) -> Value:
    x, loss = _loss(of, "CG")
    return cast(Value, add_gradients(of.bound, [(loss, None)], [x])[0])


def _norm_gradient(of: TestGraph) -> Value:
    x, w, b = of.floats("Nx", 5, 77), of.floats("Nw", 77), of.floats("Nb", 77)
    return _gradient(of, of.g.op("LayerNormalization", x, w, b, axis=-1), x)


def _batch_norm_gradient(of: TestGraph) -> Value:
    x, *more = _batch_norm(of)
    y = of.g.op("BatchNormalization", x, *more, training_mode=1, outputs=3)[0]
    return _gradient(of, y, x)


def _attention_gradient(of: TestGraph, length: int = 5) -> Value:
    q, k, v = (of.floats(f"AG {n}", 1, length, 48) for n in "qkv")
    return _gradient(of, of.g.op("MultiHeadAttention", q, k, v, num_heads=3, **MICROSOFT), k)


def _updated(optimizer: Optimizer) -> Make:
    def make(of: TestGraph) -> Value:
        name = optimizer.op_name()
        w, d = of.floats(f"{name} w", 300), of.floats(f"{name} d", 300)
        rate = of.g.constant(FLOAT, [1], [0.01])
        states = [
            of.bound.state(f"{name} {key}", *what) for key, what in optimizer.states([300]).items()
        ]
        for state in states:
            of.kinds[state.name] = "zeros", 0
        new, *moments = optimizer.update(of.g, w, d, states, rate, of.g.ints([1]), None, 0.0)
        of.bound.effects += moments
        return new

    return make


TRAINING: dict[str, Make] = {
    "SoftmaxCrossEntropyLoss": lambda of: of.g.reshape(_loss(of, "CL")[1], [1]),
    "gradient of SoftmaxCrossEntropyLoss": _loss_gradient,
    "gradient of LayerNormalization": _norm_gradient,
    "gradient of BatchNormalization": _batch_norm_gradient,
    "gradient of MultiHeadAttention": _attention_gradient,
    "gradient of Softmax": _through("Softmax", 5, 37, axis=-1),
    "gradient of Tanh": _through("Tanh", 5, 37),
    "gradient of Gelu": _through("Gelu", 5, 37),
    "gradient of Conv": _conv_gradient,
    "gradient of MaxPool": _through("MaxPool", 1, 3, 9, 7, kernel_shape=[3, 3], strides=[2, 2]),
    "gradient of LSTM": _lstm_gradient,
    "gradient of MoE": _experts_outer,
    "AdamW": _updated(AdamW()),
    "AdamW in 8 bits": _updated(AdamW8bit()),
}


CASES = {**MORE, **IMAGES, **BYTES, **TRAINING}
"""{operator: function that makes the result}. Those with further kernels come after those that
test these.
"""


def _norm(of: TestGraph, name: str, rows: int, k: int) -> Value:
    x, w = of.floats(f"{name} x", rows, k), of.floats(f"{name} w", k)
    return of.g.op("SimplifiedLayerNormalization", x, w, axis=-1, epsilon=1e-5)


def _product(of: TestGraph, x: Value, name: str, n: int, packed: bool) -> Value:
    """A product of a row of 128 numbers, whose weights have 4 bits or are float32."""
    if not packed:
        return of.g.op("MatMul", x, of.floats(f"{name} w", 128, n))
    w, scales = of.bytes(f"{name} w", n, 4, 16), of.floats(f"{name} s", n, 4)
    sizes = {"K": 128, "N": n, "bits": 4, "block_size": 32}
    return of.g.op("MatMulNBits", x, w, scales, **sizes, **MICROSOFT)


def _joined(packed: bool) -> Make:
    """A norm of one row, two products, and what joins their results."""

    def make(of: TestGraph) -> Value:
        x = _norm(of, "jx", 1, 128)
        a, b = (_product(of, x, name, 40, packed) for name in ("ja", "jb"))
        return of.g.mul(a, b)

    return make


def _taken(packed: bool) -> Make:
    """A norm of one row, three products, and rotations and a copy that take their results."""

    def make(of: TestGraph) -> Value:
        x = _norm(of, "tx", 1, 128)
        cos, sin, places = of.floats("tc", 9, 32), of.floats("ts", 9, 32), of.ids("tp", 9, 1, 1)
        heads = [
            of.g.op("RotaryEmbedding", of.g.reshape(row, [1, 2, 1, 64]), cos, sin, places)
            for row in (_product(of, x, name, 128, packed) for name in ("ta", "tb"))
        ]
        v = of.g.reshape(_product(of, x, "tv", 128, packed), [1, 2, 1, 64])
        more = of.g.op("Concat", v, of.floats("te", 1, 2, 1, 64), axis=2)
        return of.g.add(of.g.add(*heads), more)

    return make


def _bits_gradient(of: TestGraph) -> Value:
    x = of.floats("Px", 3, 128)
    return _gradient(of, _product(of, x, "P", 40, True), x)


def _experts_gradient(of: TestGraph) -> Value:
    sizes = {"K": 64, "N": 32, "bits": 4, "block_size": 32}
    x, index = of.floats("Ya", 5, 64), of.ids("Yi", 3, 5)
    inputs = (x, of.bytes("Yw", 3, 32, 2, 16), of.floats("Ys", 3, 32, 2), None, index)
    return _gradient(of, of.g.op("ExpertMatMulNBits", *inputs, **sizes, **OURS), x)


def _scale_gradient(of: TestGraph, rows: int, cols: int) -> Value:
    name = f"S{rows}"
    x, w, b = (
        of.floats(f"{name} x", rows, cols),
        of.floats(f"{name} w", cols),
        of.floats(name, cols),
    )
    return _gradient(of, of.g.op("LayerNormalization", x, w, b, axis=-1), w)


def _many_losses(of: TestGraph) -> Value:
    x = of.floats("ml x", 70, 23)
    loss = of.g.op("SoftmaxCrossEntropyLoss", x, of.ids("ml i", 23, 70))
    return cast(Value, add_gradients(of.bound, [(loss, None)], [x])[0])


FORMS: dict[str, Make] = {
    "a norm, products and their product": _joined(False),
    "a norm, products of 4 bits and their product": _joined(True),
    "a norm, products and rotations": _taken(False),
    "a norm, products of 4 bits and rotations": _taken(True),
    "many short rows of a norm": lambda of: _norm(of, "sn", 70, 13),
    "many short rows of Softmax": lambda of: of.g.op("Softmax", of.floats("so", 70, 13), axis=-1),
    "many short rows of ReduceSum": lambda of: of.g.op(
        "ReduceSum", of.floats("sr", 70, 13), of.g.ints([1]), keepdims=0
    ),
    "gradient of many short rows of Softmax": _through("Softmax", 70, 13, axis=-1),
    "gradient of many losses": _many_losses,
    "gradient of MultiHeadAttention of many short rows": lambda of: _attention_gradient(of, 24),
    "gradient of a norm's scale": lambda of: _scale_gradient(of, 5, 77),
    "gradient of many short rows of a norm": lambda of: _scale_gradient(of, 70, 13),
    "ReduceMax of integers": lambda of: _as_floats(
        of, of.g.op("ReduceMax", _int32(of, "ri", 7, 13), of.g.ints([1]), keepdims=0)
    ),
    "TopK of many": lambda of: cast(
        Value, of.g.op("TopK", of.floats("tm", 1, 1031), of.g.ints([6]), outputs=2)[0]
    ),
    "gradient of MatMulNBits": _bits_gradient,
    "gradient of QMoE": _experts_gradient,
}
"""The same for shaders of special cases, and for steps that share a dispatch."""

HELPERS = ("Cast", "ReduceSum")
"""Operators whose kernels other cases have, too."""
