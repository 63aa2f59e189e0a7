"""Caches of layers with a sliding window, which need not hold the positions before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ..declare.op import MS

if TYPE_CHECKING:
    from ..bind import BoundGraph
    from ..ir import BoundNode, Value


def sliding_caches(bound: BoundGraph, names: Collection[str]) -> dict[str, int]:
    """The caches of which each token sees the last positions alone.

    Args:
        bound: the graph of a run, after all passes.
        names: of its inputs that are caches.

    Returns:
        {name: positions that a token sees, with its own}
    """
    users: dict[int, list[BoundNode]] = {}
    for node in bound.nodes:
        for v in _read(node):
            users.setdefault(id(v), []).append(node)
    found: dict[str, int] = {}
    for node in bound.nodes:
        window = _window(node)
        caches = [v for v in node.inputs if v is not None and v.role == "cache"]
        alone = all(len(users[id(v)]) == 1 for v in caches)
        read_on = any(o is not None and id(o) in users for o in node.outputs[1:])
        if window and alone and not read_on and all(v.name in names for v in caches):
            found.update((v.name, window) for v in caches)
    return found


def _read(node: BoundNode) -> Iterator[Value]:
    yield from (v for v in node.inputs if v is not None)
    for body in node.bodies:
        for inner in body.bound.nodes:
            yield from _read(inner)


def _window(node: BoundNode) -> int:
    """The positions that tokens see of the caches of a node, with their own; 0: all."""
    if node.op == "GroupQueryAttention" and node.domain == MS and node.attr("causal", 1):
        return max(node.attr("local_window_size", -1), 0)
    if node.op == "Attention" and node.domain == "" and node.attr("is_causal", 0):
        return max(node.attr("left_window_size", -1), -1) + 1
    return 0
