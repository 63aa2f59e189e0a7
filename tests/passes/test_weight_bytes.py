"""Large weights of bytes, dequantized before a product of one row: the product reads the bytes."""

import numpy as np
import pytest
from edgewise.compiler.passes import read_weight_bytes, weight_bytes

from .graphs import Graph, fused, untouched

PASS = [read_weight_bytes]
NBITS = "ms.MatMulNBits"


@pytest.fixture(autouse=True)
def _small_weights(monkeypatch):
    monkeypatch.setattr(weight_bytes, "_LARGE", 0)


def weight(g, k, n, form, dtype="uint8", scales="tensor", zero=True, axis=None):
    """B [k, n], or for form "transB" [n, k]. form: where the bytes are transposed, if at all;
    axis: of the scales, the columns' by default.
    """
    stored = (k, n) if form == "plain" else (n, k)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    q = g.constant(g.random.integers(low, high, stored).astype(dtype))
    if form == "bytes transposed":
        q, stored = g.Transpose(q, perm=[1, 0]), (k, n)
    axis = stored.index(n) if axis is None else axis
    count = {"tensor": (), "one": (1,), "columns": (stored[axis],)}[scales]
    scale = g.constant(np.asarray(g.random.uniform(0.001, 0.02, count), np.float32))
    zeros = [g.constant(np.asarray(g.random.integers(low, high, count), dtype))] if zero else []
    b = g.DequantizeLinear(q, scale, *zeros, axis=axis)
    return g.Transpose(b) if form == "floats transposed" else b


@pytest.mark.parametrize("scales", ["tensor", "one", "columns"])
@pytest.mark.parametrize("form", ["plain", "bytes transposed", "floats transposed"])
def test_matmul(form, scales):
    for dtype, zero, k in (
        ("uint8", True, 48),
        ("uint8", False, 16),
        ("int8", True, 1040),
        ("int8", False, 384),
    ):
        g = Graph(seed=k)
        g.output(g.MatMul(g.input(1, 1, k), weight(g, k, 7, form, dtype, scales, zero)))
        fused(
            g,
            PASS,
            gone=["MatMul", "DequantizeLinear", "Transpose"][: 3 - (form == "plain")],
            **{NBITS: 1},
        )


def test_gemm():
    g = Graph()
    b = weight(g, 64, 24, "transB", "int8", "columns")
    g.output(g.Gemm(g.input(1, 64), b, g.weight(24), transB=1))
    fused(g, PASS, gone=["Gemm", "DequantizeLinear"], **{NBITS: 1})


def test_shares_the_embeddings_table():
    """As quantize_dynamic writes a tied table: no other form of it is computed."""
    g = Graph()
    q = g.constant(g.random.integers(0, 256, (40, 32)).astype(np.uint8))
    scale, zero = g.constant(np.float32(0.01)), g.constant(np.uint8(117))
    x = g.DequantizeLinear(g.Gather(q, g.input(value=np.array([[3]]))), scale, zero)
    g.output(g.MatMul(x, g.DequantizeLinear(g.Transpose(q, perm=[1, 0]), scale, zero)))
    fused(g, PASS, gone=["Transpose", "ByteLookup", "MatMul"], DequantizeLinear=1, **{NBITS: 1})


@pytest.mark.parametrize(
    "why", ["rows", "blocks", "columns", "axis", "floats are read", "alpha", "bias"]
)
def test_left_alone(why):
    g = Graph()
    k, n = {"blocks": (100, 24), "columns": (32, 3), "axis": (32, 32)}.get(why, (32, 24))
    x = g.input(3 if why == "rows" else 1, k)
    wrong = {"scales": "columns", "axis": 0} if why == "axis" else {}
    b = weight(g, k, n, "plain", **wrong)
    if why in ("alpha", "bias"):
        bias = g.weight(1) if why == "bias" else g.weight(n)
        g.output(g.Gemm(x, b, bias, alpha=2.0 if why == "alpha" else 1.0))
    else:
        g.output(g.MatMul(x, b))
    if why == "floats are read":
        g.output(g.ReduceSum(b))
    untouched(g, PASS, NBITS)


def test_small_weights_become_floats(monkeypatch):
    monkeypatch.undo()
    g = Graph()
    g.output(g.MatMul(g.input(1, 32), weight(g, 32, 24, "plain")))
    untouched(g, PASS, NBITS)
