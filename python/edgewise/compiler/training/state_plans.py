"""Plans that use only the states of a training run, not its model: first values, merged adapters,
and parameters that are stored in adapters as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..bind import BoundGraph, Gradients
from ..declare.dtypes import FLOAT, bytes_for
from ..declare.symbolic import product
from ..ir import Graph, Tensor, Value
from ..passes.lora import LoraLayer
from ..plan import Plan, compile_graph
from ..plan.explain import TRAINING
from ..targets import Target

if TYPE_CHECKING:
    from .program import Program


@dataclass
class State:
    """A tensor that persists between runs.

    Attributes:
        name: of the state.
        kind: "parameter", "adapter", "buffer", "optimizer", "gradient" or "step".
        dtype: ONNX code.
        shape: dimensions.
        initial: ("constant", name) of the model, ("fill", number), ("uniform", bound, stream) or
            ("normal", deviation, stream).
    """

    name: str
    kind: str
    dtype: int
    shape: tuple[int, ...]
    initial: tuple[Any, ...] = ("fill", 0)

    @property
    def nbytes(self) -> int:
        """Bytes in engine memory."""
        return bytes_for(self.dtype, product(self.shape))


@dataclass
class Feed:
    """An input that a caller feeds. kind: "input" of the model, or "target" of the loss."""

    name: str
    kind: str
    dtype: int
    shape: tuple[int, ...]


def auxiliary_plan(
    name: str,
    target: Target,
    change: Callable[[BoundGraph, Gradients], None],
    constants: Mapping[str, Tensor] | None = None,
) -> Plan:
    """A plan of a graph without nodes.

    Args:
        name: of the graph.
        target: device that the plan is for.
        change: adds the nodes.
        constants: of the graph.
    """
    plan, _ = compile_graph(
        Graph(name, opsets={"": 23}, constants=dict(constants or {})),
        {},
        outputs=[],
        prepare=lambda bound: change(bound, Gradients(bound)),
        optimized=False,
        doing=TRAINING.broken,
        target=target,
    )
    return plan


def initialize(program: Program, without: Sequence[str] = ()) -> Plan:
    """A plan that gives the states of a program their first values, except those of these names."""
    states = [s for s in program.states.values() if s.name not in without]
    constants = {
        s.initial[1]: program.graph.constants[s.initial[1]]
        for s in states
        if s.initial[0] == "constant"
    }

    def change(bound: BoundGraph, graph: Gradients) -> None:
        for s in states:
            if s.kind == "gradient":
                continue
            state = bound.state(s.name, s.dtype, s.shape)
            first = _first_value(bound, graph, s)
            if first is not None:
                bound.effects.append(graph.op("Assign", state, first, domain="edgewise"))

    return auxiliary_plan("initialize", program.target, change, constants)


def _first_value(bound: BoundGraph, graph: Gradients, state: State) -> Value | None:
    """The first value of a state; None for zeros, since memory is zero-initialized."""
    how, *what = state.initial
    if how == "constant":
        first = bound.binder.scope[what[0]]
        return graph.op("Cast", first, to=FLOAT) if first.dtype != FLOAT else first
    if how == "fill":
        if what[0] == 0:
            return None
        return graph.op("Expand", graph.number(what[0]), graph.ints(state.shape))
    bound.binder.training = True  # random numbers follow from the input `seed`
    stream_of_run = bound.binder.random_stream()
    assert stream_of_run is not None
    seed = stream_of_run[0]

    def uniform(low: float, high: float, stream: int) -> Value:
        return graph.op(
            "RandomUniform",
            seed,
            domain="edgewise",
            shape=list(state.shape),
            low=low,
            high=high,
            stream=stream,
        )

    size, stream = what
    if how == "uniform":
        return uniform(-size, size, stream)
    # Normal: Box and Muller 1958
    u, angle = uniform(2.0**-25, 1.0, stream), uniform(0.0, 2 * math.pi, stream + (1 << 20))
    radius = graph.op("Sqrt", graph.scale(graph.op("Log", u), -2.0))
    return graph.scale(graph.mul(radius, graph.op("Cos", angle)), size)


def _low_rank_product(
    graph: Gradients, layer: LoraLayer, a: Value, b: Value, shape: Sequence[int]
) -> Value:
    """B A of a layer's adapter, in the layout of its weight, which has this shape."""
    if layer.kind == "conv":
        rows = graph.reshape(a, [a.shape[0], product(a.shape[1:])])
        return graph.reshape(graph.op("MatMul", graph.reshape(b, b.shape[:2]), rows), shape)
    delta = graph.op("MatMul", b, a)  # [out, in]; of embeddings [width, rows]
    return delta if layer.transposed else graph.transpose(delta, [1, 0])


def merge(program: Program) -> Plan:
    """A plan that computes W + scaling * (B A) for each base weight, in the file's layout and type,
    with DoRA its rows brought to their magnitudes. Its outputs have the names of the weights.
    """
    base = program.graph.constants
    layers = [(x.weight, x) for x in program.lora_layers if x.weight is not None]
    layers = [(weight, x) for weight, x in layers if weight in base]

    def change(bound: BoundGraph, graph: Gradients) -> None:
        sums: dict[str, Value] = {}
        for weight, x in layers:
            a, b = (bound.state(n, FLOAT, program.states[n].shape) for n in (x.a, x.b))
            if weight in program.trainable:
                w = bound.state(weight, FLOAT, program.states[weight].shape)
            else:
                w = bound.binder.scope[weight]
            delta = _low_rank_product(graph, x, a, b, w.shape)
            if weight not in sums:
                sums[weight] = graph.op("Cast", w, to=FLOAT) if w.dtype != FLOAT else w
            sums[weight] = graph.add(sums[weight], graph.scale(delta, x.scaling))
            if x.magnitude is not None:
                m = bound.state(x.magnitude, FLOAT, program.states[x.magnitude].shape)
                sums[weight] = _with_norms(graph, sums[weight], m, x.transposed)
        for name, v in sums.items():
            dtype = base[name].dtype
            bound.outputs[name] = v if dtype == FLOAT else bound.binder.narrow(v, dtype)

    return auxiliary_plan(
        "merge", program.target, change, {weight: base[weight] for weight, _ in layers}
    )


def _with_norms(graph: Gradients, w: Value, norms: Value, by_rows: bool) -> Value:
    """A matrix whose rows, or columns, have other norms. by_rows: it is [out, in]."""
    axis = 1 if by_rows else 0
    own = graph.op("ReduceL2", w, graph.ints([axis]), keepdims=1)
    least = graph.op("Max", own, graph.number(1e-15))
    return graph.mul(w, graph.div(graph.reshape(norms, own.shape), least))


def swap(program: Program) -> Plan:
    """A plan that exchanges what is trained with its averages, bit by bit."""

    def change(bound: BoundGraph, graph: Gradients) -> None:
        for name in program.trained or ():
            s = program.states[name]
            own, average = (bound.state(n, s.dtype, s.shape) for n in (name, f"average/{name}"))
            negative = graph.neg(own)
            bound.effects.append(graph.op("Assign", own, average, domain="edgewise"))
            bound.effects.append(
                graph.op("Assign", average, graph.neg(negative), domain="edgewise")
            )

    return auxiliary_plan("swap", program.target, change)


def save(program: Program) -> Plan:
    """A plan that outputs the parameters that are stored in adapters as a whole, in PEFT's layout
    and with its names.
    """

    def change(bound: BoundGraph, graph: Gradients) -> None:
        for s in program.saved:
            v = bound.state(s.parameter, FLOAT, program.states[s.parameter].shape)
            bound.outputs[s.name] = graph.op("Transpose" if s.transposed else "Identity", v)

    return auxiliary_plan("saved", program.target, change)
