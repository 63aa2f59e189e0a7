"""Training of a head on features that are computed already."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...compiler.heads.examples import Examples, floats
from ...compiler.heads.step import CLASSES, ROWS, STATES, fitting, step_graph
from ...compiler.ir import Graph, Info, Node, Tensor
from ...errors import InputError
from ...logic.personal.options import HeadFields
from ...logic.personal.training import HeadStep, check_trainable, head_feeds, head_steps
from ..drive import drive
from ..session import InferenceSession

if TYPE_CHECKING:
    from ..engine import Engine

MIN = 1e-6
"""By which features are divided at least."""
OnStep = Callable[[int, float], None]


@dataclass
class Head:
    """A linear classifier: logits = x w + b.

    Attributes:
        labels: of the logits.
        weight: float32 [size, labels].
        bias: float32 [labels].
        losses: of the training's steps.
    """

    labels: list[str]
    weight: bytes
    bias: bytes
    losses: list[float] = field(default_factory=list)


def fit(
    examples: Examples,
    fields: HeadFields | None = None,
    engine: Engine | None = None,
    on_step: OnStep | None = None,
) -> Head:
    """Trains a head.

    Features are centred, and divided by one number so that their mean square is 1. The result is
    for features as they are.

    Args:
        examples: of two or more labels.
        fields: how.
        engine: the Engine to use; by default that of the process.
        on_step: called with (step, loss) after each step.

    Raises:
        InputError: there are fewer than two labels with examples, or numbers are not finite.
    """
    fields = fields or HeadFields()
    check_trainable(examples)
    size = examples.size
    rows, classes = fitting(len(examples), ROWS), fitting(len(examples.labels), CLASSES)
    x, mean, scale = _prepared(examples, rows, engine)
    fixed = head_feeds(examples, fields, rows, classes)
    feeds: dict[str, Any] = {
        "x": x,
        "targets": _array((rows, classes), fixed.targets),
        "mask": _array((classes,), fixed.mask),
        "penalty": _array((), array("f", [fixed.penalty])),
    }
    for name in STATES:
        shape = (size, classes) if name.startswith("w") else (classes,)
        feeds[name] = Array(shape, "float32", bytes(4 * math.prod(shape)))
    outputs = ["loss", *(f"new_{name}" for name in STATES)]
    session = InferenceSession(step_graph(size), engine=engine)

    def train(step: HeadStep) -> float:
        feeds["rate"] = _array((), array("f", [step.rate]))
        feeds["step"] = _array((), array("q", [step.number]), "int64")
        loss, *new = session.run(outputs, feeds)
        feeds.update(zip(STATES, new))
        if on_step is not None:
            on_step(step.number, float(loss))
        return float(loss)

    try:
        losses = drive(head_steps(fields), train)
    finally:
        session.free()
    return _folded(feeds["w"], feeds["b"], examples.labels, mean, scale, losses)


def _array(shape: tuple[int, ...], numbers: array[Any], dtype: str = "float32") -> Array:
    return Array(shape, dtype, numbers.tobytes())


def normalization(examples: Examples, engine: Engine | None = None) -> tuple[array[float], float]:
    """(mean of the features; what centred ones are multiplied with, so that their mean square is
    1). Raises InputError: they are not finite.
    """
    return _prepared(examples, len(examples), engine)[1:]


def _prepared(
    examples: Examples, rows: int, engine: Engine | None
) -> tuple[Any, array[float], float]:
    """(features that are centred and scaled, with rows of zeros [rows, size]; mean; scale)"""
    count, size = len(examples), examples.size
    graph = Graph(
        "prepare",
        [
            Node("ReduceMean", ["x"], ["mean"], {"axes": [0], "keepdims": 1}),
            Node("Sub", ["x", "mean"], ["centred"]),
            Node("Mul", ["centred", "centred"], ["squares"]),
            Node("ReduceMean", ["squares"], ["square"], {"keepdims": 0}),
            Node("Sqrt", ["square"], ["root"]),
            Node("Max", ["root", "least"], ["deviation"]),
            Node("Div", ["centred", "deviation"], ["scaled"]),
        ],
        [Info("x", FLOAT, ["rows", size])],
        [Info("mean", FLOAT), Info("scaled", FLOAT), Info("deviation", FLOAT)],
        {"least": Tensor.of("least", FLOAT, [], [MIN])},
        opsets={"": 17},
        ir_version=9,
    )
    session = InferenceSession(graph, engine=engine)
    try:
        data = Array((count, size), "float32", bytes(examples.data))
        mean, scaled, deviation = session.run(["mean", "scaled", "deviation"], {"x": data})
    finally:
        session.free()
    if not math.isfinite(float(deviation)):
        raise InputError("they are not finite", "features", "Check the examples and the model.")
    x = Array((rows, size), "float32", _bytes(scaled) + bytes(4 * size * (rows - count)))
    return x, floats(_bytes(mean)), 1 / float(deviation)


def _folded(
    w: Any, b: Any, labels: list[str], mean: array[float], scale: float, losses: list[float]
) -> Head:
    """The head for features that are neither centred nor scaled."""
    code, (size, classes), data = as_input(w, "w")
    numbers = memoryview(data).cast("B").cast("f")
    n = len(labels)
    weight = array("f", bytes(4 * size * n))
    bias = floats(_bytes(b))[:n]
    sums = [0.0] * n
    for c in range(n):
        column = [v * scale for v in numbers[c::classes]]
        weight[c::n] = array("f", column)
        sums[c] = math.fsum(v * m for v, m in zip(column, mean))
    return Head(
        list(labels),
        weight.tobytes(),
        array("f", [x - s for x, s in zip(bias, sums)]).tobytes(),
        losses,
    )


def _bytes(value: Any) -> bytes:
    return bytes(memoryview(as_input(value, "")[2]).cast("B"))
