"""Every engine: memory, calls, and a model with enough rows that threads share them."""

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.errors import EngineError, OutOfMemory
from onnx import TensorProto, helper


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
        "wasm-relaxed-threads": flavour == "relaxed-simd-threads",
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
