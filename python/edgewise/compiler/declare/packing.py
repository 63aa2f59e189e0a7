"""Unpacking and packing of several numbers in a byte, low bits first, by operators: computed once
per session where the numbers are constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dtypes import INT64, UINT8

if TYPE_CHECKING:
    from .annotations import Graph, Value


def unpacked(graph: Graph, v: Value, bits: int, count: int) -> Value:
    """Unpacks numbers of `bits` bits.

    Args:
        graph: Adds the nodes.
        v: uint8 [..., bytes].
        count: Numbers in the last dimension.
    Returns:
        uint8 [..., count]
    """
    if bits == 8:
        return v
    mask, last = graph.constant(UINT8, [], [(1 << bits) - 1]), graph.constant(INT64, [1], [-1])
    parts = [
        graph.op(
            "BitwiseAnd",
            (
                graph.op("BitShift", v, graph.constant(UINT8, [], [at]), direction="RIGHT")
                if at
                else v
            ),
            mask,
        )
        for at in range(0, 8, bits)
    ]
    whole = graph.op("Concat", *(graph.op("Unsqueeze", p, last) for p in parts), axis=-1)
    shape = [*v.shape[:-1], v.shape[-1] * len(parts)]
    whole = graph.reshape(whole, shape)
    return (
        graph.op(
            "Slice",
            whole,
            graph.constant(INT64, [1], [0]),
            graph.constant(INT64, [1], [count]),
            last,
        )
        if count != shape[-1]
        else whole
    )


def packed(graph: Graph, v: Value, bits: int) -> Value:
    """The reverse of `unpacked`: uint8 [..., count] as [..., count * bits / 8], in whole bytes."""
    if bits == 8:
        return v
    each = 8 // bits
    total: Value | None = None
    ints = [graph.constant(INT64, [1], [i]) for i in range(each)]
    for i in range(each):
        part = graph.op(
            "Slice",
            v,
            ints[i],
            graph.constant(INT64, [1], [v.shape[-1]]),
            graph.constant(INT64, [1], [-1]),
            graph.constant(INT64, [1], [each]),
        )
        part = (
            graph.op("BitShift", part, graph.constant(UINT8, [], [i * bits]), direction="LEFT")
            if i
            else part
        )
        total = part if total is None else graph.op("BitwiseOr", total, part)
    assert total is not None
    return total
