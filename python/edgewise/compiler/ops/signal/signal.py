"""Fourier transforms of any length, window functions and the mel scale, composed of matrix products
and constants.

Complex numbers are pairs in the last dimension. A transform of up to DIRECT elements is one matrix
product; a longer one of n = p * q elements is p-point and q-point transforms with a rotation in
between (Cooley and Tukey 1965, in the four-step form of Gentleman and Sande 1966); one of a large
prime is a circular convolution of a power of two (Bluestein 1970). Tables are nodes over constants
in double precision, so that plans stay small and sessions compute them once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, FLOATS, INT64, INTEGERS
from ...declare.op import Op, axis_of, fail, product, takes
from ...declare.registers import floor_div
from ...declare.symbolic import NotStatic, Sym, TooShort

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import Binder, BoundNode, Decomposed, Dim, Value

# Elements of a transform that is one matrix product, at most.
DIRECT = 512


def _count(graph: Binder, n: Dim, shape: Sequence[Dim] | None = None) -> Value:
    """0 .. n - 1 as int64."""
    v = graph.op("Range", *(graph.constant(INT64, [], [x]) for x in (0, n, 1)))
    return v if shape is None else graph.reshape(v, shape)


def _angles(graph: Binder, dtype: int, turns: Value, n: int, sign: int) -> list[Value]:
    """(cos, sin) of sign * turns / n of a full circle; turns: int64 tensor."""
    turns = graph.op("Mod", turns, graph.constant(INT64, [], [n]))
    a = graph.op(
        "Mul",
        graph.op("Cast", turns, to=DOUBLE),
        graph.constant(DOUBLE, [], [sign * 2 * math.pi / n]),
    )
    return [graph.op("Cast", graph.op(f, a), to=dtype) for f in ("Cos", "Sin")]


def _rotated(graph: Binder, x: Value, cos: Value, sin: Value) -> Value:
    """Complex x [..., 2] times cos + i sin, real tensors that broadcast to x without its last
    dimension.
    """
    last = graph.ints([-1])
    cos, sin = (graph.op("Unsqueeze", v, last) for v in (cos, sin))
    swapped = graph.op("Slice", x, graph.ints([1]), graph.ints([-3]), last, last)
    return graph.op(
        "Add",
        graph.op("Mul", x, cos),
        graph.op("Mul", swapped, graph.op("Concat", graph.op("Neg", sin), sin, axis=-1)),
    )


def _matrix(graph: Binder, dtype: int, n: int, k: int, parts: int, sign: int) -> Value:
    """[n * parts, k * 2]: the matrix that computes the first k outputs of a transform of n numbers,
    each of 1 (real) or 2 (complex) parts.
    """
    cos, sin = (
        graph.op("Reshape", v, graph.ints([n, 1, k, 1]))
        for v in _angles(
            graph, dtype, graph.op("Mul", _count(graph, n, [n, 1]), _count(graph, k)), n, sign
        )
    )
    w = graph.op("Concat", cos, sin, axis=3)
    if parts == 2:
        w = graph.op("Concat", w, graph.op("Concat", graph.op("Neg", sin), cos, axis=3), axis=1)
    return graph.op("Reshape", w, graph.ints([n * parts, k * 2]))


def _transform(graph: Binder, x: Value, sign: int, keep: int | None = None) -> Value:
    """x [rows, n, parts] -> [rows, keep or n, 2]: sum over j of x[j] e^(sign 2 pi i j k / n)."""
    rows, n, parts = x.shape
    k = keep or n
    if n <= DIRECT:
        y = graph.op(
            "MatMul",
            graph.reshape(x, [rows, n * parts]),
            _matrix(graph, x.dtype, n, k, parts, sign),
        )
        return graph.reshape(y, [rows, k, 2])
    p = next((d for d in range(math.isqrt(n), 1, -1) if n % d == 0), 1)
    y = _split(graph, x, sign, p, n // p) if p > 1 else _chirp(graph, x, sign)
    return y if k == n else graph.op("Slice", y, graph.ints([0]), graph.ints([k]), graph.ints([1]))


def _split(graph: Binder, x: Value, sign: int, p: int, q: int) -> Value:
    """A transform of n = p q elements: the input index is j = a q + b, the output index c + p d."""
    rows, n, parts = x.shape
    x = graph.op("Transpose", graph.reshape(x, [rows, p, q, parts]), perm=[0, 2, 1, 3])
    y = _transform(graph, graph.reshape(x, [rows * q, p, parts]), sign)  # [rows, b, c]
    y = _rotated(
        graph,
        graph.reshape(y, [rows, q, p, 2]),
        *_angles(
            graph, x.dtype, graph.op("Mul", _count(graph, q, [q, 1]), _count(graph, p)), n, sign
        ),
    )
    y = graph.reshape(graph.op("Transpose", y, perm=[0, 2, 1, 3]), [rows * p, q, 2])
    y = graph.reshape(_transform(graph, y, sign), [rows, p, q, 2])  # [rows, c, d]
    return graph.reshape(graph.op("Transpose", y, perm=[0, 2, 1, 3]), [rows, n, 2])


def _chirp(graph: Binder, x: Value, sign: int) -> Value:
    """A transform as a convolution with e^(-sign pi i j^2 / n).

    It follows from jk = (j^2 + k^2 - (k - j)^2) / 2.
    """
    rows, n, parts = x.shape
    if parts == 1:
        x = _resized(graph, x, 2, 2)
    m = 1 << (2 * n - 2).bit_length()
    j = _count(graph, n)
    cos, sin = _angles(graph, x.dtype, graph.op("Mul", j, j), 2 * n, sign)
    a = _transform(graph, _resized(graph, _rotated(graph, x, cos, sin), 1, m), -1)
    wave = graph.op(
        "Concat",
        *(graph.op("Unsqueeze", v, graph.ints([-1])) for v in (cos, graph.op("Neg", sin))),
        axis=-1,
    )  # [n, 2]
    back = graph.op(
        "Slice", wave, graph.ints([n - 1]), graph.ints([0]), graph.ints([0]), graph.ints([-1])
    )  # n - 1, ..., 1
    zeros = graph.op("Expand", graph.constant(x.dtype, [], [0.0]), graph.ints([m - 2 * n + 1, 2]))
    b = _transform(
        graph,
        graph.op("Unsqueeze", graph.op("Concat", wave, zeros, back, axis=0), graph.ints([0])),
        -1,
    )
    real, imaginary = (
        graph.op("Gather", b, graph.constant(INT64, [], [i]), axis=2) for i in range(2)
    )
    c = _transform(graph, _rotated(graph, a, real, imaginary), 1)
    c = graph.op(
        "Mul",
        graph.op("Slice", c, graph.ints([0]), graph.ints([n]), graph.ints([1])),
        graph.constant(x.dtype, [], [1.0 / m]),
    )
    return _rotated(graph, c, cos, sin)


def _resized(graph: Binder, x: Value, axis: int, n: int) -> Value:
    """The first n elements along an axis, followed by zeros where there are fewer."""
    pads = [0] * (2 * x.rank)
    pads[x.rank + axis] = n - x.shape[axis]
    return x if n == x.shape[axis] else graph.op("Pad", x, graph.ints(pads))


def _dft(
    node: BoundNode, graph: Binder, x: Value, axis: int, length: int, inverse: int, onesided: int
) -> Value:
    """DFT of x along an axis; the last dimension is 1 (real) or 2."""
    if x.rank < 2 or x.shape[-1] not in (1, 2) or axis == x.rank - 1:
        fail(
            node,
            f"its input is {x} and its axis {axis}; a last dimension of 1 (real) or 2 (complex),"
            " and another axis, are expected",
        )
    if isinstance(x.shape[axis], Sym) or isinstance(length, Sym):
        raise NotStatic("a transform of a length that depends on a register")
    if not 1 <= length <= 1 << 24:
        fail(node, f"its length is {length}; 1 to 2^24 is expected")
    perm = [i for i in range(x.rank - 1) if i != axis] + [axis, x.rank - 1]
    x = graph.op("Transpose", x, perm=perm)
    lead, half = list(x.shape[:-2]), length // 2 + 1
    x = graph.reshape(x, [product(lead), *x.shape[-2:]])
    if inverse and onesided:  # the second half is the conjugate of the first
        x = _resized(graph, _resized(graph, x, 1, half), 2, 2)
        rest = list(range(length - half, 0, -1))
        if rest:
            mirrored = graph.op(
                "Mul",
                graph.op("Gather", x, graph.ints(rest), axis=1),
                graph.constant(x.dtype, [2], [1.0, -1.0]),
            )
            x = graph.op("Concat", x, mirrored, axis=1)
    else:
        x = _resized(graph, x, 1, length)
    y = _transform(graph, x, 1 if inverse else -1, half if onesided and not inverse else None)
    if inverse:
        y = graph.op("Mul", y, graph.constant(y.dtype, [], [1.0 / length]))
        if onesided:
            y = graph.op("Slice", y, graph.ints([0]), graph.ints([1]), graph.ints([2]))
    y = graph.reshape(y, [*lead, *y.shape[1:]])
    return graph.op("Transpose", y, perm=[perm.index(i) for i in range(y.rank)])


dft = Op("DFT")


@dft.decompose
def dft_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Before opset 20 `axis` is an attribute."""
    takes(node, (FLOAT, DOUBLE), 0)
    x, inverse, onesided = node.inputs[0], node.attr("inverse", 0), node.attr("onesided", 0)
    axis = axis_of(
        node,
        (
            node.need(2)[0]
            if node.opset >= 20 and node.has(2)
            else node.attr("axis", 1)
            if node.opset < 20
            else -2
        ),
        x.rank,
    )
    length = (
        node.need(1)[0]
        if node.has(1)
        else 2 * (x.shape[axis] - 1)
        if inverse and onesided
        else x.shape[axis]
    )
    return [_dft(node, graph, x, axis, length, inverse, onesided)]


stft = Op("STFT")


@stft.decompose
def stft_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    takes(node, (FLOAT, DOUBLE), 0)
    x, window = node.inputs[0], node.input(2)
    (step,) = node.need(1)
    length = node.need(3)[0] if node.has(3) else window.shape[0] if window is not None else None
    if length is None:
        fail(node, "it has neither a window nor a frame_length")
    if x.rank == 2:  # a real signal without its last axis of 1, which onnxruntime takes
        x = graph.op("Unsqueeze", x, graph.ints([2]))
    if x.rank == 3 and isinstance(x.shape[1], Sym) and x.shape[1].min < length + step:
        raise TooShort(f"frames of {length} elements of a signal of at least {x.shape[1].min}")
    if (
        x.rank != 3
        or step < 1
        or not 1 <= length <= x.shape[1]
        or window is not None
        and list(window.shape) != [length]
    ):
        fail(
            node,
            f"frames of {length} elements every {step} elements, with the window {window}, do not"
            f" fit the signal {x}",
        )
    frames = floor_div(x.shape[1] - length, step) + 1
    positions = graph.op(
        "Add",
        graph.op("Mul", _count(graph, frames, [frames, 1]), graph.constant(INT64, [], [step])),
        _count(graph, length),
    )
    x = graph.op("Gather", x, positions, axis=1)  # [batch, frames, length, parts]
    if window is not None:
        x = graph.op("Mul", x, graph.op("Reshape", window, graph.ints([length, 1])))
    return [_dft(node, graph, x, 2, length, 0, node.attr("onesided", 1))]


def _as_type(
    node: BoundNode, graph: Binder, values: list[float], shape: Sequence[int]
) -> list[Value]:
    """Numbers as a constant of the attribute output_datatype."""
    to = node.attr("output_datatype", FLOAT)
    if to not in FLOATS and to not in INTEGERS:
        fail(node, f"its output_datatype is {to}; a type of numbers is expected")
    return [
        graph.op(
            "Cast",
            graph.constant(DOUBLE, shape, values),
            to=FLOAT if to in (FLOAT16, BFLOAT16) else to,
        )
    ]


def _declare_window(name: str, terms: Sequence[float]) -> None:
    """Declares the window sum over k of a_k cos(2 pi k i / N); terms: the coefficients a_k."""
    o = Op(name)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> Decomposed:
        (size,) = node.need(0)
        if not 0 <= size <= 1 << 24:
            fail(node, f"its size is {size}; 0 to 2^24 is expected")
        whole = (size if node.attr("periodic", 1) else size - 1) or 1
        return _as_type(
            node,
            graph,
            [
                sum(a * math.cos(2 * math.pi * k * i / whole) for k, a in enumerate(terms))
                for i in range(size)
            ],
            [size],
        )


_declare_window("HannWindow", [0.5, -0.5])
_declare_window("HammingWindow", [25 / 46, -21 / 46])
_declare_window("BlackmanWindow", [0.42, -0.5, 0.08])

mel = Op("MelWeightMatrix")


@mel.decompose
def mel_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """[dft_length / 2 + 1, num_mel_bins]: triangles with corners that are evenly spaced on the mel
    scale, 2595 log10(1 + f / 700).
    """
    (bins,), (length,), (rate,), (low,), (high,) = (node.need(i) for i in range(5))
    spectrum = length // 2 + 1
    if (
        not 1 <= bins <= 1 << 12
        or not 1 <= length <= 1 << 20
        or rate < 1
        or not 0 <= low <= high <= rate
    ):
        fail(node, f"{bins} bins of a spectrum of {length} at {rate} Hz from {low} to {high} Hz")
    if spectrum * bins > 1 << 24:
        fail(node, f"its output [{spectrum}, {bins}] is too large")
    first, last = (2595 * math.log10(1 + f / 700) for f in (low, high))
    step = (last - first) / (bins + 2)
    at = [
        int((length + 1) * (700 * (10 ** ((i * step + first) / 2595) - 1)) // rate)
        for i in range(bins + 2)
    ]
    if max(at) > spectrum:
        fail(node, f"its bins up to {high} Hz exceed the spectrum, which ends at {rate / 2} Hz")
    out = [0.0] * (spectrum * bins)
    for i, (left, middle, right) in enumerate(zip(at, at[1:], at[2:])):
        if left == middle and middle < spectrum:
            out[middle * bins + i] = 1.0
        for j in range(left, min(middle + 1, spectrum)):
            if left != middle:
                out[j * bins + i] = (j - left) / (middle - left)
        for j in range(middle, min(right, spectrum)):
            if right != middle:
                out[j * bins + i] = (right - j) / (right - middle)
    return _as_type(node, graph, out, [spectrum, bins])
