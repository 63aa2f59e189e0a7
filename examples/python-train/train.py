"""Trains a small classifier to separate two spirals, and writes it as an .onnx file.

    python train.py [--epochs 200] [--output spirals.onnx]

Requires edgewise, numpy and onnx. The model is built with onnx.helper, in the form of an export.
"""

from __future__ import annotations

import argparse

import numpy as np
from edgewise import InferenceSession, Trainer
from onnx import TensorProto, helper, numpy_helper

HIDDEN = 32


def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 [count, 2] points of two spirals, and int64 [count] which spiral each belongs to."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    radius = np.sqrt(random.uniform(0.02, 1, count))
    angle = 6 * radius + np.pi * labels + random.normal(0, 0.1, count)
    points = 0.9 * radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points.astype(np.float32), labels.astype(np.int64)


def untrained(seed: int) -> bytes:
    """A perceptron 2 - 32 - 32 - 2 with random weights, as the bytes of an .onnx file."""
    random = np.random.default_rng(seed)
    nodes, weights, last = [], [], "points"
    sizes = [2, HIDDEN, HIDDEN, 2]
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
        scale = (6 / inputs) ** 0.5
        matrix = random.uniform(-scale, scale, (inputs, outputs)).astype(np.float32)
        bias = random.uniform(-0.5, 0.5, outputs).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"layer{i}.weight"))
        weights.append(numpy_helper.from_array(bias, f"layer{i}.bias"))
        final = i == len(sizes) - 2
        name = "logits" if final else f"hidden{i}"
        nodes.append(helper.make_node("Gemm", [last, f"layer{i}.weight", f"layer{i}.bias"], [name]))
        last = name
        if not final:
            nodes.append(helper.make_node("Tanh", [name], [f"tanh{i}"]))
            last = f"tanh{i}"
    graph = helper.make_graph(
        nodes,
        "spirals",
        [helper.make_tensor_value_info("points", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def main() -> None:
    """Trains, measures the accuracy on other points, and writes the model."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=200)
    arguments.add_argument("--output", default="spirals.onnx")
    options = arguments.parse_args()

    points, labels = spirals(2000, seed=1)
    trainer = Trainer(
        untrained(seed=0),
        loss="cross_entropy",
        optimizer="AdamW",
        learning_rate=1e-2,
        batch_size=100,
        schedule="cosine",
    )
    history = trainer.fit(
        {"points": points, "labels": labels}, epochs=options.epochs, progress=False
    )
    trainer.export(options.output)

    points, labels = spirals(1000, seed=2)
    [logits] = InferenceSession(options.output).run(None, {"points": points})
    accuracy = float(np.mean(np.argmax(logits, axis=1) == labels))
    print(
        f"loss {history.losses[0]:.3f} -> {history.losses[-1]:.3f}, accuracy {100 * accuracy:.1f} %"
    )
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
