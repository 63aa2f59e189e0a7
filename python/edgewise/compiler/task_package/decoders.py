"""Graphs of decoders that read one text at once, without tokens before it: nothing is generated, so
they need no caches, and of the logits only those of the last token.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import prod

from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT64
from ..ir import Graph, Info, Node, Tensor

PAST = re.compile(r"(past|input\.cache|cache)[._]")
"""Names of inputs with the state after the tokens before, of all exporters."""
FEATURES = re.compile(r"(image|video|audio)_features")
"""Names of inputs with what pictures and sounds became, of embeddings of all of them."""
KEEP = ("num_logits_to_keep", "logits_to_keep")
MASK = "attention_mask"
_ALONE = ("Cast", "Identity", "Tanh", "Mul", "Div", "Add", "Sub")
_PRODUCTS = ("MatMul", "MatMulNBits", "Gemm", "FusedMatMul")


def empty_state(info: Info, batch: int = 1) -> Tensor | None:
    """The state before the first token, as a constant; None if an input is no state.

    Of features of pictures and sounds (EmbeddingGemma 2) there are none. Dimensions of a state that
    the file fixes keep their size, and the state is 0 there; the first is `batch`, and others,
    which grow with the text, are 0.
    """
    if info.name == "use_cache_branch":
        return Tensor.of(info.name, BOOL, [1], [False])
    if info.name in KEEP:
        rank = len(info.shape or ())
        return Tensor.of(info.name, INT64, [1] * rank, [1])
    if not info.shape or info.dtype not in (FLOAT, FLOAT16):
        return None
    if FEATURES.fullmatch(info.name) and len(info.shape) == 2 and type(info.shape[1]) is int:
        return Tensor.of(info.name, info.dtype, [0, info.shape[1]], [])
    if not PAST.match(info.name):
        return None
    sizes = [d if isinstance(d, int) and d > 0 else 0 for d in info.shape]
    sizes[0] = sizes[0] or batch
    return Tensor.of(info.name, info.dtype, sizes, [0.0] * prod(sizes))


def without_states(graph: Graph, known: Collection[str]) -> None:
    """Makes the inputs that are states constants of a graph.

    Args:
        graph: the graph, which is changed.
        known: names of inputs that are fed.
    """
    kept = []
    for info in graph.inputs:
        state = None if info.name in known or info.name in graph.constants else empty_state(info)
        if state is None:
            kept.append(info)
        else:
            graph.constants[info.name] = state
    graph.inputs = kept


def last_token_only(graph: Graph, output: str = "logits") -> None:
    """Makes a graph compute its logits for the last token of a text alone: a vocabulary of 150,000
    tokens makes those of all others the larger part of the work.

    Args:
        graph: of one text with padding after it. It is changed, if it ends with a product.
        output: the logits, [1, tokens, vocabulary]; then [1, 1, vocabulary].
    """
    by_output = {o: n for n in graph.nodes for o in n.outputs if o}
    node = by_output.get(output)
    while node is not None and node.op in _ALONE:
        inner = [x for x in node.inputs if x in by_output]
        node = by_output[inner[0]] if len(inner) == 1 else None
    if node is None or node.op not in _PRODUCTS or node.inputs[0] not in by_output:
        return
    rows, last = node.inputs[0], "edgewise.last"
    for name in (last, f"{last}.rows"):
        if name in by_output or name in graph.constants:
            return
    at = graph.nodes.index(node)
    node.inputs[0] = f"{last}.rows"
    graph.nodes[at:at] = [*_last_index(graph, last), _gather(rows, last)]


def _gather(rows: str, last: str) -> Node:
    return Node("Gather", [rows, last], [f"{last}.rows"], {"axis": 1}, name=f"{last}.rows")


def _last_index(graph: Graph, last: str) -> list[Node]:
    """Nodes for the index [1] of the last token that is no padding."""
    one = f"{last}.one"
    mask = next((i for i in graph.inputs if i.name == MASK), None)
    if mask is None:
        graph.constants[last] = Tensor.of(last, INT64, [1], [-1])
        return []
    graph.constants[one] = Tensor.of(one, INT64, [1], [1])
    flat, whole, count = f"{last}.mask", f"{last}.whole", f"{last}.count"
    axes = f"{last}.axes"
    graph.constants[axes] = Tensor.of(axes, INT64, [1], [-1])
    return [
        Node("Reshape", [MASK, axes], [flat], name=flat),
        Node("Cast", [flat], [whole], {"to": INT64}, name=whole),
        *_sum(graph, whole, count, last),
        Node("Sub", [count, one], [last], name=last),
    ]


def _sum(graph: Graph, whole: str, count: str, last: str) -> list[Node]:
    if graph.opsets.get("", 18) < 13:
        return [Node("ReduceSum", [whole], [count], {"axes": [0], "keepdims": 1}, name=count)]
    axis = f"{last}.axis"
    graph.constants[axis] = Tensor.of(axis, INT64, [1], [0])
    return [Node("ReduceSum", [whole, axis], [count], {"keepdims": 1}, name=count)]
