"""Caches of layers with a sliding window, which need not hold the positions before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT
from ..declare.op import MS
from .hidden_columns import window_of

if TYPE_CHECKING:
    from ..bind import BoundGraph
    from ..ir import BoundNode, Value

Users = dict[int, list["BoundNode"]]


def sliding_caches(bound: BoundGraph, axes: Mapping[str, int], past: int) -> dict[str, int]:
    """The caches of which each token sees the last positions alone.

    Args:
        bound: the graph of a run, after all passes.
        axes: {name of an input that is a cache: its axis of positions}.
        past: register with the position of the first token.

    Returns:
        {name: positions that a token sees, with its own}
    """
    users: Users = {}
    for node in bound.nodes:
        for v in _read(node):
            users.setdefault(id(v), []).append(node)
    readers = {
        name: found
        for name, axis in axes.items()
        if name in bound.inputs and (found := _readers(bound.inputs[name], axis, users))
    }
    sizes = {id(n): _window(n, past) for found in readers.values() for n in found}
    # Keys slide with their values.
    together = {i: [name for name, found in readers.items() if i in map(id, found)] for i in sizes}
    whole = {i for i, names in together.items() if len(names) != 2 or not sizes[i]}
    while more := {
        i for i in sizes.keys() - whole if any(_shared(readers[n], whole) for n in together[i])
    }:
        whole |= more
    return {
        name: max(sizes[id(n)] for n in found)
        for name, found in readers.items()
        if not _shared(found, whole)
    }


def _shared(readers: list[BoundNode], whole: set[int]) -> bool:
    return any(id(n) in whole for n in readers)


def _read(node: BoundNode) -> Iterator[Value]:
    yield from (v for v in node.inputs if v is not None)
    for body in node.bodies:
        for inner in body.bound.nodes:
            yield from _read(inner)


def _readers(cache: Value, axis: int, users: Users) -> list[BoundNode]:
    """The nodes of attention that read a cache; none where another node does, too."""
    found = users.get(id(cache), [])
    if len(found) != 1:
        return []
    (node,) = found
    if node.op == "Concat" and node.inputs[0] is cache and _axis(node) == axis:
        keys = node.outputs[0]
        found = users.get(id(keys), [])
        alone = all(n.op == "Attention" and n.domain == "edgewise" for n in found)
        reads = [[i for i, v in enumerate(n.inputs) if v is keys] for n in found]
        return found if alone and all(r in ([1], [2]) for r in reads) else []
    appends = (node.op, node.domain) in (("GroupQueryAttention", MS), ("Attention", ""))
    read_on = any(o is not None and id(o) in users for o in node.outputs[1:])
    return found if appends and not read_on else []


def _axis(concat: BoundNode) -> int:
    axis: int = concat.attr("axis", 1) % concat.inputs[0].rank
    return axis


def _window(node: BoundNode, past: int) -> int:
    """The positions that tokens see of the keys of a node, with their own; 0: all."""
    if node.domain == MS and node.attr("causal", 1):
        return max(node.attr("local_window_size", -1), 0)
    if node.domain == "" and node.attr("is_causal", 0):
        return max(node.attr("left_window_size", -1), -1) + 1
    if node.domain == "edgewise" and not node.attr("causal", 0):
        masks = (m for m in node.inputs[3:] if m.dtype == FLOAT)
        return min((w for m in masks if (w := window_of(m, past))), default=0)
    return 0
