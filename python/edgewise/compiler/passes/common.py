"""Common subexpressions: nodes that compute the same become one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..ir import BoundNode, Value

if TYPE_CHECKING:
    from ..bind import BoundGraph


def _key(v: Value) -> Hashable:
    """Equal for values that are the same, or constants of the same numbers."""
    if v.tensor is None and v.numbers is not None:
        return ("n", v.dtype, tuple(map(repr, v.shape)), tuple(map(repr, v.numbers)))
    if v.tensor is not None and v.tensor.data is not None:
        return ("t", v.dtype, tuple(v.shape), v.tensor.data)
    return id(v)


class _Keys:
    """A small key for each value. A constant's elements are read and hashed once: the tables of a
    forest are inputs of many nodes, and Python does not keep the hash of a tuple.
    """

    def __init__(self) -> None:
        self._of_value: dict[int, int] = {}
        self._of_content: dict[Hashable, int] = {}

    def __call__(self, v: Value | None) -> int:
        if v is None:
            return -1
        key = self._of_value.get(id(v))
        if key is None:
            key = self._of_content.setdefault(_key(v), len(self._of_content))
            self._of_value[id(v)] = key
        return key


def _freeze(a: Any) -> Hashable:
    """An attribute as a key. Its text, since 0.0 equals -0.0, and 1 equals 1.0."""
    return repr(a) if isinstance(a, (list, int, float, str, bytes)) else id(a)


def common_subexpressions(bound: BoundGraph) -> None:
    """Replaces nodes of the same op, inputs (constants: equal numbers) and attributes by the first.

    Nodes that read a cache stay, since it changes within a run. Drops nodes that no output needs,
    which other passes need not look for.
    """
    seen: dict[Hashable, BoundNode] = {}
    same: dict[int, Value] = {}
    kept: list[BoundNode] = []
    keys = _Keys()
    for n in bound.nodes:
        n.inputs = [same.get(id(v), v) if v is not None else None for v in n.inputs]
        key = (
            n.op,
            n.domain,
            n.opset,
            tuple(map(keys, n.inputs)),
            tuple(sorted((k, _freeze(a)) for k, a in n.attrs.items())),
            len(n.outputs),
        )
        first = seen.get(key)
        cached = any(v is not None and v.role == "cache" for v in n.inputs)
        if (
            first is not None
            and not cached
            and all((a is None) == (b is None) for a, b in zip(n.outputs, first.outputs))
        ):
            for a, b in zip(n.outputs, first.outputs):
                if a is not None:
                    same[id(a)] = b
            continue
        seen[key] = n
        kept.append(n)
    bound.nodes = kept
    bound.outputs = {k: same.get(id(v), v) for k, v in bound.outputs.items()}
    bound.prune()
