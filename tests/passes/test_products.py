"""Bias, activation and residual into products; common subexpressions; logits of one position."""

import edgewise
import numpy as np
import pytest
from edgewise.compiler.declare.symbolic import Sym
from edgewise.compiler.passes import (
    common_subexpressions,
    fuse_activations,
    fuse_epilogues,
    fuse_residual_norm,
)
from edgewise.compiler.passes.last_position import keep_position
from edgewise.compiler.plan.pipeline import compile_graph
from edgewise.engine import Buffer
from engines import open_engine

from .graphs import MS, Graph, check, expected, fused

EPILOGUE = [common_subexpressions, fuse_activations, fuse_epilogues]


def product(g, x, kind="MatMul", k=32, n=24):
    if kind == "MatMulNBits":
        rng = g.random
        return g.MatMulNBits(
            x,
            rng.integers(0, 256, (n, k // 32, 16)).astype(np.uint8),
            rng.uniform(0.02, 0.1, (n, k // 32)).astype(np.float32),
            domain=MS,
            K=k,
            N=n,
            bits=4,
            block_size=32,
        )
    if kind == "Gemm":
        return g.Gemm(x, g.weight(n, k), transB=1)
    return g.MatMul(x, g.weight(k, n))


ACTIVATIONS = {
    "Relu": lambda g, y: g.Relu(y),
    "Tanh": lambda g, y: g.Tanh(y),
    "Sigmoid": lambda g, y: g.Sigmoid(y),
    "Gelu": lambda g, y: g.Gelu(y),
    "Gelu tanh": lambda g, y: g.Gelu(y, approximate="tanh"),
    "SiLU": lambda g, y: g.Mul(y, g.Sigmoid(y)),
    "QuickGelu": lambda g, y: g.Mul(y, g.Sigmoid(g.Mul(y, 1.702))),
}


@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "MatMulNBits"])
@pytest.mark.parametrize("activation", ["", *ACTIVATIONS])
@pytest.mark.parametrize("swapped", [False, True])
def test_bias_and_activation(kind, activation, swapped):
    g = Graph(20)
    y = product(g, g.input(3, 32) if kind == "Gemm" else g.input(2, 3, 32), kind)
    y = g.Add(g.weight(24), y) if swapped else g.Add(y, g.weight(24))
    g.output(ACTIVATIONS[activation](g, y) if activation else y)
    left = check(g, EPILOGUE, 1e-4)
    assert left.total() == 1 and left[kind if kind != "MatMulNBits" else "ms.MatMulNBits"] == 1, (
        dict(left)
    )


@pytest.mark.parametrize("kind", ["MatMul", "MatMulNBits"])
@pytest.mark.parametrize("swapped", [False, True])
def test_residual(kind, swapped):
    g = Graph()
    x = g.input(2, 3, 32)
    y = g.Add(product(g, x, kind, n=32), g.weight(32))
    g.output(g.Add(x, y) if swapped else g.Add(y, x))
    fused(g, EPILOGUE, Add=0)


def test_activation_and_residual():
    g = Graph()
    x = g.input(2, 3, 32)
    g.output(g.Add(x, g.Relu(g.Add(product(g, x, n=32), g.weight(32)))))
    fused(g, EPILOGUE, Add=0, Relu=0)


def test_residual_behind_a_reshape():
    """GPT-2's Conv1D: Gemm on rows, back to three dimensions, then the sum."""
    g = Graph()
    x = g.input(2, 3, 32)
    y = g.Reshape(g.Gemm(g.Reshape(x, [6, 32]), g.weight(32, 32), g.weight(32)), [2, 3, 32])
    g.output(g.Add(x, y))
    check(g, EPILOGUE, 1e-4)
    fused(g, EPILOGUE, Add=0)


def test_activation_after_the_residual_stays():
    g = Graph()
    x = g.input(2, 3, 32)
    g.output(g.Relu(g.Add(product(g, x, n=32), x)))
    fused(g, EPILOGUE, Relu=1)


@pytest.mark.parametrize("shape", [(1,), (3, 1), (3, 24), (1, 24), (2, 1, 24)])
def test_constant_that_is_no_bias(shape):
    g = Graph()
    g.output(g.Add(product(g, g.input(2, 3, 32)), g.weight(*shape)))
    check(g, EPILOGUE)


@pytest.mark.parametrize("shape", [(24,), (3, 24), (2, 3, 1), (5, 2, 3, 24)])
def test_sum_with_what_is_fed(shape):
    g = Graph()
    g.output(g.Add(product(g, g.input(2, 3, 32)), g.input(*shape)))
    check(g, EPILOGUE)


def test_bias_is_computed_later():
    g = Graph()
    y = product(g, g.input(2, 3, 32))
    g.output(g.Add(y, g.Add(g.Tanh(y), 1.0)))
    check(g, EPILOGUE)


@pytest.mark.parametrize("which", ["product", "biased", "active"])
def test_inner_value_that_is_an_output(which):
    g = Graph()
    x = g.input(2, 3, 32)
    y = product(g, x, n=32)
    b = g.Add(y, g.weight(32))
    a = g.Relu(b)
    g.output(g.Add(a, x), {"product": y, "biased": b, "active": a}[which])
    check(g, EPILOGUE)


def test_product_that_is_added_to_itself():
    g = Graph()
    y = product(g, g.input(2, 3, 32))
    g.output(g.Add(y, y))
    fused(g, EPILOGUE, Add=1)


def test_two_products_are_added():
    g = Graph()
    x = g.input(2, 3, 32)
    g.output(g.Add(product(g, x), product(g, x)))
    fused(g, EPILOGUE, MatMul=2, Add=0)


def test_gemm_with_a_sum_of_its_own():
    g = Graph()
    x = g.input(3, 32)
    g.output(
        g.Add(g.Gemm(x, g.weight(24, 32), g.weight(24), transB=1, beta=0.5), g.weight(24)),
        g.Add(g.Gemm(x, g.weight(24, 32), transB=1, alpha=2.0, beta=0.5), g.weight(24)),
    )
    fused(g, EPILOGUE, Gemm=2, Add=1)


def test_scaled_product():
    g = Graph()
    g.output(
        g.Add(
            g.FusedMatMul(g.input(2, 3, 32), g.weight(24, 32), domain=MS, transB=1, alpha=0.25),
            g.weight(24),
        )
    )
    fused(g, EPILOGUE, Add=0)


def test_what_the_kernels_lack_stays():
    g = Graph()
    y, z = product(g, g.input(3, 32)), product(g, g.input(3, 32))
    g.output(g.LeakyRelu(y, alpha=0.2), g.Mul(z, g.Sigmoid(g.Mul(z, 1.5))))
    fused(g, EPILOGUE, LeakyRelu=1, **{"ms.QuickGelu": 1})


def test_bias_that_is_widened_behind_the_product():
    g = Graph()
    y = product(g, g.input(2, 3, 32), n=5000)
    g.output(g.Add(g.Cast(g.constant(g.random.standard_normal(5000).astype(np.float16)), to=1), y))
    fused(g, EPILOGUE, Add=0)


def test_vectors():
    g = Graph()
    g.output(
        g.Add(g.MatMul(g.input(32), g.weight(32, 24)), g.weight(24)),
        g.Add(g.MatMul(g.input(3, 32), g.weight(32)), g.weight(3)),
    )
    check(g, EPILOGUE)


def test_residual_norm_behind_a_product():
    g = Graph()
    x = g.input(2, 3, 32)
    s = g.Add(x, g.Add(product(g, x, n=32), g.weight(32)))
    y = product(g, g.LayerNormalization(s, g.weight(32), g.weight(32)), n=32)
    g.output(g.Add(s, y))
    check(g, [*EPILOGUE, fuse_residual_norm])


# ---- common subexpressions

CSE = [common_subexpressions]


def test_the_same_twice():
    g = Graph()
    x = g.input(2, 5)
    g.output(g.Mul(g.Exp(x), g.Exp(x)), g.Exp(x))
    fused(g, CSE, Exp=1, Mul=1)


def test_chains():
    g = Graph()
    x = g.input(2, 5)
    a, b = (g.Add(g.Exp(g.Tanh(x)), 1.0) for _ in range(2))
    g.output(a, b, g.Sub(a, b))
    fused(g, CSE, Tanh=1, Exp=1, Add=1)


def test_what_only_looks_the_same():
    g = Graph()
    x, z = g.input(2, 5), g.input(2, 5)
    g.output(
        g.Add(x, 1.0),
        g.Add(x, 2.0),
        g.Add(z, 1.0),
        g.Sub(x, z),
        g.Sub(z, x),
        g.LeakyRelu(x, alpha=0.1),
        g.LeakyRelu(x, alpha=0.2),
        g.Softmax(x, axis=0),
        g.Softmax(x, axis=1),
        g.Concat(x, z, axis=0),
        g.Concat(z, x, axis=0),
    )
    fused(g, CSE, Add=3, Sub=2, LeakyRelu=2, Softmax=2, Concat=2)


def test_constants_that_differ_in_type_or_shape():
    g = Graph()
    x = g.input(1, 3)
    g.output(
        g.Add(x, np.ones((3,), np.float32)),
        g.Add(x, np.ones((3, 1), np.float32)),
        g.Add(x, np.ones((1, 3), np.float32)),
    )
    fused(g, CSE, Add=3)


def test_nan_and_minus_zero_constants():
    g = Graph()
    x = g.input(3)
    g.output(g.Div(x, 0.0), g.Div(x, -0.0), g.Add(x, float("nan")), g.Add(x, float("nan")))
    fused(g, CSE, Div=2)


def test_several_outputs():
    g = Graph()
    x = g.input(2, 6)
    a, b = g.Split(x, [2, 4], axis=1, outputs=2), g.Split(x, [2, 4], axis=1, outputs=2)
    g.output(g.Neg(a[0]), g.Abs(b[0]), g.Neg(a[1]), g.Exp(b[1]))
    fused(g, CSE, Split=1, Neg=2)


# ---- logits of one position


def positions(g, output, keep, at=2, axis=1):
    """({op: shapes}, the output) with only position `at` of one output kept, chosen by a
    register.
    """
    from edgewise.onnx import as_source, read_model

    graph = read_model(as_source(g.model()))
    shapes = {k: list(v.shape) for k, v in g.feeds.items()}
    seen = {}

    def transform(bound):
        keep_position(bound, output, axis, Sym(0, 1, 0, 0, 4))
        for n in bound.nodes:
            seen.setdefault(n.op, []).append(list(n.outputs[0].shape))

    plan, bound = compile_graph(
        graph, shapes, outputs=keep, registers=[("last", 0, 4)], transform=transform
    )
    engine = open_engine("native")
    loaded = engine.load(plan)
    store = edgewise.host.session.weights.WeightStore(engine.device)
    fresh = store.connect(loaded)
    addresses = {}
    for i, slot in enumerate(plan.slots):
        if slot.kind in ("input", "output"):
            addresses[slot.name] = engine.alloc(slot.nbytes), slot
            loaded.bind(i, Buffer(addresses[slot.name][0], slot.nbytes))
    store.init(loaded, fresh)
    results = []
    for x in range(5):
        loaded.register(0, x)
        for name, (address, slot) in addresses.items():
            if slot.kind == "input":
                engine.write(address, np.ascontiguousarray(g.feeds[name]))
        loaded.run()
        results.append(
            {
                n: (
                    np.frombuffer(engine.read(a, s.nbytes), np.float32).reshape(
                        bound.outputs[n].shape
                    )
                )
                for n, (a, s) in addresses.items()
                if s.kind == "output"
            }
        )
    loaded.free()
    for address, _ in addresses.values():
        engine.free(address)
    store.free()
    return seen, results


def expect_positions(g, output, others=(), axis=1):
    want = dict(zip(g.outputs, expected(g)))
    seen, results = positions(g, output, [output, *others], axis=axis)
    for x, got in enumerate(results):
        np.testing.assert_allclose(
            got[output], np.take(want[output], [x], axis=axis), rtol=1e-4, atol=1e-4
        )
        for o in others:
            np.testing.assert_allclose(got[o], want[o], rtol=1e-4, atol=1e-4)
    return seen


def head(g, x):
    y = g.MatMul(g.LayerNormalization(x, g.weight(32), g.weight(32)), g.weight(32, 24))
    return g.Tanh(g.Add(y, g.weight(24)))


def test_last_position_moves_up():
    g = Graph()
    g.output(head(g, g.input(1, 5, 32)))
    seen = expect_positions(g, g.outputs[0])
    assert (
        seen["MatMul"] == [[1, 1, 24]]
        and seen["LayerNormalization"] == [[1, 1, 32]]
        and seen["Slice"] == [[1, 1, 32]]
    )


def heads(g, h, n=4, dim=8):
    return g.Transpose(
        g.Reshape(g.MatMul(h, g.weight(32, n * dim)), [1, 5, n, dim]), perm=[0, 2, 1, 3]
    )


@pytest.mark.parametrize("mask", ["none", "causal", "added", "row"])
def test_last_position_is_one_query(mask):
    """After the last layer's keys and values all that there is, is one row: a query, its sum of
    values, and what follows.
    """
    g = Graph()
    x = g.input(1, 5, 32)
    h = g.LayerNormalization(x, g.weight(32), g.weight(32))
    q, k, v = heads(g, h), heads(g, h), heads(g, h)
    scores = g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2]))
    if mask != "none":
        m = {
            "causal": np.triu(np.full((1, 1, 5, 5), -1e9, np.float32), 1),
            "added": g.weight(1, 1, 5, 5),
            "row": g.weight(1, 1, 1, 5),
        }[mask]
        scores = g.Add(scores, m)
    y = g.Reshape(
        g.Transpose(g.MatMul(g.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3]), [1, 5, 32]
    )
    g.output(head(g, g.Add(g.MatMul(y, g.weight(32, 32)), x)))
    seen = expect_positions(g, g.outputs[0])
    assert seen["Attention"] == [[1, 1, 32]] and sorted(seen["MatMul"]) == [
        [1, 1, 24],
        [1, 1, 32],
        [1, 1, 32],
        [1, 5, 32],
        [1, 5, 32],
    ]


def test_last_position_of_a_norm_with_its_sum():
    g = Graph()
    x, y = g.input(1, 5, 32), g.input(1, 5, 32)
    h, _, _, total = g.SkipSimplifiedLayerNormalization(x, y, g.weight(32), domain=MS, outputs=4)
    g.output(g.Add(g.MatMul(h, g.weight(32, 32)), total))
    assert expect_positions(g, g.outputs[0])["SkipSimplifiedLayerNormalization"] == [[1, 1, 32]]


def test_last_position_of_quantized_activations():
    """Scale and zero point are those of all rows, as they were."""
    g = Graph()
    a, scale, zero = g.DynamicQuantizeLinear(g.input(1, 5, 32), outputs=3)
    y = g.MatMulInteger(a, g.random.integers(-128, 128, (32, 24)).astype(np.int8), zero)
    g.output(g.Tanh(g.Mul(g.Cast(y, to=1), g.Mul(scale, np.float32(0.01)))))
    seen = expect_positions(g, g.outputs[0])
    assert seen["QuantizedMatMul"] == [[1, 1, 24]] and seen["DynamicQuantizeLinear"] == [[1, 5, 32]]


def test_last_position_through_self_attention():
    g = Graph()
    x = g.input(1, 5, 32)
    a = g.MatMul(g.Softmax(g.MatMul(x, g.Transpose(x, perm=[0, 2, 1])), axis=-1), x)
    g.output(head(g, g.Add(a, x)))
    seen = expect_positions(g, g.outputs[0])
    assert seen["Add"][-1][1] == 1 and seen["Attention"] == [[1, 1, 1, 32]]


def test_last_position_through_rows():
    """Gemm on [batch * sequence, width], as GPT-2."""
    g = Graph()
    x = g.input(1, 5, 32)
    y = g.Reshape(g.Gemm(g.Reshape(x, [-1, 32]), g.weight(32, 24), g.weight(24)), [1, 5, 24])
    g.output(g.Add(y, g.weight(24)))
    assert expect_positions(g, g.outputs[0])["Gemm"] == [[1, 24]]


def test_rows_that_others_need():
    g = Graph()
    x = g.input(1, 5, 32)
    hidden = g.LayerNormalization(x, g.weight(32), g.weight(32))
    g.output(g.MatMul(hidden, g.weight(32, 24)), g.Exp(hidden))
    seen = expect_positions(g, g.outputs[0], [g.outputs[1]])
    assert seen["MatMul"] == [[1, 1, 24]] and seen["LayerNormalization"] == [[1, 5, 32]]


@pytest.mark.parametrize(
    "make",
    [
        lambda g, x: g.Softmax(x, axis=1),
        lambda g, x: g.CumSum(x, np.array(1)),
        lambda g, x: g.Transpose(g.Transpose(x, perm=[0, 2, 1]), perm=[0, 2, 1]),
        lambda g, x: g.LayerNormalization(x, g.weight(5, 32), g.weight(5, 32), axis=1),
        lambda g, x: g.MatMul(g.weight(5, 5), x),
        lambda g, x: g.Sub(x, g.ReduceMean(x, axes=[1])),
        lambda g, x: g.Add(x, g.weight(5, 1)),
        lambda g, x: g.Add(x, g.weight(1, 1, 32)),
        lambda g, x: g.Add(g.input(1, 1, 32), x),
        lambda g, x: g.Add(g.input(32), x),
    ],
)
def test_what_mixes_rows(make):
    g = Graph()
    g.output(g.Tanh(make(g, g.input(1, 5, 32))))
    expect_positions(g, g.outputs[0])


def test_batches():
    g = Graph()
    g.output(head(g, g.input(3, 5, 32)))
    assert expect_positions(g, g.outputs[0])["MatMul"] == [[3, 1, 24]]


def test_gemm_with_a_row_of_its_own_for_each_row():
    g = Graph()
    x = g.input(1, 5, 32)
    g.output(
        g.Reshape(g.Gemm(g.Reshape(x, [5, 32]), g.weight(32, 24), g.weight(5, 24)), [1, 5, 24])
    )
    expect_positions(g, g.outputs[0])


@pytest.mark.parametrize(
    "weights, attrs",
    [
        ((8, 6, 3, 3), {"pads": [1] * 4}),
        ((8, 6, 1, 1), {}),
        ((6, 1, 3, 3), {"pads": [1] * 4, "group": 6}),
        ((6, 2, 3, 3), {"pads": [1] * 4, "group": 3}),
    ],
    ids=str,
)
def test_convolutions(weights, attrs):
    for activation, left in (
        ("Relu", 1),
        ("SiLU", 1),
        ("Sigmoid", 1),
        ("Relu6", 1),
        ("positive", 1),
        ("some", 3),
    ):
        g = Graph()
        y = g.Conv(g.input(2, 6, 7, 9), g.weight(*weights), g.weight(weights[0]), **attrs)
        if activation in ("Relu6", "positive", "some"):
            low, high = {"Relu6": (0.0, 0.5 * 12), "positive": (0.0, None), "some": (-1.0, 6.0)}[
                activation
            ]
            y = g.Clip(y, np.float32(low), *([np.float32(high)] if high is not None else []))
        else:
            y = ACTIVATIONS[activation](g, y)
        g.output(y)
        assert check(g, EPILOGUE, 1e-4).total() == left, activation
    g = Graph()
    x = g.input(2, weights[0], 7, 9)
    g.output(g.Relu(g.Add(g.Conv(g.input(2, 6, 7, 9), g.weight(*weights), **attrs), x)))
    assert check(g, EPILOGUE, 1e-4).total() == 2
