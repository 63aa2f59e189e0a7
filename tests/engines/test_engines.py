"""Every engine: memory, calls, and a model with enough rows that threads share them."""

import functools

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.errors import EngineError, OutOfMemory
from edgewise.host.session.decoder import DecoderModel, open_package
from onnx import TensorProto, helper

from engines.node_engine import ROOT, NodeEngine


def test_memory(engine):
    a = engine.alloc(1000)
    assert a % 64 == 0 and engine.read(a, 1000) == bytes(1000), "aligned and zeroed"
    engine.write(a, bytes(range(256)))
    engine.copy(a, a + 512, 256)
    assert engine.read(a + 512, 256) == bytes(range(256))
    engine.write(a, memoryview(b""))
    assert engine.read(a, 0) == b""
    engine.free(a)
    big = engine.alloc(5 << 20)  # makes a wasm memory grow
    engine.write(big, b"\7" * (5 << 20))
    assert engine.read(big + (5 << 20) - 1, 1) == b"\7"
    engine.free(big)


def test_flavour(engine, request):
    name = request.node.callspec.params["engine"]
    flavour = engine.flavour
    assert {
        "native": (flavour.startswith(("x86-64", "arm", "aarch"))),
        "wasm-simd128": flavour == "simd128",
        "wasm-relaxed-threads": flavour == "relaxed-simd",
    }[name], flavour
    assert engine.call("ew_threads", engine.handle) == {"wasm-simd128": 1}.get(name, 2)


def test_no_memory(engine):
    with pytest.raises(OutOfMemory):
        engine.alloc(1 << 50)


def test_unknown_function(engine):
    with pytest.raises(EngineError):
        engine.call("ew_no_such_function")
    engine.free(engine.alloc(8))  # still there


def test_model(engine):
    """Large enough that ew_parallel has tasks for every thread; several times, since threads sleep
    in between.
    """
    rng = np.random.default_rng(1)
    w = rng.standard_normal((96, 200), np.float32)
    g = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 200])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    session = edgewise.InferenceSession(
        helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString(),
        engine=engine,
    )
    for rows in (1, 7, 300, 300, 1500):
        x = rng.standard_normal((rows, 96), np.float32)
        np.testing.assert_allclose(
            session.run(None, {"x": x})[0], np.tanh(x @ w), rtol=1e-4, atol=1e-5
        )
    session.free()


@functools.cache
def demo():
    """The demo's model, compiled once."""
    return open_package(ROOT / "web/demo/model")


def logits_of(flavour, threads, parts):
    """The logits after each of these runs of tokens in one sequence of the demo's model."""
    engine = NodeEngine(flavour, threads)
    try:
        assert engine.flavour == "simd128"
        assert engine.call("ew_threads", engine.handle) == threads
        model = DecoderModel(demo(), engine=engine)
        sequence = model.open()
        logits = [np.array(model.logits(model.forward(sequence, part))) for part in parts]
        model.free()
        return np.array(logits)
    finally:
        engine.close()


def test_simd128_with_and_without_threads():
    """The two flavours are the same code. The results of a language model with caches are equal bit
    for bit with one thread; and with several, as long as these only share rows and columns.
    """
    for kind in ("", "-full"):
        single, shared = (
            (ROOT / f"web/dist/engine/edgewise-{name}{kind}.wasm").read_bytes()
            for name in ("simd128", "simd128-threads")
        )
        assert [(a, b) for a, b in zip(single, shared, strict=True) if a != b] == [(1, 3)]
    short, long = [5, 60, 700, 8] * 15, [5, 60, 700, 8, 9] * 40
    more = ([17], [18, 19], [20])
    want = logits_of("simd128", 1, (short, *more))
    for threads in (1, 2, 3):
        got = logits_of("simd128-threads", threads, (short, *more))
        np.testing.assert_array_equal(got, want, f"{threads} threads")
    # Attention of few tokens divides 128 keys or more among threads unless the heads occupy them:
    # three here, as the model has two heads of keys. Then the order of additions is another.
    want = logits_of("simd128", 1, (long, *more))
    for threads in (1, 2, 3):
        got = logits_of("simd128-threads", threads, (long, *more))
        again = logits_of("simd128-threads", threads, (long, *more))
        np.testing.assert_array_equal(again, got, f"{threads} threads, again")
        if threads < 3:
            np.testing.assert_array_equal(got, want, f"{threads} threads")
        else:
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
