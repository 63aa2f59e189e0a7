"""Divides a graph whose lengths follow from data: models that speak compute how long each token of
a text sounds, and only then how many frames there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import UnsupportedOp
from ..bind import BoundGraph, bind
from ..declare.dtypes import INT32, INT64
from ..declare.symbolic import Sym
from ..ir import Graph, Info, NeedsValue, Node

# What a whole number passes on its way to a shape without being changed.
UNCHANGED = ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape")
LENGTH = "~length"  # an input of the second graph: its size is the number of frames


@dataclass
class Halves:
    """A graph in two parts.

    Attributes:
        first: computes the tensors that the second part reads, among them `length`.
        second: the rest, with an input LENGTH of this size.
        length: name of the tensor, a whole number, that the shapes of the second part follow.
        shapes: {name of an input of the second part: shape}; LENGTH has none.
        dtypes: of these inputs.
        numbers: {name: flat numbers} of those that follow from the shapes alone.
    """

    first: Graph
    second: Graph
    length: str
    shapes: dict[str, list[Any]]
    dtypes: dict[str, int]
    numbers: dict[str, list[Any]]


def divide(
    graph: Graph, shapes: Mapping[str, Sequence[int | Sym]], dtypes: Mapping[str, int]
) -> Halves | None:
    """Divides a graph at the number that its shapes follow.

    Args:
        graph: the graph.
        shapes, dtypes: of its inputs.

    Returns:
        None if its shapes follow from those of the inputs

    Raises:
        UnsupportedOp: they follow from several numbers.
        NotStatic, NeedsHost: as of bind.
    """
    try:
        bind(graph, shapes, dtypes, run_seed=True)
        return None
    except NeedsValue as e:
        asked = e.value.name
    for length in _origins(graph, asked):
        halves = _divided(graph, length, shapes, dtypes)
        if halves.dtypes[length] in (INT32, INT64):
            return halves
    raise UnsupportedOp(
        f"a shape follows from '{asked}', which is no whole number",
        graph.name or "model",
        "Export the model again.",
    )


def _divided(
    graph: Graph, length: str, shapes: Mapping[str, Sequence[int | Sym]], dtypes: Mapping[str, int]
) -> Halves:
    """Divides a graph at a number that nodes compute."""
    later, reads = {length}, {id(n): reads_of(n) for n in graph.nodes}
    first: list[Node] = []
    second: list[Node] = []
    for node in graph.nodes:
        if later.isdisjoint(reads[id(node)]):
            first.append(node)
        else:
            second.append(node)
            later.update(node.outputs)
    outputs = [o.name for o in graph.outputs]
    if not set(outputs) <= later:
        raise UnsupportedOp(
            f"its outputs are {', '.join(outputs)[:200]}",
            graph.name or "model",
            "Export the model with the sound as its only output.",
        )
    made = {o for n in first for o in n.outputs} | {i.name for i in graph.input_names()}
    needed = {name for n in second for name in reads[id(n)] if name in made}
    given = [i for i in graph.input_names() if i.name in needed]
    between = [o for n in first for o in n.outputs if o in needed - {i.name for i in given}]
    head = replace(graph, nodes=first, outputs=[Info(name) for name in between])
    bound = bind(head, shapes, dtypes, run_seed=True)
    values = {name: bound.outputs[name] for name in between}
    types = {name: v.dtype for name, v in values.items()}
    types |= {i.name: dtypes.get(i.name) or i.dtype for i in given}
    all_shapes = {name: list(v.shape) for name, v in values.items()}
    all_shapes |= {i.name: list(shapes[i.name]) for i in given}
    infos = [Info(name, types[name], _declared(all_shapes[name])) for name in all_shapes]
    head.outputs = [info for info in infos if info.name in values]
    tail = replace(graph, nodes=second, inputs=[*infos, Info(LENGTH, INT64, ["frames"])])
    numbers = {name: list(v.numbers) for name, v in values.items() if v.numbers is not None}
    return Halves(head, tail, length, all_shapes, types, numbers)


def ranks(bound: BoundGraph) -> dict[str, int]:
    """{name: number of dimensions} of the values that nodes compute."""
    return {v.name: v.rank for n in bound.nodes for v in n.outputs if v is not None}


def _declared(shape: Sequence[int | Sym]) -> list[Any]:
    return ["length" if isinstance(d, Sym) else d for d in shape]


def reads_of(node: Node) -> set[str]:
    """Names that a node and its subgraphs read."""
    names = {name for name in node.inputs if name}
    for graph in node.subgraphs():
        for inner in graph.every_node():
            names.update(inner.inputs)
    return names


def _origins(graph: Graph, name: str) -> list[str]:
    """The number that a shape follows, before and between conversions: the earliest first."""
    makers = {o: n for n in graph.nodes for o in n.outputs}
    if name not in makers:
        raise UnsupportedOp(
            f"a shape follows from the numbers of '{name}'",
            graph.name or "model",
            "Export the model again.",
        )
    names = [name]
    while (node := makers[names[0]]).op in UNCHANGED and not node.domain:
        if node.inputs[0] not in makers:
            break
        names.insert(0, node.inputs[0])
    return names
