"""Bytes: dynamic quantization, operators of integers, and QuantizeLinear around floats."""

from __future__ import annotations

import numpy as np

from . import product

TYPES = {"u1": np.uint8, "i1": np.int8}


def bytes_of(g, *shape, signed=None):
    """Random weights of bytes."""
    signed = g.rng.random() < 0.6 if signed is None else signed
    low, high = (-128, 128) if signed else (0, 256)
    kind = np.int8 if signed else np.uint8
    return g.const(g.numpy.integers(low, high, shape).astype(kind))


def scale(g, size, *shape):
    """A positive scale for values up to `size`."""
    value = size / 127 * (0.7 + 0.6 * g.numpy.random(shape))
    return g.const(np.asarray(value, np.float32), 1.0)


def zero(g, w, *shape):
    """Zero points for weights of w's type."""
    if w.dtype == "i1":
        return g.const(np.zeros(shape, np.int8))
    return g.const(g.numpy.integers(100, 156, shape).astype(np.uint8))


def with_width(g):
    return g.pick(
        lambda v: (
            v.rank >= 2 and v.size < 60 and g.is_fixed(v.dims[-1]) and min(map(min, v.dims)) > 0
        )
    )


def dynamic(g):
    """DynamicQuantizeLinear, MatMulInteger, scales and a bias, as onnxruntime's quantizer."""
    x = with_width(g)
    if not x:
        return None
    k, out = x.dims[-1][0], g.rng.choice((4, 8, 6))
    q, s, z = g.many(
        "DynamicQuantizeLinear", [x], [x.dims, (), ()], ["u1", "f", "u1"], keep=False
    )  # fmt: skip
    per_column = g.rng.random() < 0.4
    w = bytes_of(g, k, out)
    shape = (out,) if per_column else ()
    dims = (*x.dims[:-1], g.fixed(out))
    y = g.node("MatMulInteger", [q, w, z, zero(g, w, *shape)], dims, "i4", keep=False)
    y = g.node("Cast", [y], dims, "f", size=3.0, to=1, keep=False)
    s = g.node("Mul", [s, scale(g, k**-0.5, *shape)], [g.fixed(n) for n in shape], keep=False)
    y = g.node("Mul", [y, s][:: g.rng.choice((1, -1))], dims, "f", size=x.size + 3)
    if g.rng.random() < 0.5:
        y = g.node("Add", [y, g.weight(out)], dims, size=x.size + 3)
    return y


def quantize(g, x, signed=None):
    """(bytes, scale, zero point) of a value."""
    kind = "i1" if (g.rng.random() < 0.5 if signed is None else signed) else "u1"
    s = scale(g, min(x.size, 8.0))
    point = g.rng.randint(100, 150) if kind == "u1" else g.rng.randint(-20, 20)
    z = g.const(np.array(point, TYPES[kind]))
    return g.node("QuantizeLinear", [x, s, z], x.dims, kind, keep=False), s, z


def dequantize(g, q, s, z, size):
    return g.node("DequantizeLinear", [q, s, z], q.dims, "f", size=size)


def linear(g):
    """QLinearMatMul."""
    x = with_width(g)
    if not x:
        return None
    k, out = x.dims[-1][0], g.rng.choice((4, 8))
    q, s, z = quantize(g, x)
    w = bytes_of(g, k, out, signed=True if q.dtype == "i1" else None)
    low = 120 if q.dtype == "u1" else -5
    sy, zy = scale(g, 6.0), g.const(np.array(g.rng.randint(low, low + 10), TYPES[q.dtype]))
    dims = (*x.dims[:-1], g.fixed(out))
    inputs = [q, s, z, w, scale(g, k**-0.5), zero(g, w), sy, zy]
    y = g.node("QLinearMatMul", inputs, dims, q.dtype, keep=False)
    return dequantize(g, y, sy, zy, 6.0)


def linear_conv(g):
    """QLinearConv or ConvInteger."""
    x = product.picture(g)
    found = x and x.size < 60 and product.windows(g, x)
    if not found:
        return None
    attrs, spatial = found
    c, out = x.dims[1][0], g.rng.choice((2, 4))
    dims = (x.dims[0], g.fixed(out), *spatial)
    if not g.fits(dims):
        return None
    if g.rng.random() < 0.4:
        q, s, z = quantize(g, x, signed=False)
        w = bytes_of(g, out, c, *attrs["kernel_shape"], signed=False)
        y = g.node("ConvInteger", [q, w, z, zero(g, w)], dims, "i4", keep=False, **attrs)
        y = g.node("Cast", [y], dims, "f", size=3.0, to=1, keep=False)
        return g.node("Mul", [y, 1e-4], dims, size=3.0)
    q, s, z = quantize(g, x)
    w = bytes_of(g, out, c, *attrs["kernel_shape"], signed=True)
    shape = (out,) if g.rng.random() < 0.5 else ()
    sy = scale(g, 6.0)
    zy = g.const(np.array(3, TYPES[q.dtype]))
    inputs = [q, s, z, w, scale(g, c**-0.5, *shape), g.const(np.zeros(shape, np.int8)), sy, zy]
    if g.rng.random() < 0.5:
        inputs.append(g.const(g.numpy.integers(-500, 500, out).astype(np.int32)))
    y = g.node("QLinearConv", inputs, dims, q.dtype, keep=False, **attrs)
    return dequantize(g, y, sy, zy, 6.0)


def around(g):
    """QuantizeLinear and DequantizeLinear between operators of floats."""
    x = g.pick(lambda v: v.size < 100 and v.rank >= 1)
    return x and dequantize(g, *quantize(g, x), x.size)


def dense(g):
    """A product with dequantized bytes between quantized values."""
    x = with_width(g)
    if not x:
        return None
    k, out = x.dims[-1][0], g.rng.choice((4, 8))
    a = dequantize(g, *quantize(g, x), x.size)
    shape = (out,) if g.rng.random() < 0.5 else ()
    w = bytes_of(g, k, out, signed=True)
    how = {"axis": 1} if shape else {}
    inputs = [w, scale(g, k**-0.5, *shape), g.const(np.zeros(shape, np.int8))]
    w = g.node("DequantizeLinear", inputs, w.dims, "f", size=1.0, keep=False, **how)
    dims = (*x.dims[:-1], g.fixed(out))
    if x.rank == 2 and g.rng.random() < 0.5:
        bias = g.const(g.numpy.integers(-500, 500, out).astype(np.int32))
        bias = g.node(
            "DequantizeLinear", [bias, scale(g, 0.5)], bias.dims, "f", size=1.0, keep=False
        )
        y = g.node("Gemm", [a, w, bias], dims, size=x.size + 3)
    else:
        y = g.node("MatMul", [a, w], dims, size=x.size + 3)
    if g.rng.random() < 0.4:
        y = g.node("Relu", [y], dims)
    return dequantize(g, *quantize(g, y), y.size)


FAMILIES = {
    "dynamic": (6, dynamic), "QLinearMatMul": (4, linear), "QLinearConv": (3, linear_conv),
    "QDQ": (4, around), "QDQ dense": (4, dense),
}  # fmt: skip
