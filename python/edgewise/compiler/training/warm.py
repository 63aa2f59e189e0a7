"""A small training step with the kernels of transformers and perceptrons.

Pages run it while they download a model (web/src/device/warm.ts): browsers execute WebAssembly with
a baseline compiler first, and optimize functions in the background once they are hot.
"""

from __future__ import annotations

from typing import cast

from ..bind import BoundGraph, Gradients, add_gradients
from ..declare.dtypes import FLOAT, INT64
from ..ir import Graph, Info, Value
from ..plan import Plan, compile_graph
from .losses import cross_entropy
from .optimizers import AdamW

BATCH, SEQUENCE, HEADS, WIDTH, INNER, VOCAB = 2, 32, 2, 32, 64, 64


SHAPES = {
    "ids": (INT64, [BATCH * SEQUENCE]),
    "labels": (INT64, [BATCH * SEQUENCE]),
    "rate": (FLOAT, [1]),
}


def warm_plan() -> Plan:
    """The Plan of one layer's step. All its inputs and states may be zeros."""
    graph = Graph(
        "warm",
        [],
        [Info(name, *what) for name, what in SHAPES.items()],
        [],
        opsets={"": 23},
        ours=True,
    )
    plan, _ = compile_graph(
        graph,
        {name: shape for name, (_, shape) in SHAPES.items()},
        {name: dtype for name, (dtype, _) in SHAPES.items()},
        transform=_add_step,
    )
    return plan


def _add_step(bound: BoundGraph) -> None:
    """Adds a training step: loss, gradients and AdamW."""
    g = Gradients(bound)
    loss, parameters = _forward(bound, g)
    optimizer, count = AdamW(), bound.state("step", INT64, [1])
    number = g.op("AddTo", count, g.ints([1]), domain="edgewise")
    for w, d in zip(parameters, add_gradients(bound, [(loss, None)], parameters)):
        kept = [
            bound.state(f"{w.name}/{name}", *what)
            for name, what in optimizer.states(w.shape).items()
        ]
        bound.effects += optimizer.update(
            g, w, cast(Value, d), kept, bound.inputs["rate"], number, None, 0.0
        )
    bound.outputs = {"loss": g.reshape(loss, [])}


def _forward(bound: BoundGraph, g: Gradients) -> tuple[Value, list[Value]]:
    """(loss, parameters) of embeddings, attention, SwiGLU and a ReLU layer."""
    rows = BATCH * SEQUENCE
    parameters: list[Value] = []

    def weight(*shape: int) -> Value:
        parameters.append(bound.state(f"w{len(parameters)}", FLOAT, list(shape)))
        return parameters[-1]

    def linear(x: Value, rows: int, columns: int) -> Value:
        return g.op("MatMul", x, weight(rows, columns))

    def norm(x: Value) -> Value:
        return g.op("RMSNormalization", x, weight(WIDTH), axis=-1, epsilon=1e-5)

    def heads(x: Value) -> Value:
        return g.transpose(g.reshape(x, [BATCH, SEQUENCE, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    x = g.op("Gather", weight(VOCAB, WIDTH), bound.inputs["ids"])
    h = norm(x)
    h = g.op(
        "Attention",
        *(heads(linear(h, WIDTH, WIDTH)) for _ in "qkv"),
        domain="edgewise",
        scale=1.0,
        causal=1,
    )
    x = g.add(x, linear(g.reshape(g.transpose(h, [0, 2, 1, 3]), [rows, WIDTH]), WIDTH, WIDTH))
    h = norm(x)
    gated = g.op("SiLUMul", linear(h, WIDTH, INNER), linear(h, WIDTH, INNER), domain="edgewise")
    x = g.add(x, linear(gated, INNER, WIDTH))
    x = g.add(x, g.op("Relu", g.add(linear(x, WIDTH, WIDTH), weight(WIDTH))))
    loss = cross_entropy(g, linear(norm(x), WIDTH, VOCAB), bound.inputs["labels"])
    return loss, parameters
