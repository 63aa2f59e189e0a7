"""Random numbers and dropout, and independence from the number of threads."""

import numpy as np
import pytest
from edgewise.compiler.bind import bind
from edgewise.compiler.bind.autodiff import add_gradients
from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.compiler.plan.builder import lower
from edgewise.engine.native import NativeEngine
from edgewise.ir import Value
from edgewise.onnx import as_source, read_model
from onnx import helper, numpy_helper

from ..gradients.compare import f
from .steps import close, run, run_plan


# ---- random numbers ----
def philox(counter, key, rounds=7):
    """Philox-4x32 of arrays of words."""
    c, k = [np.asarray(x, np.uint64) for x in counter], list(key)
    for _ in range(rounds):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
        c = [
            b >> high ^ c[1] ^ np.uint64(k[0]),
            b & low,
            a >> high ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(n, seed, stream):
    """What core/kernels/random/random.c draws for n elements."""
    blocks = np.arange(-(-n // 16) * 4)
    w = philox(
        [blocks, 0 * blocks, 0 * blocks + stream, 0 * blocks], [seed & 0xFFFFFFFF, seed >> 32]
    )
    return np.stack(w, 0).reshape(4, -1, 4).transpose(1, 0, 2).reshape(-1)[:n].astype(np.uint32)


def test_philox():
    """Known answers of Random123 1.14."""
    assert [int(x[0]) for x in philox([[0]] * 4, [0, 0], 10)] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    assert [int(x[0]) for x in philox([[0xFFFFFFFF]] * 4, [0xFFFFFFFF] * 2, 10)] == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]
    assert [int(x[0]) for x in philox([[0]] * 4, [0, 0])] == [
        0x5F6FB709,
        0x0D893F64,
        0x4F121F81,
        0x4F730A48,
    ]


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 64), (5, 7001)], ids=str)
def test_random(engine, shape):
    seed, n = 0x123456789ABCDEF, int(np.prod(shape))
    x, d, r = f(*shape), f(*shape), words(n, seed, 3).reshape(shape)

    def build(g, x, d, seed):
        a = g.op("Dropout", x, seed, domain="edgewise", ratio=0.3, stream=3)
        b = g.op(
            "Dropout",
            g.transpose(g.transpose(d, range(d.rank)[::-1]), range(d.rank)[::-1]),
            seed,
            domain="edgewise",
            ratio=0.7,
            stream=3,
        )
        return {
            "a": a,
            "b": b,
            "u": g.op(
                "RandomUniform",
                seed,
                domain="edgewise",
                shape=list(shape),
                low=-0.5,
                high=0.25,
                stream=3,
            ),
            "v": g.op("RandomUniform", seed, domain="edgewise", shape=list(shape), stream=4),
        }

    (out,) = run(engine, build, {"x": x, "d": d, "seed": np.array([seed], np.int64)})
    close(out["a"], np.where(r >= 0.3 * 2**32, x / 0.7, 0), 1e-6)
    close(out["b"], np.where(r >= 0.7 * 2**32, d / 0.3, 0), 1e-6)
    close(out["u"], (r >> 8) * 2.0**-24 * 0.75 - 0.5, 1e-6)
    assert (out["v"] == (words(n, seed, 4).reshape(shape) >> 8) * np.float32(2.0**-24)).all()


@pytest.mark.parametrize(
    "opset, training_mode", [(7, None), (12, None), (13, True), (22, True), (22, False)]
)
def test_dropout(engine, opset, training_mode):
    """A file's Dropout: drawn from the seed where the graph is bound for training, with the same
    mask backwards; nothing else.
    """
    constants = [
        numpy_helper.from_array(np.float32(0.25), "ratio"),
        numpy_helper.from_array(np.array(bool(training_mode)), "mode"),
    ]
    inputs = ["x"] if opset < 12 else ["x", "ratio"] + ([] if training_mode is None else ["mode"])
    node = helper.make_node(
        "Dropout", inputs, ["y", "mask"], **({"ratio": 0.25} if opset < 12 else {})
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, [50, 40])],
        [
            helper.make_tensor_value_info("y", 1, None),
            helper.make_tensor_value_info("mask", 9, None),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    x, dy = f(50, 40), f(50, 40)
    for training in (False, True):
        bound = bind(
            read_model(as_source(model.SerializeToString())), {"x": [50, 40]}, training=training
        )
        d = bound.inputs["dy"] = Value("dy", FLOAT, [50, 40], role="input")
        (bound.outputs["dx"],) = add_gradients(
            bound, [(bound.outputs["y"], d)], [bound.inputs["x"]]
        )
        assert ("seed" in bound.inputs) == (training and training_mode is not False)
        feeds = {"x": x, "dy": dy} | (
            {"seed": np.array([5], np.int64)} if "seed" in bound.inputs else {}
        )
        (out,) = run_plan(engine, lower(bound), feeds)
        kept = (
            words(2000, 5, 1).reshape(50, 40) >= 2**30
            if "seed" in bound.inputs
            else np.ones((50, 40), bool)
        )
        assert (out["mask"] == kept).all()
        factor = np.float32(1 / 0.75) if "seed" in bound.inputs else 1
        close(out["y"], np.where(kept, x * factor, 0), 1e-6)
        close(out["dx"], np.where(kept, dy * factor, 0), 1e-6)


def test_threads_change_nothing():
    """Sums run over the same parts whatever the number of threads: the same bits."""
    x, dy, scale = f(3000, 96), f(3000, 96), f(96)
    logits, labels = f(700, 301), np.random.default_rng(0).integers(0, 301, 700)

    def build(g, x, dy, scale, logits, labels):
        dx, dscale, dbias = g.op(
            "NormGrad", x, dy, scale, domain="edgewise", outputs=3, rms=0, epsilon=1e-5, cols=96
        )
        return {
            "dx": dx,
            "dscale": dscale,
            "dbias": dbias,
            "loss": g.op("CrossEntropy", logits, labels, domain="edgewise"),
            "norm": g.op("SumOfSquares", x, dy, scale, domain="edgewise"),
        }

    feeds = {"x": x, "dy": dy, "scale": scale, "logits": logits, "labels": labels}
    outs = []
    for threads in (1, 2, 3):
        engine = NativeEngine(threads=threads)
        outs.append(run(engine, build, feeds)[0])
    for out in outs[1:]:
        assert all((out[k] == outs[0][k]).all() for k in out)
