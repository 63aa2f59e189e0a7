"""Work that a GPU is not given at once: one step that is too much runs on the processor, and many
that are not are submitted one by one.
"""

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.plan import Plan, Slot
from edgewise.logic.gpu import variants
from hostile.packages import plan, step
from onnx import TensorProto, helper, numpy_helper

from .adapters import gpu
from .test_models_on_gpu import model

RNG = np.random.default_rng(8)
DEEP = [RNG.standard_normal((32, 32)).astype(np.float32) / 6 for _ in range(6)]


def products():
    """Six products, one after the other, and what they give."""
    nodes, names = [], []
    for i, w in enumerate(DEEP):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
        names.append(numpy_helper.from_array(w, f"w{i}"))
    nodes[-1].output[0] = "y"
    x = RNG.standard_normal((9, 32)).astype(np.float32)
    return (
        model(nodes, [("x0", TensorProto.FLOAT, [9, 32])], names),
        x,
        np.linalg.multi_dot([x, *DEEP]),
    )


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("products_at_once", [0.5, 1, 2.5, 100])
def test_results_do_not_depend_on_what_is_submitted_at_once(monkeypatch, products_at_once, serial):
    most = int(products_at_once * 2 * 9 * 32 * 32)
    monkeypatch.setattr(variants, "MAX_IN_SOFTWARE" if serial else "MAX", most)
    data, x, y = products()
    session = InferenceSession(data, engine=gpu(serial=serial))
    (got,) = session.run(None, {"x0": x})
    (compiled,) = session.plans.values()
    loaded = compiled.loaded
    parts = [part for run in loaded.parts[1] if run.on_gpu for part in loaded._portions(run)]
    info = loaded.info
    session.free()
    np.testing.assert_allclose(got, y, rtol=1e-4, atol=1e-5)
    if products_at_once < 1:
        assert f"operations: at most {most} run in one dispatch" in info["why"]["gemm"]
    else:
        assert not info["onCpu"]
        assert sum(waits for *_, waits in parts) == {1: 5, 2.5: 2, 100: 0}[products_at_once]


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
