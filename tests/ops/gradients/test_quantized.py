"""Gradients through quantized products and fake quantization against PyTorch."""

import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

from .compare import MS, R, check, close, f
from .model import gradients, node_model

# ---- quantized weights ----


def unpacked(w, bits, k):
    """[N, K] numbers of bytes [N, ...] that hold `bits` wide ones, low first."""
    parts = np.stack([w.reshape(len(w), -1) >> s & (1 << bits) - 1 for s in range(0, 8, bits)], -1)
    return parts.reshape(len(w), -1)[:, :k].astype(np.float32)


@pytest.mark.parametrize("bits", (2, 4, 8))
@pytest.mark.parametrize("zeros", (None, "packed", "float"))
@pytest.mark.parametrize(
    "rows, k, cols, block",
    [((1,), 64, 48, 32), ((5,), 100, 17, 16), ((2, 17), 130, 9, 64), ((33,), 300, 700, 32)],
)
def test_matmul_nbits(engine, bits, zeros, rows, k, cols, block):
    blocks = -(-k // block)
    w, scales, bias = (
        R.integers(0, 256, (cols, blocks, block * bits // 8), np.uint8),
        np.abs(f(cols, blocks)) * 0.05,
        f(cols),
    )
    z = {
        None: None,
        "packed": R.integers(0, 256, (cols, -(-blocks * bits // 8)), np.uint8),
        "float": (f(cols, blocks) + 2).astype(np.float32),
    }[zeros]
    zero = (
        np.full((cols, blocks), 2.0 ** (bits - 1))
        if z is None
        else unpacked(z, bits, blocks)
        if zeros == "packed"
        else z
    )
    dense = (unpacked(w, bits, k) - zero.repeat(block, 1)[:, :k]) * scales.repeat(block, 1)[:, :k]
    check(
        engine,
        "MatMulNBits",
        [f(*rows, k), w, scales, z, None, bias],
        lambda a, w, s, z, g, bias: a @ torch.tensor(dense.T.astype(np.float32)) + bias,
        domain=MS,
        fixed=(2, 3),
        K=k,
        N=cols,
        bits=bits,
        block_size=block,
    )


@pytest.mark.parametrize("kind", (0, 1))
def test_matmul_bnb4(engine, kind):
    k, cols, block = 128, 7, 32
    w, absmax = R.integers(0, 256, cols * k // 2).astype(np.uint8), np.abs(f(cols * k // block))
    attrs = {
        "domain": MS,
        "fixed": (2,),
        "K": k,
        "N": cols,
        "block_size": block,
        "quant_type": kind,
    }
    model, feeds = node_model("MatMulBnb4", [np.eye(k, dtype=np.float32), w, absmax], **attrs)
    dense = torch.tensor(gradients(model, feeds, engine)[0]["y0"])  # what it multiplies by
    check(engine, "MatMulBnb4", [f(11, k), w, absmax], lambda a, w, s: a @ dense, **attrs)


def graph_model(nodes, feeds, constants, output="y0"):
    inputs = [helper.make_tensor_value_info(n, 1, x.shape) for n, x in feeds.items()]
    graph = helper.make_graph(
        [helper.make_node(op, i, o, **a) for op, i, o, a in nodes],
        "case",
        inputs,
        [helper.make_tensor_value_info(output, 1, None)],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "dtype, zero",
    [("int8", 0), ("int8", 3), ("uint8", 128), ("uint8", "columns"), ("int8", None)],
    ids=str,
)
@pytest.mark.parametrize("columns", (False, True))
@pytest.mark.parametrize("k, n", [(40, 50), (7, 5), (300, 700)])
def test_dynamically_quantized_product(engine, dtype, zero, columns, k, n):
    """As onnxruntime's quantize_dynamic writes it: straight through to the activations, by the
    weights as they are, which stay bytes.
    """
    low = -128 if dtype == "int8" else 0
    w = R.integers(low, low + 256, (k, n)).astype(dtype)
    scale = (np.abs(f(n)) * 0.01 if columns else np.float32(0.01)).astype(np.float32)
    zeros = (
        R.integers(100, 150, n).astype(dtype)
        if zero == "columns"
        else None
        if zero is None
        else np.array(zero, dtype)
    )
    feeds = {"x": f(2, 9, k)}
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["a", "as", "az"], {}),
        ("MatMulInteger", ["a", "w", "az"] + (["wz"] if zeros is not None else []), ["i"], {}),
        ("Cast", ["i"], ["c"], {"to": 1}),
        ("Mul", ["as", "ws"], ["s"], {}),
        ("Mul", ["c", "s"], ["y0"], {}),
    ]
    model = graph_model(
        nodes, feeds, {"w": w, "ws": scale, **({"wz": zeros} if zeros is not None else {})}
    )
    _, grads, seeds, plan = gradients(model, feeds, engine)
    dense = (w.astype(np.float32) - (0 if zeros is None else zeros.astype(np.float32))) * scale
    close(grads["x"], seeds["y0"] @ dense.T, 1e-4, "gradient of x")
    assert not [s for s in plan.slots if s.kind == "computed" and s.nbytes > 2 * k * n], (
        "the weights stay bytes, packed"
    )


@pytest.mark.parametrize("per_axis", (False, True))
def test_quantize_dequantize(engine, per_axis):
    x, scale = f(3, 4, 5) * 3, np.abs(f(4)) * 0.02 + 0.01 if per_axis else np.float32(0.02)
    zero = R.integers(-20, 20, 4).astype(np.int8) if per_axis else np.int8(7)
    feeds = {"x": x, "s": np.asarray(scale)}
    model = graph_model(
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"], {"axis": 1}),
            ("DequantizeLinear", ["q", "s", "z"], ["y0"], {"axis": 1}),
        ],
        feeds,
        {"z": zero},
    )
    got, grads, seeds, _ = gradients(model, feeds, engine)
    tx, ts = torch.tensor(x, requires_grad=True), torch.tensor(scale, requires_grad=True)
    tz = torch.tensor(zero.astype(np.float32 if per_axis else np.int32))
    y = (
        torch._fake_quantize_learnable_per_channel_affine(tx, ts, tz, 1, -128, 127, 1.0)
        if per_axis
        else torch._fake_quantize_learnable_per_tensor_affine(
            tx, ts.reshape(1), tz.float().reshape(1), -128, 127, 1.0
        )
    )
    (y * torch.tensor(seeds["y0"])).sum().backward()
    close(got["y0"], y.detach().numpy(), 1e-5, "output")
    close(grads["x"], tx.grad.numpy(), 1e-5, "gradient of x")
    assert (tx.grad == 0).any()


@pytest.mark.parametrize(
    "shape, more",
    [((), {}), ((4,), {"axis": 1}), ((3,), {"axis": 0}), ((3, 2, 5), {"axis": 1, "block_size": 3})],
    ids=str,
)
def test_dequantize(engine, shape, more):
    q, scale = R.integers(-128, 128, (3, 4, 5)).astype(np.int8), np.abs(f(*shape))
    zero = R.integers(-9, 9, shape).astype(np.int8)

    def each(v):
        return (
            v
            if v.ndim == 0
            else (
                v.repeat_interleave(3, 1)[:, :4]
                if more.get("block_size")
                else v.reshape([-1] + [1] * (2 - more["axis"]))
            )
        )

    check(
        engine,
        "DequantizeLinear",
        [q, scale, zero],
        lambda q, s, z: (torch.tensor(q).float() - each(torch.tensor(z).float())) * each(s),
        **more,
    )


def test_fake_quant(engine):
    x, scale, zero = f(3, 40) * 30, np.float32(0.25), np.float32(100)
    check(
        engine,
        "FakeQuant",
        [x, scale, zero],
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, 0.25, 100, 0, 255),
        domain=MS,
        fixed=(1, 2),
        quant_min=0,
        quant_max=255,
    )
