"""Random numbers that follow from a seed: Dropout, distributions, and what parameters begin as.

`seed` is an int64 [1] that the host chooses for each run, `stream` a number that no other node of the plan has: together with an element's place they
say its number, so that the backward part recomputes a mask instead of keeping it, and every machine draws the same (core/kernels/random.c).
"""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("random", {"n": "i32", "stream": "i32", "threshold": "i32", "scale": "f32", "offset": "f32"},
       [read("x", 4, "n", optional=True), read("seed", 8, "1"), write("y", 4, "n", inplace=["x"])], empty=["n"],
       doc="y = random 32 bits >= threshold (unsigned) ? x * scale : 0; without x: uniform numbers of [offset, offset + scale).")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
import math

from .dtypes import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, pack, unpack
from .op import Op, fail, like, product, takes, unsupported

active = Op("Dropout", "edgewise")  # (x, seed); ratio, stream: x / (1 - ratio), or 0 with probability `ratio`
uniform = Op("RandomUniform", "edgewise")  # (seed); shape, low, high, stream: uniform in [low, high)


@active.infer
def _(n):
    takes(n, (FLOAT,), 0)
    takes(n, (INT64,), 1)
    if not 0.0 <= n.attr("ratio", 0.5) < 1.0:
        fail(n, f"its ratio is {n.attr('ratio')}", "It is a probability below 1.")
    return [like(n, 0)]


def _emit(b, x, seed, y, stream, threshold=0, scale=1.0, offset=0.0):
    b.emit("random", {"x": x, "seed": seed, "y": y}, n=product(y.shape), stream=stream, threshold=threshold - (1 << 32) * (threshold >= 1 << 31), scale=scale, offset=offset)


@active.lower
def _(n, b):
    ratio = float(n.attr("ratio", 0.5))
    _emit(b, b.contiguous(b.view(n.inputs[0])), b.view(n.inputs[1]), b.out(n.outputs[0]), n.attr("stream", 0), min(round(ratio * (1 << 32)), (1 << 32) - 1), 1.0 / (1.0 - ratio))


@active.grad
def _(n, g, dy):
    return [g.op("Dropout", dy, n.inputs[1], domain="edgewise", **n.attrs), None]


@uniform.infer
def _(n):
    takes(n, (INT64,), 0)
    return [(FLOAT, n.attr("shape"))]


@uniform.lower
def _(n, b):
    low = float(n.attr("low", 0.0))
    _emit(b, None, b.view(n.inputs[0]), b.out(n.outputs[0]), n.attr("stream", 0), scale=float(n.attr("high", 1.0)) - low, offset=low)


dropout = Op("Dropout")


@dropout.decompose
def _(n, b):
    """Active where the graph is bound for training (`bind`'s `training`), unless the node says training_mode = false; and in an InferenceSession where it says training_mode = true. Else it passes its input on."""
    x, ratio = n.inputs[0], n.attr("ratio", 0.5)
    if n.has(1):
        ratio = float(n.need(1)[0])
    said = bool(n.need(2)[0]) if n.has(2) else None
    if ratio == 1.0 and said:  # as in PyTorch nothing is left, rather than 0 / 0
        fail(n, "its ratio is 1", "It is a probability below 1.")
    stream = None if ratio == 0.0 or said is False else b.random_stream(always=bool(said))
    if stream is not None:
        seed, number = stream
        def drop(v):
            return b.op("Dropout", v, seed, domain="edgewise", ratio=float(ratio), stream=number)
        y = drop(x)
    else:
        y = x
    if not n.wants(1):
        return [y, None][:len(n.outputs)]
    dims = b.constant(INT64, [x.rank], list(x.shape))
    ones = b.op("Expand", b.constant(FLOAT, [], [1.0]), dims)
    return [y, b.op("Cast", drop(ones) if stream is not None else ones, to=BOOL)]


@dropout.cases
def _(t):
    yield t(t.f(2, 3), outputs=2)
    yield t(t.f(2, 3), 0.5, t.of("bool", False), outputs=2)
    yield t(t.f(2, 3), opset=7, ratio=0.5)
    yield t(t.f(0, 3), outputs=2)


# Distributions: with a seed the same numbers in each run, without one others in each.

def _source(n, b):
    """(seed, stream)."""
    said = n.attrs.get("seed")
    if said is not None:
        if type(said) not in (int, float):
            fail(n, f"its seed is {said!r}")
        return b.constant(INT64, [1], unpack(INT32, pack(FLOAT, [float(said)]), 1)), 0  # the float's bits: seeds that differ a little are others, too
    stream = b.random_stream(always=True)
    if stream is None:
        unsupported(n, "random numbers without a seed", "Give the node a `seed`; only sessions make one for each run.")
    return stream


def _uniform(n, b, shape, low=0.0, high=1.0):
    if any(not isinstance(d, int) or d < 0 for d in shape):
        fail(n, f"its shape is {list(shape)}")
    seed, stream = _source(n, b)
    return b.op("RandomUniform", seed, domain="edgewise", shape=list(shape), low=float(low), high=float(high), stream=stream)


def _normal(n, b, shape, mean, scale):
    """Box and Muller 1958."""
    u, v = (b.op("Squeeze", x, b.constant(INT64, [1], [0])) for x in b.op("Split", _uniform(n, b, [2, *shape]), axis=0, num_outputs=2, outputs=2))
    radius = b.op("Sqrt", b.op("Mul", b.op("Log", b.op("Sub", b.constant(FLOAT, [], [1.0]), u)), b.constant(FLOAT, [], [-2.0 * scale * scale])))
    if scale < 0:
        fail(n, f"its scale is {scale}")
    return b.op("Add", b.op("Mul", radius, b.op("Cos", b.op("Mul", v, b.constant(FLOAT, [], [2 * math.pi])))), b.constant(FLOAT, [], [mean]))


def _declare_distribution(name, make, like_input):
    """make(n, b, shape): float32 numbers. Of the type that `dtype` says, by default float32 or that of the input that also says the shape."""
    o = Op(name, half=[0])

    @o.decompose
    def _(n, b):
        shape, to = (n.inputs[0].shape, n.attr("dtype", n.inputs[0].dtype)) if like_input else (n.attr("shape"), n.attr("dtype", FLOAT))
        if to not in (FLOAT, DOUBLE, FLOAT16, BFLOAT16) or shape is None:
            fail(n, f"its element type is {to}, its shape {shape}", "It makes float32, float64, float16 or bfloat16 numbers.")
        return [b.op("Cast", make(n, b, shape), to=to)]

    @o.cases
    def _(t):
        """Distributions that have one value; the others are in tests/ops/test_random.py."""
        place = {"mean": 2.5, "scale": 0.0} if "Normal" in name else {"low": 2.5, "high": 2.5}
        for dtype in ("float32", "float64"):
            code = {"float32": 1, "float64": 11}[dtype]
            x = t.f(3, 5, dtype=dtype)
            for more in ({}, {"seed": 7.5}):
                attrs = {**place, **more, **({} if like_input else {"shape": [3, 5], "dtype": code})}
                yield t(*([x] if like_input else []), expect=[x * 0 + 2.5], why="references draw other numbers", **attrs)
    return o


_declare_distribution("RandomUniform", lambda n, b, shape: _uniform(n, b, shape, n.attr("low", 0.0), n.attr("high", 1.0)), False)
_declare_distribution("RandomUniformLike", lambda n, b, shape: _uniform(n, b, shape, n.attr("low", 0.0), n.attr("high", 1.0)), True)
_declare_distribution("RandomNormal", lambda n, b, shape: _normal(n, b, shape, n.attr("mean", 0.0), n.attr("scale", 1.0)), False)
_declare_distribution("RandomNormalLike", lambda n, b, shape: _normal(n, b, shape, n.attr("mean", 0.0), n.attr("scale", 1.0)), True)

bernoulli = Op("Bernoulli")


@bernoulli.decompose
def _(n, b):
    """One with the probability that x says."""
    x = n.inputs[0]
    drawn = b.op("Less", _uniform(n, b, x.shape), b.op("Cast", x, to=FLOAT))
    return [b.op("Cast", drawn, to=n.attr("dtype", x.dtype))]


@bernoulli.cases
def _(t):
    x = t.of("float32", [[0, 1, 1], [0, 0, 1]])
    yield t(x, expect=[x], why="references draw other numbers")
    yield t(x, seed=3.0, dtype=7, expect=[x.astype("int64")], why="references draw other numbers")
    yield t(x.astype("float64"), dtype=9, expect=[x > 0], why="references draw other numbers")


multinomial = Op("Multinomial")


@multinomial.decompose
def _(n, b):
    """x [batch, classes] are logarithms of what classes weigh; of each sample the class in whose share of their running sum a uniform number lies."""
    takes(n, (FLOAT, DOUBLE), 0)
    x, count, to = n.inputs[0], n.attr("sample_size", 1), n.attr("dtype", INT32)
    if x.rank != 2 or count < 1 or to not in (INT32, INT64) or x.shape[1] < 1:
        fail(n, f"{count} samples of {x} as element type {to}")
    # counted is how many classes end before the number; the last one has no end, whatever its sum was rounded to
    ends = b.op("CumSum", b.op("Softmax", b.op("Cast", x, to=FLOAT), axis=1), b.constant(INT64, [], [1]))
    ends = b.op("Slice", ends, *(b.constant(INT64, [1], [i]) for i in (0, x.shape[1] - 1, 1)))
    drawn = _uniform(n, b, [x.shape[0], count, 1])
    before = b.op("LessOrEqual", b.op("Unsqueeze", ends, b.constant(INT64, [1], [1])), drawn)
    return [b.op("Cast", b.op("ReduceSum", b.op("Cast", before, to=FLOAT), b.constant(INT64, [1], [2]), keepdims=0), to=to)]


@multinomial.cases
def _(t):
    inf = float("inf")
    x = t.of("float32", [[-inf, 3, -inf], [0, -inf, -inf], [-inf, -inf, -5]])
    classes = t.of("int32", [[1] * 4, [0] * 4, [2] * 4])
    yield t(x, sample_size=4, expect=[classes], why="references draw other numbers")
    yield t(x.astype("float64"), sample_size=4, dtype=7, seed=1.0, expect=[classes.astype("int64")], why="references draw other numbers")
    yield t(t.f(2, 1), expect=[t.of("int32", [[0], [0]])], why="references draw other numbers")
