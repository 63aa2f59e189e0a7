"""Losses of a small network under sequences of training steps, updates and resets, by PyTorch;
`python tests/training/updates.py` writes tests/conformance/training_updates.json. An update leaves
the gradients as they are, and a reset is made by the next training step, as in ONNX Runtime: an
update between them uses the old ones.
"""

import json
import warnings
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[1] / "conformance/training_updates.json"
RATE = 0.1
SEQUENCES = {
    "a reset after each update": [
        "train 0",
        "update",
        "reset",
        "train 1",
        "update",
        "reset",
        "train 0",
    ],
    "without resets": ["train 0", "update", "train 1", "update", "train 2", "update", "train 0"],
    "two updates of one gradient": [
        "train 0",
        "update",
        "update",
        "reset",
        "train 1",
        "update",
        "eval 0",
        "train 0",
    ],
    "accumulated over batches of two sizes": [
        "train 0",
        "train 2",
        "train 1",
        "update",
        "reset",
        "train 2",
        "train 0",
        "update",
        "eval 2",
    ],
    "an update between a reset and the next step": [
        "train 0",
        "reset",
        "update",
        "train 1",
        "update",
        "reset",
        "update",
        "train 2",
    ],
    "resets alone": ["reset", "train 0", "reset", "reset", "train 1", "update", "eval 1"],
}


def values():
    """Weights and batches."""
    r = np.random.default_rng(5)
    weights = {
        "w1": r.standard_normal((6, 8)) * 0.4,
        "b1": r.standard_normal(8) * 0.1,
        "w2": r.standard_normal((8, 4)) * 0.4,
    }
    x = [r.standard_normal((n, 6)).round(3).tolist() for n in (8, 8, 3)]
    return {
        "weights": {n: w.round(4).tolist() for n, w in weights.items()},
        "x": x,
        "y": [r.integers(0, 4, len(rows)).tolist() for rows in x],
    }


def losses_of_torch(data):
    """{name of the sequence: losses of its training and evaluation steps}"""
    import torch

    out = {}
    for name, steps in SEQUENCES.items():
        w = {
            n: torch.tensor(v, dtype=torch.float64, requires_grad=True)
            for n, v in data["weights"].items()
        }
        optimizer = torch.optim.SGD(w.values(), lr=RATE)
        losses, reset = [], False
        for step in steps:
            kind, _, i = step.partition(" ")
            if kind == "reset":
                reset = True
            elif kind == "update":
                optimizer.step()
            else:
                x, y = (
                    torch.tensor(data["x"][int(i)], dtype=torch.float64),
                    torch.tensor(data["y"][int(i)]),
                )
                loss = torch.nn.functional.cross_entropy(
                    torch.relu(x @ w["w1"] + w["b1"]) @ w["w2"], y
                )
                losses.append(round(loss.item(), 7))
                if kind == "train":
                    if reset:
                        optimizer.zero_grad()
                        reset = False
                    loss.backward()
        out[name] = losses
    return out


def write_artifacts(data, folder):
    """The network with its weights as artifacts with SGD."""
    from edgewise.extras.onnxruntime_training import artifacts, onnxblock
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["p"]),
        helper.make_node("Add", ["p", "b1"], ["q"]),
        helper.make_node("Relu", ["q"], ["h"]),
        helper.make_node("MatMul", ["h", "w2"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(np.array(w, np.float32), n) for n, w in data["weights"].items()],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        artifacts.generate_artifacts(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            list(data["weights"]),
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=onnxblock.optim.SGD(),
            artifact_directory=folder,
        )


if __name__ == "__main__":
    data = values()
    losses = losses_of_torch(data)
    FILE.write_text(
        json.dumps(
            {
                **data,
                "rate": RATE,
                "sequences": [
                    {"name": n, "steps": s, "losses": losses[n]} for n, s in SEQUENCES.items()
                ],
            },
            indent=1,
        )
        + "\n"
    )
