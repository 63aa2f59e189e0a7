"""ai.onnx.preview.training.Gradient: gradients that a model asks for itself, against PyTorch."""

import edgewise
import numpy as np
import pytest
import torch
from edgewise.errors import EdgewiseError
from onnx import helper


def model(nodes, inputs, outputs):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, 1, list(x.shape)) for n, x in inputs.items()],
        [helper.make_tensor_value_info(o, 1, None) for o in outputs],
    )
    return helper.make_model(
        graph,
        opset_imports=[
            helper.make_opsetid("", 12),
            helper.make_opsetid("ai.onnx.preview.training", 1),
        ],
        ir_version=8,
    ).SerializeToString()


def node(inputs, outputs, **attrs):
    return helper.make_node("Gradient", inputs, outputs, domain="ai.onnx.preview.training", **attrs)


def arrays(**shapes):
    random = np.random.default_rng(1)
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def test_of_inputs_and_an_inner_tensor():
    feeds = arrays(x=(3, 4), w=(4, 5), z=(3, 5))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Mul", ["t", "z"], ["y"]),
        node(["x", "w", "z"], ["dx", "", "dz"], xs=["x", "w", "z"], y="y"),
        node(["h"], ["dh"], xs=["h"], zs=["z"], y="y"),
    ]
    got = edgewise.InferenceSession(model(nodes, feeds, ["y", "dx", "dz", "dh"])).run(None, feeds)
    x, w, z = (torch.tensor(feeds[k], requires_grad=True) for k in "xwz")
    h = x @ w
    h.retain_grad()
    y = torch.tanh(h) * z
    y.sum().backward()
    for a, b in zip(got, (y.detach(), x.grad, z.grad, h.grad)):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)


def test_second_derivative():
    feeds = arrays(x=(5,))
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Mul", ["s", "x"], ["y"]),
        node(["x"], ["d"], xs=["x"], y="y"),
        node(["x"], ["dd"], xs=["x"], y="d"),
    ]
    d, dd = edgewise.InferenceSession(model(nodes, feeds, ["d", "dd"])).run(None, feeds)
    np.testing.assert_allclose(d, 3 * feeds["x"] ** 2, rtol=1e-5)
    np.testing.assert_allclose(dd, 6 * feeds["x"], rtol=1e-5)


@pytest.mark.parametrize(
    "inputs, attrs",
    [
        (["x"], {"xs": ["x"], "y": "nothing"}),
        (["x"], {"xs": ["q"], "y": "y"}),
        (["y"], {"xs": ["x"], "y": "y"}),
        (["x"], {"y": "y"}),
    ],
)
def test_refused(inputs, attrs):
    feeds = arrays(x=(5,))
    with pytest.raises(EdgewiseError, match="Gradient"):
        edgewise.InferenceSession(
            model(
                [helper.make_node("Mul", ["x", "x"], ["y"]), node(inputs, ["d"], **attrs)],
                feeds,
                ["d"],
            )
        ).run(None, feeds)
