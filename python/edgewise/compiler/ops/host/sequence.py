"""Operators of sequences, which are lists of tensors.

With concrete shapes, most sequences are known while a graph is bound, and cost nothing at run time;
the session holds the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import INT64
from ...declare.op import Op, axis_of, fail
from ...declare.values import Sequence
from ..shape.shape import identity
from .control_flow import subgraph

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext

MAX_PARTS = 1 << 12


def _sequence(node: BoundNode, i: int = 0) -> Sequence:
    """Input i. Raises ModelError where it is not a sequence."""
    v = node.input(i)
    if not isinstance(v, Sequence):
        fail(
            node,
            f"its input {i} is {v}; a sequence is expected",
            "Check what is fed; if it is right, export the model again.",
        )
    return v


def _position(node: BoundNode, i: int, length: int, default: int | None, extra: int = 0) -> int:
    """The index that is input i, counted from 0, below length + extra; default where absent."""
    if not node.has(i):
        at = default
    else:
        numbers = node.need(i)
        at = numbers[0] if len(numbers) == 1 and type(numbers[0]) is int else None
    if at is None or not -length <= at < length + extra:
        fail(node, f"its index {at} is out of range for a sequence of {length} elements")
    return at + length if at < 0 else at


@identity.host(static=True)
def identity_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    return list(inputs)


sequence_empty = Op("SequenceEmpty")


@sequence_empty.host(static=True)
def sequence_empty_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any]:
    return [Sequence()]


sequence_construct = Op("SequenceConstruct")


@sequence_construct.host(static=True)
def sequence_construct_host(
    node: BoundNode, run: HostContext, inputs: list[Any]
) -> list[Any] | None:
    if not inputs or any(v is None or v.dtype != inputs[0].dtype for v in inputs):
        fail(
            node,
            f"its inputs are {', '.join(map(str, inputs)) or 'missing'}",
            "They must be present and have one type; export the model again.",
        )
    return [Sequence(inputs)]


sequence_at = Op("SequenceAt")


@sequence_at.host(static=True)
def sequence_at_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    s = _sequence(node)
    return [s[_position(node, 1, len(s), None)]]


sequence_length = Op("SequenceLength")


@sequence_length.host(static=True)
def sequence_length_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    return [run.constant(INT64, [], [len(_sequence(node))])]


sequence_insert = Op("SequenceInsert")


@sequence_insert.host(static=True)
def sequence_insert_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    s = _sequence(node)
    if not node.has(1) or len(s) and node.inputs[1].dtype != s[0].dtype:
        fail(node, f"{node.input(1)} cannot be inserted into a sequence of {s[0] if len(s) else s}")
    at = _position(node, 2, len(s), len(s), 1)
    if at == len(s):  # appending takes constant time, as loops that collect need it
        return [s.with_last(node.inputs[1])]
    run.copies(node, len(s))
    items = list(s)
    items.insert(at, node.inputs[1])
    return [Sequence(items)]


sequence_erase = Op("SequenceErase")


@sequence_erase.host(static=True)
def sequence_erase_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    run.copies(node, len(_sequence(node)))
    items = list(_sequence(node))
    del items[_position(node, 1, len(items), len(items) - 1)]
    return [Sequence(items)]


split_to_sequence = Op("SplitToSequence")


@split_to_sequence.host(static=True)
def split_to_sequence_host(
    node: BoundNode, run: HostContext, inputs: list[Any]
) -> list[Any] | None:
    x, keep = node.inputs[0], node.attr("keepdims", 1)
    axis = axis_of(node, node.attr("axis", 0), x.rank)
    length = x.shape[axis]
    if not node.has(1):
        sizes = [1] * length
    else:
        sizes, keep = node.need(1), 1
        if node.inputs[1].rank == 0:  # equal parts; the last one may be smaller
            size = sizes[0]
            if size < 1:
                fail(node, f"its split is {size}; a positive number is expected")
            sizes = [min(size, length - i) for i in range(0, length, size)]
    if sum(sizes) != length or min(sizes, default=0) < 0 or len(sizes) > MAX_PARTS:
        fail(node, f"its split {str(sizes)[:200]} does not divide a dimension of {length}")
    if not sizes:
        return [Sequence()]
    parts = run.op(
        "Split", x, run.constant(INT64, [len(sizes)], sizes), axis=axis, outputs=len(sizes)
    )
    parts = parts if isinstance(parts, list) else [parts]
    return [
        Sequence(
            parts
            if keep
            else [run.op("Squeeze", v, run.constant(INT64, [1], [axis])) for v in parts]
        )
    ]


concat_from_sequence = Op("ConcatFromSequence")


@concat_from_sequence.host(static=True)
def concat_from_sequence_host(
    node: BoundNode, run: HostContext, inputs: list[Any]
) -> list[Any] | None:
    s, axis = _sequence(node), node.attr("axis", 0)
    if not len(s):
        fail(node, "its sequence is empty")
    if node.attr("new_axis", 0):
        unsqueezed = [run.op("Unsqueeze", v, run.constant(INT64, [1], [axis])) for v in s]
        return [run.op("Concat", *unsqueezed, axis=axis)]
    return [run.op("Concat", *s, axis=axis)]


sequence_map = Op("SequenceMap")


@sequence_map.host
def sequence_map_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """The body for each element of the first sequence, with the elements of other sequences at the
    same index; other tensors are passed to each call.
    """
    graph = subgraph(node, "body")
    body, first = run.body(graph), _sequence(node)
    others = inputs[1:]
    if any(isinstance(v, Sequence) and len(v) < len(first) for v in others):
        fail(node, f"a sequence has fewer elements than the first, {len(first)}")
    out: list[list[Any]] = [[] for _ in graph.outputs]
    for i, x in enumerate(first):
        run.trip()
        for kept, v in zip(out, body(x, *[v[i] if isinstance(v, Sequence) else v for v in others])):
            kept.append(v)
    return [Sequence(kept) for kept in out]
