"""Weights of float32 that float16 holds exactly: a model that was trained or published in float16
and exported as float32. Stored as float16, they are half of what a token reads, and every number is
the same.

They are stored as float16 numbers of w * 2^k, with one k for each tensor, so that none is subnormal
or infinite: kernels then convert them by shifts. Products undo the factor by their alpha, and
lookups of rows by a multiplication (Builder.narrow).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT

if TYPE_CHECKING:
    from ..ir import Graph, Node, Tensor

PIECE = 16 << 20  # bytes that are looked at at once: a page's read of a file costs a millisecond
MIN = 1 << 16  # elements from which a token waits for a weight
# Bytes of a weight that are looked at first. A page keeps them with a compiled model, so that
# another model in the same place is seen.
_SAMPLE = 1 << 14
_VIEWS = ("Transpose", "Identity")
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul")


def mark_half_weights(*graphs: Graph) -> None:
    """Sets `power` of the weights of products that float16 holds exactly.

    Only of weights that nothing but products and lookups of rows reads: these kernels read float16.
    Reads the weights from their files.

    Args:
        graphs: those of one model. A file may be there twice.
    """
    found: dict[int, tuple[Tensor, list[bool]]] = {}
    for graph in {id(g): g for g in graphs}.values():
        uses = _uses(graph)
        for name, t in _constants(graph):
            if t.dtype == FLOAT and len(t.shape) == 2 and t.count >= MIN and t.source is not None:
                found.setdefault(id(t), (t, []))[1].append(_only_products(uses, name))
    for t, suits in found.values():
        t.power = power_of(t) if all(suits) else None


def power_of(t: Tensor) -> int | None:
    """k of the float16 numbers w * 2^k, all zero or normal, of a float32 tensor in a file.

    Returns:
        the k that is closest to 0; None where float16 does not hold the numbers
    """
    assert t.source is not None
    sample = min(_SAMPLE, t.nbytes)
    t.source.read(t.offset, sample)
    low, high, end = 255, 0, t.offset + t.nbytes
    for at, size in [(t.offset, sample), *((i, PIECE) for i in range(t.offset, end, PIECE))]:
        here = t.source.exponents(at, min(size, end - at))
        if here is None:
            return None
        low, high = min(low, here[0]), max(high, here[1])
        # float16 has normal numbers of 30 exponents, 113 to 142 as those of float32 are biased
        if high - low > 29 or high == 255:
            return None
    if high == 0:  # zeros
        return 0
    return min(max(0, 113 - low), 142 - high)


def _constants(graph: Graph) -> Iterator[tuple[str, Tensor]]:
    yield from graph.constants.items()
    for node in graph.nodes:
        for inner in node.subgraphs():
            yield from _constants(inner)


def _uses(graph: Graph) -> dict[str, list[tuple[Node | None, int]]]:
    """{name: the nodes that read it, and as which input}; None: an output of a graph or subgraph"""
    uses: dict[str, list[tuple[Node | None, int]]] = {}
    for node in graph.nodes:
        for i, name in enumerate(node.inputs):
            uses.setdefault(name, []).append((node, i))
        for inner in node.subgraphs():
            for name, found in _uses(inner).items():
                uses.setdefault(name, []).extend(found)
    for info in graph.outputs:
        uses.setdefault(info.name, []).append((None, 0))
    return uses


def _only_products(uses: dict[str, list[tuple[Node | None, int]]], name: str) -> bool:
    """Whether a weight is that of a product, and else only looked up in."""
    products = False
    for node, i in uses.get(name, ()):
        if node is None:
            return False
        if node.op in _VIEWS:
            if not all(_only_products(uses, output) for output in node.outputs):
                return False
            products = True
        elif node.op in _PRODUCTS and i == 1:
            products = True
        elif not (node.op == "Gather" and i == 0):
            return False
    return products
