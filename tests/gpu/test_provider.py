"""The GPU by the name of its provider, as scripts for onnxruntime ask for it."""

import edgewise
import numpy as np
from onnx import TensorProto, helper

from .adapters import gpu

GPU, CPU = "WebGpuExecutionProvider", "CPUExecutionProvider"


def test_sessions_of_providers():
    gpu()  # skips where there is none
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert edgewise.get_available_providers() == [GPU, CPU] == edgewise.get_all_providers()
    session = edgewise.InferenceSession(model.SerializeToString(), providers=[GPU, CPU])
    value = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
    want = np.exp(value) / np.exp(value).sum(1, keepdims=True)
    for providers in ([GPU, CPU], [CPU], [GPU, CPU]):
        session.set_providers(providers)
        assert session.get_providers() == providers
        assert session.get_provider_options() == {name: {} for name in providers}
        assert session.device.target == ("webgpu" if GPU in providers else "cpu")
        for _ in range(2):
            [found] = session.run(None, {"x": value})
            np.testing.assert_allclose(found, want, rtol=1e-5)
