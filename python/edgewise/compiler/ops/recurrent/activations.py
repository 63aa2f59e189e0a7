"""The activations of gates, as numbers for the recurrent kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...declare.op import unsupported
from .contracts import GATE_ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode

# {name: defaults of alpha and beta, as many of them as it has}
_ACTIVATIONS: dict[str, list[float]] = {
    "Sigmoid": [],
    "Tanh": [],
    "Relu": [],
    "LeakyRelu": [0.01],
    "HardSigmoid": [0.2, 0.5],
    "Affine": [1.0, 0.0],
    "ScaledTanh": [1.0, 1.0],
}
_DEFAULTS = {4: ["Sigmoid", "Tanh", "Tanh"], 3: ["Sigmoid", "Tanh"], 1: ["Tanh"]}  # by gates


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _numbers_of(node: BoundNode, name: str, given: list[float], clip: float) -> list[float]:
    """[kind, a, b, shift, low, high] of one activation, as in the kernels' operand `table`.

    Args:
        given: its alpha and beta, as many of them as it has.
        clip: range of its input, [-clip, clip]; 0: not clipped. The activations are
            monotonic, so that their output is clipped instead.
    """
    a, b = (given + [0.0, 0.0])[:2]
    inf = math.inf
    f: Callable[[float], float]
    if name == "Sigmoid":
        kind, row, f = "sigmoid", [1.0, 1.0, 0.0, -inf, inf], _sigmoid
    elif name in ("Tanh", "ScaledTanh"):
        a, b = (a, b) if given else (1.0, 1.0)
        kind, row, f = "tanh", [a, b, 0.0, -inf, inf], lambda x: a * math.tanh(b * x)
    elif name == "LeakyRelu":
        kind, row, f = "linear", [a, 1.0, 0.0, -inf, inf], lambda x: x if x > 0 else a * x
    else:
        a, b, low, high = {
            "Relu": (1.0, 0.0, 0.0, inf),
            "HardSigmoid": (a, b, 0.0, 1.0),
            "Affine": (a, b, -inf, inf),
        }[name]
        kind, row, f = "linear", [a, a, b, low, high], lambda x: a * x + b
    if row[0] < 0 or row[1] <= 0 or kind == "tanh" and row[0] == 0:
        unsupported(node, f"{name} that is not increasing, with {given}")
    if clip:
        row[3], row[4] = max(row[3], f(-clip)), min(row[4], f(clip))
    return [float(GATE_ACTIVATION[kind]), *row]


def activation_table(node: BoundNode, gates: int, directions: int) -> list[float]:
    """The kernels' operand `table`: 18 numbers for each direction, from the attributes activations,
    activation_alpha, activation_beta and clip.

    Alphas and betas are taken in the order of the activations that have them, as in onnxruntime.
    """
    names = node.attr("activations") or _DEFAULTS[gates] * directions
    each = len(_DEFAULTS[gates])
    known = {k.lower(): k for k in _ACTIVATIONS}
    if len(names) != each * directions or not all(
        isinstance(x, str) and x.lower() in known for x in names
    ):
        unsupported(
            node,
            f"the activations {names}",
            f"{', '.join(_ACTIVATIONS)} can be computed, {each} for each direction.",
        )
    given = [list(node.attr(k) or []) for k in ("activation_alpha", "activation_beta")]
    clip = float(node.attr("clip", 0.0))
    out: list[float] = []
    for i, name in enumerate(known[x.lower()] for x in names):
        numbers = [
            float(given[k].pop(0)) if given[k] else default
            for k, default in enumerate(_ACTIVATIONS[name])
        ]
        # The third activation is that of a cell's output, which is not clipped.
        out += _numbers_of(node, name, numbers, clip if i % each < 2 else 0.0)
        if i % each == each - 1:
            out += [0.0] * (18 - 6 * each)
    return out
