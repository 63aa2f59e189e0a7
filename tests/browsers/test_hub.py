"""Models of a hub in Chromium, Firefox and WebKitGTK: a CDN of another origin, which refuses
preflight requests and breaks connections, and the registry.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from browser.hub import ID, Hub
from edgewise.cli import main
from onnx import TensorProto, helper, numpy_helper

from .conftest import Page, mostly_alike

# runs the model of `large` at the address `arg`
RUN_LARGE = """
    const session = await ew.InferenceSession.create(arg);
    const x = new ew.Tensor("float32", new Float32Array(3000).fill(1), [1, 3000]);
    const { y } = await session.run({ x });
    await session.release();
    return [...y.data];
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, np.ndarray]:
    """A package with 36 MB of weights, and its output for ones."""
    folder = tmp_path_factory.mktemp("large")
    weight = np.random.default_rng(0).standard_normal((3000, 3000), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3000])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, folder / "large.onnx")
    main(["build", str(folder / "large.onnx"), "--dims", "n=1", "-o", str(folder / "large.edge")])
    return (folder / "large.edge").read_bytes(), weight.sum(0)


@mostly_alike
def test_a_large_file_of_a_hub(page: Page, hub: Hub, large: tuple) -> None:
    """Several connections, two of which break, fetch each byte once; then the file is stored."""
    hub.files["large.edge"], want = large
    hub.latency, hub.cuts, hub.cut_after = 0.02, 2, 3_000_000
    got = page.run(RUN_LARGE, hub.resolved("large.edge"))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-2)
    ranges = [asked for path, asked in hub.asked if path == "cdn/large.edge"]
    assert hub.cuts == hub.preflights == 0 and None not in ranges, ranges
    assert hub.sent["large.edge"] == len(hub.files["large.edge"])
    listed = page.run("return await ew.models.list()")
    assert [(m["id"], [f["file"] for f in m["files"]]) for m in listed] == [(ID, ["large.edge"])]
    hub.forget()
    assert page.run(RUN_LARGE, hub.resolved("large.edge")) == got and hub.asked == []
    freed = page.run("return await ew.models.delete(arg)", ID)
    assert freed == len(hub.files["large.edge"])
    assert page.run("return [await ew.models.list(), await ew.models.size()]") == [[], 0]
