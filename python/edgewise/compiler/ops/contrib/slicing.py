"""A slice of a tensor along one axis, as operators of com.microsoft are composed of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.op import Dim

if TYPE_CHECKING:
    from ...declare.annotations import Binder, Value


def cut(graph: Binder, v: Value, axis: int, start: Dim, end: Dim, step: int = 1) -> Value:
    """v[start:end:step] along an axis."""
    return graph.op("Slice", v, *(graph.ints([i]) for i in (start, end, axis, step)))
