"""First visits of models with many small weights end: a page opens no stream, handle or lock per
weight.
"""

import edgewise
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiers import slow_unless

F = TensorProto.FLOAT
LAYERS = 100  # two weights each; Chromium stalled after a few dozen open streams


def network(path, external):
    """A chain of convolutions with biases, as in a CNN for photographs, with large weights between
    small ones.
    """
    random = np.random.default_rng(7)
    nodes, weights, at = [], [], "x"
    for i in range(LAYERS):
        kernel = random.standard_normal((8, 8, 1, 1)).astype(np.float32) * 0.3
        weights += [
            (f"w{i}", kernel),
            (f"b{i}", random.standard_normal(8).astype(np.float32) * 0.1),
        ]
        nodes += [
            helper.make_node("Conv", [at, f"w{i}", f"b{i}"], [f"c{i}"]),
            helper.make_node("Tanh", [f"c{i}"], [f"t{i}"]),
        ]
        at = f"t{i}"
    large = random.standard_normal((512, 3000)).astype(np.float32) * 0.1  # 6 MB: more than one read
    weights.insert(LAYERS // 2, ("large", large))
    nodes += [
        helper.make_node("Flatten", [at], ["flat"]),
        helper.make_node("MatMul", ["flat", "large"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "many",
        [helper.make_tensor_value_info("x", F, ["n", 8, 8, 8])],
        [helper.make_tensor_value_info("y", F, ["n", 3000])],
        [numpy_helper.from_array(v, n) for n, v in weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=external,
        all_tensors_to_one_file=True,
        location=path.name + ".data",
        size_threshold=0,
    )


@pytest.fixture(scope="module")
def models(files):
    folder = files / "many"
    folder.mkdir(exist_ok=True)
    network(folder / "inside.onnx", external=False)
    network(folder / "outside.onnx", external=True)
    return folder


RUN = """
    const limit = new Promise((_, reject) =>
      setTimeout(() => reject(new Error("no result after 240 s")), 240_000),
    );
    const work = async () => {
      const s = await ew.InferenceSession.create(arg.url, arg.options);
      const x = (n) =>
        new ew.Tensor(
          "float32",
          Float32Array.from({ length: n * 512 }, (_, i) => Math.sin(i)),
          [n, 8, 8, 8],
        );
      const out = [];
      for (const n of [1, 2]) out.push(Array.from((await s.run({ x: x(n) })).y.data));
      await s.release();
      return out;
    };
    return Promise.race([work(), limit]);
"""


@pytest.mark.parametrize(
    "name, fault",
    slow_unless(
        lambda name, fault: (name == "outside") == bool(fault),
        [(name, fault) for name in ("inside", "outside") for fault in ("", "?fault=no-range")],
    ),
)
def test_a_first_visit_ends(visit, server, models, name, fault):
    """The first run reads hundreds of weights; so does a second visit, which has stored plans."""
    session = edgewise.InferenceSession(str(models / f"{name}.onnx"))
    wanted = [
        session.run(None, {"x": np.sin(np.arange(n * 512)).astype(np.float32).reshape(n, 8, 8, 8)})[
            0
        ]
        for n in (1, 2)
    ]
    for threads in (1, 2):
        v = visit(server)
        got = v.run(
            RUN, {"url": f"/files/many/{name}.onnx{fault}", "options": {"threads": threads}}
        )
        assert "error" not in got, got
        for values, want in zip(got, wanted):
            np.testing.assert_allclose(
                np.array(values).reshape(want.shape), want, rtol=1e-4, atol=1e-5
            )
