"""Which operators a model needs, and which of them Edgewise does not have."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import UnsupportedOp
from ..ir import Graph, Node
from ..onnx.reader import Function
from ..ops import OPS

Key = tuple[str, str]  # domain and name of an operator
REMEDY = (
    "`edgewise inspect` lists what a model needs; another exporter, opset or optimization level may"
    " avoid it."
)


def is_supported(domain: str, op: str) -> bool:
    """Whether Edgewise has an operator. It may still refuse some types and attributes."""
    return (domain, op) in OPS and domain != "edgewise"


def every_node(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, of its subgraphs, and of the model-local functions that they call, each
    function once.
    """
    seen: set[Key] = set()
    waiting: list[Graph | Function] = [graph]
    while waiting:
        for node in _nodes_with_subgraphs(waiting.pop()):
            yield node
            key = (node.domain, node.op)
            if key in graph.functions and key not in OPS and key not in seen:
                seen.add(key)
                waiting.append(graph.functions[key])


def _nodes_with_subgraphs(body: Graph | Function) -> Iterator[Node]:
    for node in body.nodes:
        yield node
        for graph in node.subgraphs():
            yield from graph.every_node()


def unsupported(graph: Graph) -> dict[Key, list[Node]]:
    """The nodes of operators that neither Edgewise has nor the model defines, by operator."""
    out: dict[Key, list[Node]] = {}
    for node in every_node(graph):
        key = (node.domain, node.op)
        if not is_supported(*key) and key not in graph.functions:
            out.setdefault(key, []).append(node)
    return out


def check_operators(graph: Graph) -> None:
    """Checks that Edgewise has every operator of a model that was read from a file.

    Raises:
        UnsupportedOp: names all operators that it does not have.
    """
    missing = {} if graph.ours else unsupported(graph)
    if not missing:
        return
    names = [f"{operator_name(*key, graph.opsets.get(key[0], 0))}" for key in sorted(missing)]
    nodes = [node for key in sorted(missing) for node in missing[key]]
    where = f", {nodes[1].where}" if len(nodes) == 2 else f" and {len(nodes) - 1} other nodes"
    raise UnsupportedOp(
        f"the operator {names[0]} is not supported"
        if len(names) == 1
        else f"{len(names)} operators are not supported: {', '.join(names)}",
        nodes[0].where + (where if len(nodes) > 1 else ""),
        REMEDY,
    )


def operator_name(domain: str, op: str, opset: int) -> str:
    """An operator for an error. opset: version of its domain; 0: the model names none."""
    return f"{domain + '.' if domain else ''}{op}" + (f" (opset {opset})" if opset else "")
