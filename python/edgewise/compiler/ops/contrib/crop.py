"""CropAndResize: regions of images, resized to one size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32
from ...declare.op import MS, Op, fail, takes
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

crop_and_resize = Op("CropAndResize", MS)


@crop_and_resize.decompose
def crop_and_resize_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """GridSample over each region; points outside of the image get extrapolation_value."""
    x, rois, batch = node.inputs[:3]
    takes(node, (FLOAT,), 0, 1)
    mode, size = node.attr("mode", "bilinear"), list(node.need(3))
    if (
        mode not in ("bilinear", "nearest")
        or len(size) != 2
        or min(size) < 1
        or x.rank != 4
        or rois.rank != 2
        or rois.shape[1] != 4
        or batch.dtype != INT32
    ):
        fail(node, f"crops of {size} ({mode}) of {x} at {rois}")
    count, insides, grid = rois.shape[0], [], []
    for axis in (0, 1):  # rows, columns
        length = x.shape[2 + axis]
        shape = [count, size[0], 1] if axis == 0 else [count, 1, size[1]]
        at = _pixels(graph, rois, axis, size[axis], length)
        insides.append(graph.reshape(_within(graph, at, length), shape))
        inside = graph.op("And", *insides) if axis else insides[0]
        at = graph.op("Round", at) if mode == "nearest" else at
        at = graph.reshape(_coordinates(graph, at, length), shape)
        at = graph.op("Expand", at, graph.ints([count, *size]))
        grid.append(graph.reshape(at, [count, *size, 1]))
    y = graph.op(
        "GridSample",
        graph.op("Gather", x, batch, axis=0),
        graph.op("Concat", *grid[::-1], axis=3),
        mode="linear",
        padding_mode="border",
        align_corners=1,
    )
    outside = _number(graph, node.attr("extrapolation_value", 0.0))
    assert inside is not None
    return [graph.op("Where", graph.reshape(inside, [count, 1, *size]), y, outside)]


def _number(graph: Binder, x: float) -> Value:
    return graph.constant(FLOAT, [], [x])


def _pixels(graph: Binder, rois: Value, axis: int, size: int, length: int) -> Value:
    """Where each region is sampled along one axis, in pixels of the image: [count, size].

    Args:
        rois: [count, 4]: the first row and column and the last row and column of each region,
            from 0 to 1.
        axis: 0: rows, 1: columns.
        size: how many samples there are.
        length: how many pixels there are.
    """
    first, last = (cut(graph, rois, 1, axis + i, axis + i + 1) for i in (0, 2))  # [count, 1]
    steps = [i / (size - 1) if size > 1 else 0.5 for i in range(size)]
    span = graph.op("Mul", graph.op("Sub", last, first), graph.constant(FLOAT, [size], steps))
    return graph.op("Mul", graph.op("Add", first, span), _number(graph, float(length - 1)))


def _within(graph: Binder, at: Value, length: int) -> Value:
    """Whether positions are inside of the image."""
    return graph.op(
        "And",
        graph.op("GreaterOrEqual", at, _number(graph, 0.0)),
        graph.op("LessOrEqual", at, _number(graph, float(length - 1))),
    )


def _coordinates(graph: Binder, at: Value, length: int) -> Value:
    """Pixels as GridSample's coordinates, from -1 to 1."""
    scaled = graph.op("Mul", at, _number(graph, 2.0 / max(1, length - 1)))
    return graph.op("Sub", scaled, _number(graph, 1.0))
