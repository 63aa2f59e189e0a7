"""What a model is, before anything of it runs: `edgewise inspect model.onnx` prints it."""
from __future__ import annotations

from . import sequences
from .ops import OPS

BY_BINDING = {"Constant", "If"}  # operators of the default domain that binding itself takes care of


def is_supported(domain, op):
    """Whether there is an operator of this name; versions, types and attributes it may still refuse."""
    return (domain, op) in OPS or domain == "" and (op in BY_BINDING or op in sequences._OPS)


def every_node(graph):
    """The nodes of a graph, of its subgraphs, and of the model-local functions that they call, each function once."""
    seen, waiting = set(), [graph]
    while waiting:
        for n in waiting.pop().every_node():
            yield n
            key = (n.domain, n.op)
            if key in graph.functions and key not in OPS and key not in seen:
                seen.add(key)
                waiting.append(graph.functions[key])


def unsupported(graph):
    """{(domain, op): [nodes]} of the operators that are neither there nor functions of the model."""
    out = {}
    for n in every_node(graph):
        if not is_supported(n.domain, n.op) and (n.domain, n.op) not in graph.functions:
            out.setdefault((n.domain, n.op), []).append(n)
    return out
