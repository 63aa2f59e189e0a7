"""What init steps compute of constants."""

import edgewise
import numpy as np
import onnxruntime
import pytest
from engines.page_session import PageSession

from ..models import F, constant, model, node, value


def test_equal_nodes_of_equal_constants():
    """They share one slot, as two slots of one name would share memory, which the engine refuses.
    Speech models have this form, with scales that are constants of an activation's shape.
    """
    nodes = [node("Shape", "x", "s0")]
    for i in range(3):
        nodes += [
            node("ConstantOfShape", f"s{i}", f"c{i}", value=constant("", np.float32([0.5]))),
            node("Neg", f"c{i}", f"n{i}"),
            node("Exp", f"n{i}", f"e{i}"),
            node("Mul", f"{f'y{i - 1}' if i else 'x'} e{i}", f"m{i}"),
            node("Tanh", f"m{i}", f"y{i}"),
            node("Shape", f"y{i}", f"s{i + 1}"),
        ]
    data = model(nodes, [value("x", F, (1, 96, "n"))], [value("y2", F, (1, 96, "n"))])
    session, want = edgewise.InferenceSession(data), onnxruntime.InferenceSession(data)
    for length in (16, 5):
        feeds = {"x": np.random.default_rng(0).standard_normal((1, 96, length), np.float32)}
        np.testing.assert_allclose(
            session.run(None, feeds)[0], want.run(None, feeds)[0], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("host", [edgewise.InferenceSession, PageSession])
def test_what_is_computed_for_a_plan_goes_with_it(host):
    """Shapes without end: a table that is sliced to each."""
    table = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    nodes = [
        node("Shape", "x", "shape"),
        node("Slice", "table start shape", "t"),
        node("Softmax", "t", "p", axis=1),
        node("Add", "p x", "y"),
    ]
    constants = [constant("table", table), constant("start", np.array([0, 0]))]
    data = model(nodes, [value("x", F, ["a", "b"])], [value("y")], constants)
    session = host(data)
    want = onnxruntime.InferenceSession(data)
    shapes = [(100 + i * 7 % 41, 100 + i * 13 % 37) for i in range(40)]
    for shape in [*shapes, *shapes[::9]]:
        x = {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}
        np.testing.assert_allclose(
            session.run(None, x)[0], want.run(None, x)[0], rtol=1e-5, atol=1e-6
        )
    if host is edgewise.InferenceSession:
        assert len(session.plans) == session.MAX_PLANS == len(session.store.computed)
        session.free()
        assert not session.store.computed and not session.store.readers
