"""What init steps compute of constants."""

import edgewise
import numpy as np
import onnxruntime

from .models import F, constant, model, node, value


def test_equal_nodes_of_equal_constants():
    """They share one slot: two slots of one name would have one memory, which the engine
    refuses.
    """
    weights = [constant("c", np.linspace(-1, 1, 96 * 284, dtype=np.float32).reshape(1, 96, 284))]
    nodes = []
    for i in range(3):
        nodes += [node("Neg", "c", f"n{i}"), node("Exp", f"n{i}", f"x{i}")]
    nodes += [node("Mul", "x x0", "a"), node("Mul", "a x1", "b"), node("Sub", "b x2", "y")]
    data = model(nodes, [value("x", F, (1, 96, 284))], [value("y", F, (1, 96, 284))], weights)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 96, 284), np.float32)}
    (want,) = onnxruntime.InferenceSession(data).run(None, feeds)
    for _ in range(3):
        (got,) = edgewise.InferenceSession(data).run(None, feeds)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
