"""Work that a GPU is not given at once: a launch that is too much runs in pieces, with the same
bits, a step whose workgroups are too much runs on the processor, and many launches that are not
are submitted one by one.
"""

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.plan import Plan, Slot
from edgewise.logic.gpu import variants
from hostile.packages import plan, step
from onnx import TensorProto, helper, numpy_helper

from .adapters import at_once, gpu
from .test_models_on_gpu import model

RNG = np.random.default_rng(8)
DEEP = [RNG.standard_normal((96, 96)).astype(np.float32) / 10 for _ in range(6)]


def products():
    """Six products, one after the other, and what they give."""
    nodes, names = [], []
    for i, w in enumerate(DEEP):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
        names.append(numpy_helper.from_array(w, f"w{i}"))
    nodes[-1].output[0] = "y"
    x = RNG.standard_normal((128, 96)).astype(np.float32)
    return (
        model(nodes, [("x0", TensorProto.FLOAT, [128, 96])], names),
        x,
        np.linalg.multi_dot([x, *DEEP]),
    )


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("products_at_once", [0.3, 1, 2.5, 100])
def test_results_do_not_depend_on_what_is_submitted_at_once(monkeypatch, products_at_once, serial):
    data, x, y = products()
    engine = gpu(serial=serial)
    session = InferenceSession(data, engine=engine)
    (want,) = session.run(None, {"x0": x})
    np.testing.assert_allclose(want, y, rtol=1e-4, atol=1e-5)
    queue, waits = engine.gpu.device.queue, []
    wait = queue.on_submitted_work_done_sync
    with (
        at_once(engine, int(products_at_once * 2 * 128 * 96 * 96)) as pace,
        monkeypatch.context() as m,
    ):
        m.setattr(queue, "on_submitted_work_done_sync", lambda: waits.append(wait()))
        (got,) = session.run(None, {"x0": x})
    assert got.tobytes() == want.tobytes()
    assert (pace.pieces > 6) == (products_at_once < 1)
    assert len(waits) == {1: 5, 2.5: 2, 100: 0}.get(products_at_once, pace.pieces - 1)
    (compiled,) = session.plans.values()
    assert not compiled.loaded.info["onCpu"]
    session.free()


def test_nothing_is_given_after_a_read():
    engine, device = gpu(), gpu().device
    logits = device.allocate_state(4000)
    reads = [lambda: device.highest(logits), lambda: device.top(logits)]
    reads += [lambda: device.read(logits), lambda: device.write(logits, b"1", 1)]
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    inputs = [("x", TensorProto.FLOAT, [9]), ("i", TensorProto.INT64, [2])]
    session = InferenceSession(model(nodes, inputs, []), engine=engine)
    x, i = np.arange(9, dtype="f4"), np.array([3, 1])
    session.run(None, {"x": x, "i": i})
    (compiled,) = session.plans.values()
    reads.append(compiled.loaded.run)  # an index may be out of range
    for read in reads:
        engine.pace.give(5, 0)
        assert engine.pace.given
        read()
        assert engine.pace.given == 0
    session.free()
    device.release(logits)


@pytest.mark.parametrize("first", [2_000_000, 10_000])
def test_a_step_beyond_what_steps_share_runs_in_pieces(monkeypatch, first):
    """If its workgroups are small enough."""
    most = 4_000_000
    monkeypatch.setattr(variants, "MAX", most)
    monkeypatch.setattr(variants, "FIRST", first)
    engine = gpu()
    w, x = (RNG.standard_normal((128, 128)).astype(np.float32) for _ in range(2))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    data = model(nodes, [("x", 1, [128, 128])], [numpy_helper.from_array(w, "w")])
    session = InferenceSession(data, engine=engine)
    with at_once(engine, first) as pace:
        (got,) = session.run(None, {"x": x})
    np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-4)
    (compiled,) = session.plans.values()
    why = compiled.loaded.info["why"]
    session.free()
    if first > 1e6:
        assert not why and pace.pieces >= 2 * 128**3 / first
    else:
        assert f"operations: at most {most} run in one dispatch" in why["gemm"]


def test_ctrl_c_between_pieces(monkeypatch):
    """The next run begins with the first workgroup again."""
    data, x, _ = products()
    engine = gpu()
    session = InferenceSession(data, engine=engine)
    (want,) = session.run(None, {"x0": x})
    (compiled,) = session.plans.values()
    loaded, calls = compiled.loaded, []

    def waited():
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with at_once(engine, 1), monkeypatch.context() as m:
        m.setattr(loaded.ends, "reason", lambda: calls.append(0) or None)
        m.setattr(engine.gpu.device.queue, "on_submitted_work_done_sync", waited)
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x0": x})
    assert loaded.torn
    (got,) = session.run(None, {"x0": x})
    session.free()
    assert got.tobytes() == want.tobytes()


def test_a_product_that_takes_minutes_runs_on_the_processor():
    """Few numbers, many products: rows that are all the same."""
    m, k = 64, 1 << 22
    slots = [(64, False), (4 * m * m, True), (4 * k, False), (4 * k, False)]
    sizes = {"batch0": 1, "batch1": 1, "m": m, "n": m, "k": k, "b_row": 1, "y_row": m}
    gemm = step(
        "gemm", {**sizes, "b_type": 1, "alpha": 1.0}, [(4, 0), (5, 0), None, None, (3, 0), None]
    )
    named = [
        Slot(str(i), "temp" if i > 1 else "input", 2, [n], n) for i, (n, _) in enumerate(slots)
    ]
    made = Plan(plan(slots, [gemm]), named, ["past", "last"], [], ["gemm"], 0, 0)
    loaded = gpu(serial=True).device.load_plan(made)
    most = variants.MAX_IN_SOFTWARE
    assert loaded.info["why"] == {
        "gemm": f"{2 * m * m * k} operations: at most {most} run in one dispatch"
    }
    loaded.free()


def test_regions_far_outside_of_their_picture():
    """Samples that are not on the picture are zeros, which are not gone through."""
    x = RNG.standard_normal((1, 3, 20, 30)).astype(np.float32)
    boxes = [[-9e5, -70, 8e5, 90], [3, 4, 12, 17], [-5, -5, 2, 400], [50, 50, 60, 60]]
    regions = np.array(boxes, np.float32)
    for mode in ("avg", "max"):
        for ratio in (0, 3):
            node = helper.make_node(
                "RoiAlign",
                ["x", "r", "i"],
                ["y"],
                mode=mode,
                sampling_ratio=ratio,
                output_height=4,
                output_width=3,
            )
            inputs = [("x", 1, x.shape), ("r", 1, regions.shape), ("i", 7, [4])]
            feeds = {"x": x, "r": regions, "i": np.zeros(4, np.int64)}
            data = model([node], inputs)
            results = []
            for engine in (None, gpu()):
                session = InferenceSession(data, engine=engine)
                results.append(session.run(None, feeds)[0])
                session.free()
            np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-6)
