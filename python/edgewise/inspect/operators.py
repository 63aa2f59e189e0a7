"""The operators of a model, and whether Edgewise has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..ir import Graph, Node
from ..onnx.reader import Function
from ..ops import OPS
from .report import Operator

Key = tuple[str, str]  # domain and name of an operator


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


def list_operators(graph: Graph, missing: dict[Key, list[Node]]) -> list[Operator]:
    """The operators of a model. missing: what `unsupported` returned."""
    counts = Counter((node.domain, node.op) for node in every_node(graph))
    return [
        Operator(
            domain,
            op,
            opset=graph.opsets.get(domain, 0),
            count=count,
            supported=(domain, op) not in missing,
            function=(domain, op) in graph.functions and (domain, op) not in OPS,
            nodes=[
                node.name or next((name for name in node.outputs if name), "")
                for node in missing.get((domain, op), ())
            ],
        )
        for (domain, op), count in sorted(counts.items())
    ]
