"""Training of a head on features that are computed already."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...compiler.heads.examples import Examples, check_weights, floats, is_positive
from ...compiler.heads.step import ABSENT, CLASSES, ROWS, STATES, fitting, step_graph
from ...compiler.ir import Graph, Info, Node, Tensor
from ...errors import InputError
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


@dataclass(frozen=True)
class FitOptions:
    """How a head is trained.

    Attributes:
        c: inverse strength of the L2 penalty, as C of scikit-learn's LogisticRegression, for
            features whose mean square is 1.
        class_weight: see Examples.weights.
        steps: of Adam, each on all examples.
        learning_rate: of the first step; it falls to 0 along a cosine.
    """

    c: float = 1.0
    class_weight: str | dict[str, float] | None = "balanced"
    steps: int = 300
    learning_rate: float = 0.05

    def __post_init__(self) -> None:
        for name in ("c", "learning_rate"):
            value = getattr(self, name)
            if not is_positive(value):
                raise InputError(f"{str(value)[:40]} is not a positive number", name)
        check_weights(self.class_weight)
        if type(self.steps) is not int or not 1 <= self.steps <= 100_000:
            raise InputError(f"{self.steps!r} is not a number of steps", "steps", "Give 1 or more.")


def rate_of(step: int, options: FitOptions) -> float:
    """The learning rate of a step, which are counted from 0."""
    return options.learning_rate * 0.5 * (1 + math.cos(math.pi * step / options.steps))


def fit(
    examples: Examples,
    options: FitOptions | None = None,
    engine: Engine | None = None,
    on_step: OnStep | None = None,
) -> Head:
    """Trains a head.

    Features are centred, and divided by one number so that their mean square is 1. The result is
    for features as they are.

    Args:
        examples: of two or more labels.
        options: FitOptions.
        engine: the Engine to use; by default that of the process.
        on_step: called with (step, loss) after each step.

    Raises:
        InputError: there are fewer than two labels with examples, or numbers are not finite.
    """
    options = options or FitOptions()
    count, size, labels = len(examples), examples.size, len(examples.labels)
    if labels < 2 or not all(examples.counts()):
        raise InputError(
            "a head needs examples of two labels or more",
            "personalize",
            'Add examples of something else, such as other=[...], or use method="knn".',
        )
    rows, classes = fitting(count, ROWS), fitting(labels, CLASSES)
    x, mean, scale = _prepared(examples, rows, engine)
    weights = examples.weights(options.class_weight)
    total = math.fsum(weights)
    targets = array("f", bytes(4 * rows * classes))
    for i, (c, w) in enumerate(zip(examples.classes, weights)):
        targets[i * classes + c] = w / total
    feeds: dict[str, Any] = {
        "x": x,
        "targets": _array((rows, classes), targets),
        "mask": _array((classes,), array("f", [0.0] * labels + [ABSENT] * (classes - labels))),
        "penalty": _array((), array("f", [1 / (options.c * total)])),
    }
    for name in STATES:
        shape = (size, classes) if name.startswith("w") else (classes,)
        feeds[name] = Array(shape, "float32", bytes(4 * math.prod(shape)))
    outputs = ["loss", *(f"new_{name}" for name in STATES)]
    session, losses = InferenceSession(step_graph(size), engine=engine), []
    try:
        for i in range(options.steps):
            feeds["rate"] = _array((), array("f", [rate_of(i, options)]))
            feeds["step"] = _array((), array("q", [i + 1]), "int64")
            loss, *new = session.run(outputs, feeds)
            feeds.update(zip(STATES, new))
            losses.append(float(loss))
            if on_step is not None:
                on_step(i + 1, losses[-1])
    finally:
        session.free()
    if not math.isfinite(losses[-1]):
        raise InputError("the loss is not finite", "personalize", "Give a lower learning_rate.")
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
