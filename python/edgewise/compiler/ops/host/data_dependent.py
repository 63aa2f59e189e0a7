"""NonZero, Compress, Unique and NonMaxSuppression, the length of whose outputs depends on data.

A kernel writes into a buffer for the largest possible result and counts; the session returns the
part that was written.
"""

from __future__ import annotations

from array import array
from math import inf
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import MS, Op, axis_of, fail, product, takes, unsupported
from ...declare.values import RunTensor, StringTensor

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, HostContext, Inferred

MAX = 1 << 28  # elements of such a buffer
MAX_COSTS = 1 << 24  # of a path's matrix, which Python walks through
BOTH, UP, LEFT = 0, 1, 2  # steps of a path through a matrix

kernels = {
    "non_zero": Op("NonZero", "edgewise", half=[0]),
    "unique": Op("Unique", "edgewise"),
    "nms": Op("NonMaxSuppression", "edgewise"),
}


@kernels["non_zero"].infer
def non_zero_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    return [(INT64, [max(x.rank, 1) * product(x.shape)]), (INT64, [1])]


@kernels["non_zero"].lower
def non_zero_lower(node: BoundNode, builder: Builder) -> None:
    x = node.inputs[0]
    dims = [1] * (6 - x.rank) + list(x.shape)
    builder.emit(
        "nonzero",
        {
            "x": builder.contiguous(builder.view(x)),
            "y": builder.out(node.outputs[0]),
            "count": builder.out(node.outputs[1]),
        },
        type=x.dtype,
        rank=max(x.rank, 1),
        dims=dims,
    )


@kernels["unique"].infer
def unique_infer(node: BoundNode) -> Inferred:
    rows = node.inputs[0].shape[0]
    return [(INT64, [rows])] * 3 + [(INT64, [1])]


@kernels["unique"].lower
def unique_lower(node: BoundNode, builder: Builder) -> None:
    x = node.inputs[0]
    rows, cols = x.shape
    names = {
        name: builder.out(v)
        for name, v in zip(("first", "inverse", "counts", "count"), node.outputs)
    }
    builder.emit(
        "unique",
        {"x": builder.contiguous(builder.view(x)), **names},
        type=x.dtype,
        n=rows,
        cols=cols,
        sorted=node.attr("sorted", 1),
    )


@kernels["nms"].infer
def nms_infer(node: BoundNode) -> Inferred:
    batch, classes, _ = node.inputs[1].shape
    return [(INT64, [batch * classes * node.attr("most", 0), 3]), (INT64, [1])]


@kernels["nms"].lower
def nms_lower(node: BoundNode, builder: Builder) -> None:
    boxes, scores = node.inputs
    batch, classes, count = scores.shape
    builder.emit(
        "nms",
        {
            "boxes": builder.contiguous(builder.view(boxes)),
            "scores": builder.contiguous(builder.view(scores)),
            "selected": builder.out(node.outputs[0]),
            "count": builder.out(node.outputs[1]),
        },
        batch=batch,
        classes=classes,
        n=count,
        **{k: node.attr(k, 0) for k in ("most", "center", "limited")},
        iou=node.attr("iou", 0.0),
        score=node.attr("score", 0.0),
    )


non_zero = Op("NonZero")


@non_zero.host(static=True)
def non_zero_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    x = inputs[0]
    rank = x.rank  # 0: the output has no rows, only a number of columns
    if not isinstance(x, RunTensor):  # while binding: exporters write NonZero for 0, 1, 2, ...
        if x.numbers is None:
            return None
        places = [i for i, v in enumerate(x.numbers) if v != 0]
        below = [product(x.shape[axis + 1 :]) for axis in range(rank)]
        rows = [i // n % d for n, d in zip(below, x.shape) for i in places]
        return [run.constant(INT64, [rank, len(places)], rows)]
    if x.rank > 6 or rank * x.count > MAX:
        unsupported(node, f"NonZero of {x}")
    if not rank:
        return [RunTensor(INT64, [0, int(x.numbers[0] != 0)], b"")]
    if not x.count:
        return [RunTensor(INT64, [rank, 0], b"")]
    y, count = run.op("NonZero", x, domain="edgewise", outputs=2)
    return [run.front(y, [rank, count.numbers[0]])]


compress = Op("Compress")


@compress.host
def compress_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    x, c = inputs
    if isinstance(x, StringTensor):
        return None
    axis = node.attrs.get("axis")
    if c.dtype != BOOL or c.rank != 1:
        fail(node, f"its condition is {c}; a list of bools is expected")
    x = x.reshaped([x.count]) if axis is None else x
    axis = 0 if axis is None else axis_of(node, node.attr("axis", 0), x.rank)
    if c.count > x.shape[axis]:
        c = run.front(c, [x.shape[axis]])
    places = RunTensor(INT64, [0], b"")
    if c.count:
        y, count = run.op("NonZero", c, domain="edgewise", outputs=2)
        places = run.front(y, [count.numbers[0]])
    return [run.op("Gather", x, places, axis=axis)]


unique = Op("Unique")


@unique.host
def unique_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    x, axis, words = inputs[0], node.attrs.get("axis"), None
    if isinstance(x, StringTensor):
        words = sorted(set(x.strings))
        place = {w: i for i, w in enumerate(words)}
        x = RunTensor.of(INT64, x.shape, [place[s] for s in x.strings])
    x = x.reshaped([x.count]) if axis is None else x
    axis = axis_of(node, node.attr("axis", 0), x.rank) if axis is not None else 0
    size, cols = x.shape[axis], product(x.shape[:axis] + x.shape[axis + 1 :])
    if not size or not cols:
        if size:
            unsupported(node, f"{size} rows without elements")
        empty = RunTensor(INT64, [0], b"")
        return [x if words is None else StringTensor(x.shape, []), empty, empty, empty]
    rows = (
        run.op("Transpose", x, perm=[axis, *(i for i in range(x.rank) if i != axis)]) if axis else x
    )
    first, inverse, counts, count = run.op(
        "Unique",
        rows.reshaped([size, cols]),
        domain="edgewise",
        outputs=4,
        sorted=node.attr("sorted", 1),
    )
    count = count.numbers[0]
    first, counts = run.front(first, [count]), run.front(counts, [count])
    y = run.op("Gather", x, first, axis=axis)
    return [
        y if words is None else StringTensor(y.shape, [words[i] for i in y.numbers]),
        first,
        inverse,
        counts,
    ]


unique_unsorted = Op("Unique", MS)


@unique_unsorted.host
def unique_unsorted_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Values in the order of their first occurrence, where each element stands among them, and how
    often each occurs.
    """
    if inputs[0].rank != 1:
        fail(node, f"its input is {inputs[0]}; one dimension is expected")
    y, _, inverse, counts = run.op("Unique", inputs[0], outputs=4, sorted=0)
    return [y, inverse, counts]


warping = Op("DynamicTimeWarping", MS)


@warping.host
def warping_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """The cheapest path through a matrix of costs, int32 [2, steps]: rows and columns.

    Where several steps cost the same it goes the way that OpenAI's Whisper goes.
    """
    x = inputs[0]
    takes(node, (FLOAT,), 0)
    rows, columns = x.shape[-2:] if x.rank in (2, 3) else (0, 0)
    if not rows or not columns or x.rank == 3 and x.shape[0] != 1:
        fail(node, f"its costs are {x}; [rows, columns] is expected")
    if x.count > MAX_COSTS:
        unsupported(node, f"a path through {x}")
    numbers, width = x.numbers, columns + 1
    cost, came = array("f", [inf]) * ((rows + 1) * width), bytearray((rows + 1) * width)
    cost[0] = 0.0
    for r in range(1, rows + 1):
        run.trip()
        came[r * width] = UP
        for c in range(1, width):
            at = r * width + c
            both, up, left = cost[at - width - 1], cost[at - width], cost[at - 1]
            came[at] = (
                BOTH if both < up and both < left else UP if up < left and up < both else LEFT
            )
            best = both if came[at] == BOTH else up if came[at] == UP else left
            cost[at] = best + numbers[(r - 1) * columns + c - 1]
    r, c, path = rows, columns, []
    while r > 0 or c > 0:
        path.append((r - 1, c - 1))
        step = came[r * width + c] if r else LEFT
        r, c = r - (step != LEFT), c - (step != UP)
    path.reverse()
    return [run.constant(INT32, [2, len(path)], [p[i] for i in (0, 1) for p in path])]


nms = Op("NonMaxSuppression")


@nms.host
def nms_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    boxes, scores = inputs[:2]
    takes(node, (FLOAT,), 0, 1)
    if (
        boxes.rank != 3
        or scores.rank != 3
        or boxes.shape[2] != 4
        or boxes.shape[0] != scores.shape[0]
        or boxes.shape[1] != scores.shape[2]
    ):
        fail(node, f"its boxes {boxes} and scores {scores} are incompatible")
    (most,), (iou,), (score,) = (
        node.need(i) if node.has(i) else [default] for i, default in ((2, 0), (3, 0.0), (4, 0.0))
    )
    if not 0 <= iou <= 1:
        fail(node, f"its iou_threshold is {iou}; 0 to 1 is expected")
    most = min(max(most, 0), boxes.shape[1])
    if not most or not scores.count:
        return [RunTensor(INT64, [0, 3], b"")]
    if scores.shape[0] * scores.shape[1] * most * 3 > MAX:
        unsupported(node, f"up to {most} boxes for each of {scores}")
    selected, count = run.op(
        "NonMaxSuppression",
        boxes,
        scores,
        domain="edgewise",
        outputs=2,
        most=most,
        center=node.attr("center_point_box", 0),
        limited=int(node.has(4)),
        iou=float(iou),
        score=float(score),
    )
    return [run.front(selected, [count.numbers[0], 3])]
