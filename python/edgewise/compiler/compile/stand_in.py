"""Lets a bound graph read a cache instead of keys or values that it computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from ..bind import BoundGraph


def stand_in(bound: BoundGraph, value: Value, cache: Value, but: BoundNode | None) -> None:
    """Lets the readers of keys or values read a cache that holds them instead.

    Exporters merge the transpositions after a projection, so that the product with the queries
    reads another transposition of it than what is kept: such a one becomes one of the cache.

    Args:
        bound: the graph.
        value: the keys or values.
        cache: what stands for them.
        but: a node that goes on reading `value`; None: none.
    """
    for n in bound.nodes:
        if n is not but:
            n.inputs = [cache if v is value else v for v in n.inputs]
    own = value.producer
    if own is None or own.op != "Transpose" or not own.attr("perm"):
        return
    place = {axis: i for i, axis in enumerate(own.attr("perm"))}
    for n in bound.nodes:
        if n is not own and n.op == "Transpose" and n.inputs[0] is own.inputs[0]:
            n.inputs = [cache]
            n.attrs = {**n.attrs, "perm": [place[axis] for axis in n.attr("perm")]}


def in_order(nodes: Iterable[BoundNode]) -> list[BoundNode]:
    """The nodes in an order that can run, as near as possible to the given one."""
    makers = {id(o): n for n in nodes for o in n.outputs if o is not None}
    done: set[int] = set()
    out: list[BoundNode] = []
    for start in nodes:
        stack = [start]
        while stack:
            n = stack[-1]
            if id(n) in done:
                stack.pop()
                continue
            waits = [makers[id(v)] for v in n.inputs if v is not None and id(v) in makers]
            missing = [m for m in waits if id(m) not in done]
            if missing:
                stack += missing
                continue
            done.add(id(n))
            out.append(n)
            stack.pop()
    return out
