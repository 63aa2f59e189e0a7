"""Small models, their data, and trainers for them."""

import edgewise
import numpy as np
import onnx
import torch
from onnx import helper as h


def net(seed=0, dropout=None):
    """(bytes of an ONNX model, the same in PyTorch)."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    nodes = [
        h.make_node("Gemm", ["x", "0.weight", "0.bias"], ["a"], "/0/Gemm", transB=1),
        h.make_node("Tanh", ["a"], ["t"]),
    ]
    if dropout is not None:
        nodes.append(h.make_node("Dropout", ["t", "ratio"], ["b"]))
    nodes.append(
        h.make_node(
            "Gemm",
            ["b" if dropout is not None else "t", "2.weight", "2.bias"],
            ["y"],
            "/2/Gemm",
            transB=1,
        )
    )
    weights = [
        onnx.numpy_helper.from_array(p.detach().numpy().copy(), n)
        for n, p in model.named_parameters()
    ]
    if dropout is not None:
        weights.append(onnx.numpy_helper.from_array(np.float32(dropout), "ratio"))
    g = h.make_graph(
        nodes,
        "net",
        [h.make_tensor_value_info("x", 1, ["n", 6])],
        [h.make_tensor_value_info("y", 1, ["n", 4])],
        weights,
    )
    return (
        h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=9).SerializeToString(),
        model,
    )


def rows(n=32, seed=0, kind="classes"):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 6)).astype("f4")
    return {
        "x": x,
        "labels": (
            rng.integers(0, 4, n)
            if kind == "classes"
            else (
                rng.random((n, 4)).astype("f4")
                if kind == "probabilities"
                else (rng.standard_normal((n, 4)) * 2).astype("f4")
            )
        ),
    }


def trainer(loss="cross_entropy", **more):
    model, _ = net()
    return edgewise.Trainer(model, loss=loss, **{"batch_size": 8, "learning_rate": 1e-2, **more})


def tensors(batch):
    return torch.tensor(batch["x"]), torch.tensor(batch["labels"])
