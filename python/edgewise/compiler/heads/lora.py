"""LoRA on the backbone of a personal pipeline: graphs of its training, and adapters in a graph.

A package has three programs for it beside "model", and one that uses the result. Their adapters
are one vector: the A of all layers, then the B of all layers, each in PEFT's layout.

    lora_begin: first values of the A (those of the B are zeros); `seed` decides
    lora_step: loss of one example, and its gradients added to a vector: forward and backward
    lora_update: a step of Adam on that vector
    lora: the model with adapters

The vector of a step has the adapters, and after them the weight [size, CLASSES_OF_STEP] and the
bias of a head on features that are centred and scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...logic.personal.adapters import ALPHA, RANK
from ...logic.personal.layout import Layer, LoraLayout, check_lora
from ...logic.personal.layout import fitting_length as length_of
from ...logic.personal.training import CLASSES as CLASSES_OF_STEP
from ..bind import BoundGraph, Gradients, add_gradients
from ..compile.programs import Programs
from ..declare.dtypes import FLOAT, INT64
from ..declare.registers import Registers
from ..declare.symbolic import product
from ..ir import Graph, Info, Node, Value
from ..passes.lora import LoraLayer, insert_lora
from ..passes.recompute import recompute_cheap
from ..training.peft import LoraConfig
from .features import Features
from .step import ADAM, DOMAIN

# Sizes of the plans of a step for inputs of any length: tokens, and seconds of sound. Inputs are
# followed by zeros up to the next one, or cut to the last.
TOKENS, SECONDS = (16, 64, 128), (1, 2, 4)
PROGRAMS = ("lora_begin", "lora_step", "lora_update", "lora")


def lora_fields(given: Any) -> tuple[int, float] | None:
    """(rank, alpha) of the option `personalize` of a package: true, or {"lora": true or {"rank",
    "alpha"}}; None without LoRA.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(given, bool):
        return None
    lora = given.get("lora") if isinstance(given, Mapping) else None
    if lora is True:
        lora = {}
    known = ("rank", "alpha")
    if not isinstance(lora, Mapping) or set(given) != {"lora"} or not set(lora) <= set(known):
        raise InputError(
            f"it is {str(given)[:60]}", "personalize", 'Give true or {"lora": {"rank", "alpha"}}.'
        )
    rank, alpha = lora.get("rank", RANK), lora.get("alpha", ALPHA)
    check_lora(rank, alpha)
    return rank, float(alpha)


def fitting_length(plans: Sequence[Mapping[str, Any]], name: str, n: int) -> int:
    """The length of an input [1, length] that plans take for n: n, else the next, else the last.

    Args:
        plans: as described in a manifest.
        name: of the input.
        n: its length.
    """
    ranges = []
    for plan in plans:
        dim, (low, high) = plan["inputs"][name][1][1], plan.get("register", (0, 0))
        if isinstance(dim, list):
            ranges.append((dim[0] * low + dim[1], dim[0] * high + dim[1]))
        else:
            ranges.append((dim, dim))
    return length_of(ranges, n)


# ---- programs
def add_lora(
    programs: Programs,
    graph: Graph,
    features: Features,
    size: int,
    fields: tuple[int, float],
    rate: int | None = None,
    unit: bool = False,
) -> LoraLayout:
    """Adds PROGRAMS to a package that has the program "model".

    Args:
        programs: of the package.
        graph: of the program "model"; the tensor of the features is one of its outputs.
        features: of the graph.
        size: numbers of an input's features.
        fields: (rank, alpha).
        rate: samples in a second of sound.
        unit: whether features are divided by their length, as voices are.

    Raises:
        InputError: the model has no layers for it, or features that are not those of one input.
        MissingGradient, UnsupportedOp: a part of the model has no gradient.
    """
    config = LoraConfig(r=fields[0], lora_alpha=fields[1])
    plans = programs.package.manifest["programs"]["model"]["plans"]
    found: list[LoraLayout] = []

    def adapted(bound: BoundGraph) -> None:
        found.append(_insert(bound, config, ())[0])

    runs = [(_with_range(plan), None) for plan in plans]
    programs.add("lora", graph, runs, [features.tensor], transform=adapted)
    layout = found[0]
    programs.add(
        "lora_step",
        graph,
        [(shapes, None) for shapes in _step_shapes(plans, rate)],
        [features.tensor],
        transform=_step(config, features, size, unit),
        finish=lambda bound: recompute_cheap(bound, bound.outputs["loss"]),
    )
    programs.add("lora_begin", _begin_graph(layout), [({}, None)])
    count = layout.numbers + size * CLASSES_OF_STEP + CLASSES_OF_STEP
    programs.add("lora_update", _update_graph(count), [(_update_shapes(count), None)])
    return layout


def _with_range(plan: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The shapes that a plan takes, with a register where they have a range."""
    register = plan.get("register")
    if not register:
        return {name: list(shape) for name, (_, shape) in plan["inputs"].items()}
    length = Registers([tuple(register)]).length(0)
    return {
        name: [_dim(d, length) if isinstance(d, list) else d for d in shape]
        for name, (_, shape) in plan["inputs"].items()
    }


def _dim(dim: Sequence[int], length: Any) -> Any:
    """A described dimension at a length."""
    scale, add, *register = dim
    if register and register[0]:
        raise InputError("its inputs have several lengths", "lora", "Leave it out.")
    return length if (scale, add) == (1, 0) else length * scale + add


def _step_shapes(plans: Sequence[Mapping[str, Any]], rate: int | None) -> list[dict[str, Any]]:
    """Shapes of the inputs of the plans of a step, from the shortest on."""
    sizes = [n * rate for n in SECONDS] if rate else list(TOKENS)
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for plan in plans:
        inputs, register = plan["inputs"], plan.get("register")
        if register:
            low, high = register
            lengths = sorted({min(max(n, low), high) for n in sizes})
        else:
            row = [shape[1] for _, shape in inputs.values() if len(shape) == 2]
            lengths = [row[0]] if row else [0]
        for n in lengths:
            shapes = {
                name: [_dim(d, n) if isinstance(d, list) else d for d in shape]
                for name, (_, shape) in inputs.items()
            }
            found.setdefault((n, *map(tuple, shapes.values())), shapes)
    order = sorted(found)
    fitting = [key for key in order if key[0] <= sizes[-1]]
    return [found[key] for key in fitting or order[:1]]


def _insert(
    bound: BoundGraph, config: LoraConfig, further: Sequence[int]
) -> tuple[LoraLayout, list[Value]]:
    """Inserts adapters that an input `parameters` has, and `further` vectors after them.

    Returns:
        (where they are, the further vectors)
    """
    states, layers = insert_lora(bound, config, weighed=False)
    shapes = {s.name: s.shape for s in states}
    layout = _layout(layers, shapes, config)
    names = [x.a for x in layers] + [x.b for x in layers]
    sizes = [*(product(shapes[name]) for name in names), *further]
    value = Value("parameters", FLOAT, [sum(sizes)], role="input")
    bound.inputs["parameters"] = value
    tail, binder = len(bound.nodes), bound.binder
    sizes_value = binder.constant(INT64, [len(sizes)], sizes)
    parts = binder.op("Split", value, sizes_value, outputs=len(sizes), axis=0)
    for name, part in zip(names, parts):
        bound.replace(bound.states.pop(name), binder.reshape(part, shapes[name]))
    made = bound.nodes[tail:]  # the layers are before them
    del bound.nodes[tail:]
    bound.nodes[0:0] = made
    return layout, list(parts[len(names) :])


def _layout(
    layers: Sequence[LoraLayer], shapes: Mapping[str, Sequence[int]], config: LoraConfig
) -> LoraLayout:
    rows = [
        Layer(x.name, x.weight, x.transposed, x.x, x.y, shapes[x.a][1], shapes[x.b][0])
        for x in layers
    ]
    return LoraLayout(config.r, float(config.lora_alpha), tuple(rows))


def _step(
    config: LoraConfig, features: Features, size: int, unit: bool
) -> Callable[[BoundGraph], None]:
    """What makes a step of the model with its features as the output."""
    classes = CLASSES_OF_STEP

    def fed(bound: BoundGraph, name: str, shape: list[int]) -> Value:
        value = bound.inputs[name] = Value(name, FLOAT, shape, role="input")
        return value

    def change(bound: BoundGraph) -> None:
        _keep_from_zero(bound)
        _, (weight, bias) = _insert(bound, config, (size * classes, classes))
        g, parameters = Gradients(bound), bound.inputs["parameters"]
        x = g.reshape(_pooled(g, bound.outputs[features.tensor], features), [1, size])
        if unit:
            squares = g.op("ReduceSum", g.mul(x, x), keepdims=0)
            x = g.op("Div", x, g.op("Sqrt", g.add(squares, g.number(1e-30))))
        x = g.mul(g.sub(x, fed(bound, "mean", [size])), fed(bound, "scale", []))
        logits = g.add(g.op("MatMul", x, g.reshape(weight, [size, classes])), bias)
        likelihoods = g.op("LogSoftmax", g.add(logits, fed(bound, "mask", [classes])), axis=-1)
        shares = g.mul(likelihoods, fed(bound, "targets", [1, classes]))
        loss = g.reshape(g.neg(g.op("ReduceSum", shares, keepdims=0)), [])
        (gradient,) = add_gradients(bound, [(loss, None)], [parameters])
        if gradient is None:
            raise InputError("the features do not depend on its layers", "lora", "Leave it out.")
        sums = fed(bound, "gradients", list(parameters.shape))
        bound.outputs = {"loss": loss, "new_gradients": g.add(sums, gradient)}

    return change


def _keep_from_zero(bound: BoundGraph) -> None:
    """Adds 1e-12 under each Sqrt: units that are 0 in all frames have zero variance, where the
    gradient of Sqrt is infinite and the gradient of its argument 0.
    """
    for node in [n for n in bound.nodes if n.op == "Sqrt" and n.inputs[0].dtype == FLOAT]:
        tail, least = len(bound.nodes), bound.binder.constant(FLOAT, [], [1e-12])
        node.inputs[0] = bound.binder.op("Add", node.inputs[0], least)
        made = bound.nodes[tail:]
        del bound.nodes[tail:]
        at = next(i for i, n in enumerate(bound.nodes) if n is node)
        bound.nodes[at:at] = made


def _pooled(g: Gradients, value: Value, features: Features) -> Value:
    """The features of one input as a vector (feature_nodes does the same in a graph)."""
    if value.dtype != FLOAT:
        value = g.op("Cast", value, to=FLOAT)
    if value.rank == 3 and features.pooling == "first":
        return g.op("Gather", value, g.constant(INT64, [], [0]), axis=1)
    if value.rank not in (2, 3, 4):
        raise InputError(
            f"its features have {value.rank} dimensions", "lora", "Teach a head alone."
        )
    if value.rank == 2:
        return value
    axes = g.ints([1] if value.rank == 3 else [2, 3])
    return g.op("ReduceMean", value, axes, keepdims=0)


def _begin_graph(layout: LoraLayout) -> Graph:
    """Draws the A as PEFT does: kaiming_uniform_(a=sqrt(5)) = U(-1, 1) / sqrt(inner)."""
    nodes, names = [], []
    for i, layer in enumerate(layout.layers):
        bound = 1 / math.sqrt(layer.inner)
        shape = [layout.rank * layer.inner]
        attributes = {"shape": shape, "low": -bound, "high": bound}
        names.append(f"a_{i}")
        nodes.append(Node("RandomUniform", [], [names[-1]], attributes))
    nodes.append(Node("Concat", names, ["a"], {"axis": 0}))
    outputs = [Info("a", FLOAT, [layout.first])]
    return Graph("lora_begin", nodes, [], outputs, opsets={"": 17}, ir_version=9)


def _update_shapes(count: int) -> dict[str, list[int]]:
    vectors = ("parameters", "gradients", "means", "squares")
    return {"rate": [], "step": [], **dict.fromkeys(vectors, [count])}


def _update_graph(count: int) -> Graph:
    """A step of Adam, with the constants of a head's."""
    shapes = _update_shapes(count)
    names = ("parameters", "means", "squares")
    node = Node("Adam", list(shapes), [f"new_{name}" for name in names], dict(ADAM), DOMAIN)
    return Graph(
        "lora_update",
        [node],
        [Info(n, INT64 if n == "step" else FLOAT, list(s)) for n, s in shapes.items()],
        [Info(f"new_{name}", FLOAT, [count]) for name in names],
        opsets={"": 17, DOMAIN: 1},
        ir_version=9,
    )
