"""A step of the training of a head, as an ONNX graph with a gradient and an optimizer.

A head is multinomial logistic regression: logits = x w + b. Its loss is the mean cross entropy of
the examples and an L2 penalty of w, scikit-learn's LogisticRegression:

    loss = -sum(targets * log_softmax(x w + b + mask)) + penalty / 2 * sum(w ** 2)

It is strictly convex in w, so the result depends neither on first values nor on an order. Packages
of tasks contain the same graph (task_package/personal.py): a page trains with the same arithmetic.
"""

from __future__ import annotations

from ...logic.personal.training import CLASSES as CLASSES_OF_STEP
from ...model_metadata import ModelMetadata
from ..declare.dtypes import FLOAT, INT64
from ..ir import Graph, Info, Node, Tensor

ROWS = (16, 64, 256, 1024)
"""Numbers of examples that steps are compiled for; there may be fewer."""
CLASSES = (8, CLASSES_OF_STEP)
"""Numbers of classes that steps are compiled for; there may be fewer."""
ADAM = {"alpha": 0.9, "beta": 0.99, "epsilon": 1e-6}
"""A beta above 0.99 remembers the steep first steps for too long."""
DOMAIN = "ai.onnx.preview.training"
STATES = ("w", "b", "w_mean", "b_mean", "w_square", "b_square")
"""Inputs that a step replaces: its outputs have these names with the prefix "new_"."""


def fitting(count: int, sizes: tuple[int, ...]) -> int:
    """The smallest of `sizes` that is at least `count`; beyond the largest a multiple of it."""
    return next((n for n in sizes if n >= count), -(-count // sizes[-1]) * sizes[-1])


def step_graph(size: int, rows: int | str = "rows", classes: int | str = "classes") -> Graph:
    """The graph of a step.

    Args:
        size: numbers of an example's features.
        rows, classes: dimensions.

    Returns:
        a graph with the inputs x [rows, size], targets [rows, classes] (the share of each example
        in the loss at its class, else 0), mask [classes] (see mask_of), penalty [], rate [], step
        (int64 [], from 1 on) and STATES; with the outputs loss [], logits and the new STATES
    """
    shapes = {name: [size, classes] if name.startswith("w") else [classes] for name in STATES}
    nodes = [
        Node("MatMul", ["x", "w"], ["products"]),
        Node("Add", ["products", "b"], ["logits"]),
        Node("Add", ["logits", "mask"], ["masked"]),
        Node("LogSoftmax", ["masked"], ["likelihoods"], {"axis": -1}),
        Node("Mul", ["likelihoods", "targets"], ["shares"]),
        Node("ReduceSum", ["shares"], ["likelihood"], {"keepdims": 0}),
        Node("Mul", ["w", "w"], ["squares"]),
        Node("ReduceSum", ["squares"], ["square"], {"keepdims": 0}),
        Node("Mul", ["penalty", "half"], ["half_penalty"]),
        Node("Mul", ["square", "half_penalty"], ["penalties"]),
        Node("Sub", ["penalties", "likelihood"], ["loss"]),
        Node(
            "Gradient",
            ["w", "b", "loss"],  # the reader of files adds y to the inputs, too
            ["w_gradient", "b_gradient"],
            {"xs": ["w", "b"], "y": "loss"},
            DOMAIN,
        ),
        Node(
            "Adam",
            ["rate", "step", "w", "b", "w_gradient", "b_gradient", *STATES[2:]],
            [f"new_{name}" for name in STATES],
            dict(ADAM),
            DOMAIN,
        ),
    ]
    return Graph(
        "head",
        nodes,
        [
            Info("x", FLOAT, [rows, size]),
            Info("targets", FLOAT, [rows, classes]),
            Info("mask", FLOAT, [classes]),
            Info("penalty", FLOAT, []),
            Info("rate", FLOAT, []),
            Info("step", INT64, []),
            *(Info(name, FLOAT, list(shape)) for name, shape in shapes.items()),
        ],
        [
            Info("loss", FLOAT, []),
            Info("logits", FLOAT, [rows, classes]),
            *(Info(f"new_{name}", FLOAT, list(shape)) for name, shape in shapes.items()),
        ],
        constants={"half": Tensor.of("half", FLOAT, [], [0.5])},
        opsets={"": 17, DOMAIN: 1},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )
