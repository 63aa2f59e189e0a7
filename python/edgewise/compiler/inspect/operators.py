"""The operators of a model, and whether Edgewise has them."""

from __future__ import annotations

from collections import Counter

from ..bind.operators import Key, every_node
from ..ir import Graph, Node
from ..ops import OPS
from .report import Operator


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
