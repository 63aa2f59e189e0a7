"""DepthToSpace and SpaceToDepth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import Op, fail

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Decomposed, Value


def _blocks(node: BoundNode, divided: bool) -> tuple[Value, int]:
    """(x, block size); divided: whether the channels are divided, else height and width."""
    x, size = node.inputs[0], node.attr("blocksize", 0)
    if (
        x.rank != 4
        or size < 1
        or any(d % size**2 for d in x.shape[1:2] if divided)
        or not divided
        and any(d % size for d in x.shape[2:])
    ):
        fail(node, f"{x} does not divide into blocks of {size}")
    return x, size


depth_to_space = Op("DepthToSpace", moves=True)


@depth_to_space.decompose
def depth_to_space_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, s = _blocks(node, True)
    b, c, h, w = x.shape
    rows_first = node.attr("mode", "DCR") == "CRD"
    split = graph.op(
        "Reshape",
        x,
        graph.constant(
            INT64, [6], [b, c // s**2, s, s, h, w] if rows_first else [b, s, s, c // s**2, h, w]
        ),
        allowzero=1,
    )
    moved = graph.op(
        "Transpose", split, perm=[0, 1, 4, 2, 5, 3] if rows_first else [0, 3, 4, 1, 5, 2]
    )
    return [
        graph.op(
            "Reshape", moved, graph.constant(INT64, [4], [b, c // s**2, h * s, w * s]), allowzero=1
        )
    ]


space_to_depth = Op("SpaceToDepth", moves=True)


@space_to_depth.decompose
def space_to_depth_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, s = _blocks(node, False)
    b, c, h, w = x.shape
    split = graph.op(
        "Reshape", x, graph.constant(INT64, [6], [b, c, h // s, s, w // s, s]), allowzero=1
    )
    moved = graph.op(
        "Transpose",
        split,
        perm=[0, 1, 3, 5, 2, 4] if node.attr("mode", "DCR") == "CRD" else [0, 3, 5, 1, 2, 4],
    )
    return [
        graph.op(
            "Reshape", moved, graph.constant(INT64, [4], [b, c * s**2, h // s, w // s]), allowzero=1
        )
    ]
