"""Resize, Upsample, and the kernel under them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ....errors import OutOfMemory
from ...declare.dtypes import BOOL, DOUBLE, FLOAT, INT64, INTEGERS, bytes_for, pack, unpack
from ...declare.op import Op, axis_of, fail, product, unsupported
from ...declare.registers import floor_div
from ...declare.symbolic import NotStatic, Sym, most

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Dim,
        Gradients,
        Graph,
        Inferred,
        InputGradients,
        Value,
    )

# A row of a table: the elements of x that an element of the result is made of, and their weights.
Row = list[tuple[int, float]]

MODES = ("nearest", "linear", "cubic")
TRANSFORMATIONS = (
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("simple", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

# Inputs: x, index [m, taps], weight [m, taps]. Element i along `axis` of the output is the sum of
# weight[i, t] times element index[i, t] of x.
resample = Op("Resample", "edgewise")


@resample.infer
def resample_infer(node: BoundNode) -> Inferred:
    shape = list(node.inputs[0].shape)
    shape[node.attr("axis", 0)] = node.inputs[1].shape[0]
    return [(FLOAT, shape)]


@resample.lower
def resample_lower(node: BoundNode, builder: Builder) -> None:
    x, axis, (m, taps) = (
        builder.contiguous(builder.view(node.inputs[0])),
        node.attr("axis", 0),
        node.inputs[1].shape,
    )
    builder.emit(
        "resample",
        {
            "x": x,
            "index": builder.view(node.inputs[1]),
            "weight": builder.view(node.inputs[2]),
            "y": builder.out(node.outputs[0]),
        },
        outer=product(x.shape[:axis]),
        n=x.shape[axis],
        m=m,
        taps=taps,
        inner=product(x.shape[axis + 1 :]),
    )


@resample.grad
def resample_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    """The same with the transposed table: for each element of x, where it was used."""
    x, axis, (m, taps) = node.inputs[0], node.attr("axis", 0), node.inputs[1].shape
    index, weight = node.inputs[1].numbers, node.inputs[2].numbers
    rows: list[dict[int, float]] = [{} for _ in range(x.shape[axis])]
    for i in range(m * taps):
        if weight[i]:
            row = rows[index[i]]
            row[i // taps] = row.get(i // taps, 0.0) + weight[i]
    return [_resampled(gradients, dy, axis, [list(row.items()) for row in rows])]


def _resampled(graph: Graph, x: Value, axis: int, table: list[Row]) -> Value:
    """x resampled along an axis by a table with a row for each element of the result."""
    taps = max(map(len, table), default=0)
    if not taps or not product(x.shape):
        return graph.op(
            "Expand",
            graph.constant(FLOAT, [], [0.0]),
            graph.constant(
                INT64, [x.rank], [len(table) if i == axis else d for i, d in enumerate(x.shape)]
            ),
        )
    flat = [pair for row in table for pair in row + [(0, 0.0)] * (taps - len(row))]
    index, weight = (
        graph.constant(INT64, [len(table), taps], [i for i, _ in flat]),
        graph.constant(FLOAT, [len(table), taps], [float(w) for _, w in flat]),
    )
    return graph.op("Resample", x, index, weight, domain="edgewise", axis=axis)


def _single(x: float) -> float:
    """x rounded to float32, in which other runtimes compute coordinates: ties between nearest
    neighbours depend on it.
    """
    return unpack(FLOAT, pack(FLOAT, [x]), 1)[0]


class _Axis:
    """How a dimension is resized.

    Args:
        node: Resize or Upsample.
        d: The elements of the dimension.
        size: Those of the result.
        scale: size / d, or what the node gives.
        roi: Start and end of the region, for tf_crop_and_resize.
    """

    def __init__(
        self, node: BoundNode, d: Any, size: Any, scale: float, roi: tuple[float, float]
    ) -> None:
        self.d, self.size, self.scale, self.roi = d, size, scale, roi
        old = node.op == "Upsample" or node.opset < 11
        self.where = (
            "asymmetric" if old else node.attr("coordinate_transformation_mode", "half_pixel")
        )
        self.mode = node.attr("mode", "nearest")
        self.rounding = "simple" if old else node.attr("nearest_mode", "round_prefer_floor")
        self.a, self.inside_only = (
            node.attr("cubic_coeff_a", -0.75),
            bool(node.attr("exclude_outside", 0)),
        )
        self.smooth = bool(node.attr("antialias", 0)) and scale < 1
        # since opset 19 the width that corners are aligned to may be a fraction
        self.last = (most(d) * scale if node.opset >= 19 and scale > 0 else most(size)) - 1
        if (
            self.where not in TRANSFORMATIONS
            or self.mode not in MODES
            or self.rounding not in ROUNDINGS
        ):
            unsupported(
                node,
                f"mode '{self.mode}', coordinate_transformation_mode '{self.where}', nearest_mode"
                f" '{self.rounding}'",
            )

    @property
    def is_identity(self) -> bool:
        """Whether the result is the dimension itself."""
        return self.d == self.size and (
            self.scale == 1 and self.where != "tf_crop_and_resize" or self.where == "align_corners"
        )

    def coordinate(self, i: int) -> float:
        """The position in the input of element i of the result."""
        d, size, scale, f = self.d, self.size, self.scale, _single
        if self.where == "asymmetric":
            return f(i / scale)
        if self.where == "align_corners":
            return f(f(i * (d - 1)) / self.last) if size > 1 else 0.0
        if self.where == "tf_crop_and_resize":
            start, end = self.roi
            return (
                f(start * (d - 1) + i * (end - start) * (d - 1) / (size - 1))
                if size > 1
                else f(0.5 * (start + end) * (d - 1))
            )
        if self.where == "tf_half_pixel_for_nn":
            return f((i + 0.5) / scale)
        if self.where == "pytorch_half_pixel" and size == 1:
            return 0.0
        if self.where == "half_pixel_symmetric":
            return f(d / 2 * (1 - size / (scale * d)) + (i + 0.5) / scale - 0.5)
        return f(f((i + 0.5) / scale) - 0.5)

    def nearest(self, u: float) -> int:
        """The element nearest to a coordinate, which may be outside."""
        if self.rounding == "simple":
            return math.ceil(u) if self.scale < 1 else math.floor(u)
        return {
            "round_prefer_floor": math.ceil(u - 0.5),
            "round_prefer_ceil": math.floor(u + 0.5),
            "floor": math.floor(u),
            "ceil": math.ceil(u),
        }[self.rounding]

    def weight(self, u: float) -> float:
        """The weight of an element at distance u."""
        u = abs(u)
        if self.mode == "linear":
            return max(0.0, 1 - u)
        a = self.a
        return (
            ((a + 2) * u - (a + 3)) * u * u + 1
            if u <= 1
            else ((a * u - 5 * a) * u + 8 * a) * u - 4 * a
            if u < 2
            else 0.0
        )

    def table(self) -> list[Row]:
        """A row for each element of the result; empty where a crop is outside of the input."""
        out: list[Row] = []
        for i in range(self.size):
            u = self.coordinate(i)
            if self.where == "tf_crop_and_resize" and not 0 <= u <= self.d - 1:
                out.append([])
                continue
            if self.mode == "nearest":
                out.append([(min(max(self.nearest(u), 0), self.d - 1), 1.0)])
                continue
            squeeze = self.scale if self.smooth else 1.0
            reach = (1 if self.mode == "linear" else 2) / squeeze
            row: dict[int, float] = {}
            first = math.floor(u)
            taps = (
                range(math.ceil(u - reach), math.floor(u + reach) + 1)
                if self.smooth
                else (
                    range(first, first + 2)
                    if self.mode == "linear"
                    else range(first - 1, first + 3)
                )
            )
            for k in taps:
                inside = min(max(k, 0), self.d - 1)
                if self.inside_only and (self.smooth or self.mode == "cubic") and k != inside:
                    continue
                row[inside] = row.get(inside, 0.0) + self.weight((k - u) * squeeze)
            total = sum(row.values()) or 1.0
            out.append([(k, w / total) for k, w in row.items() if w])
        return out


def _scale_between(d: Dim, size: Dim) -> float:
    """size / d. Raises NotStatic: it depends on a register."""
    if d == size:
        return 1.0
    if isinstance(d, Sym) and isinstance(size, Sym):
        if size.min >= d.max:
            return float(_ratio(size, d))
        return _single(1 / _ratio(d, size))
    if isinstance(d, Sym) or isinstance(size, Sym):
        raise NotStatic("a scale that depends on a register")
    return _single(size / d) if d else 1.0


def _ratio(long: Sym, short: Sym) -> int:
    ratio = long // short
    if isinstance(ratio, Sym):
        raise NotStatic("a scale that depends on a register")
    return ratio


def _size_at_scale(d: Dim, scale: float) -> Dim:
    """d * scale, rounded down. Raises NotStatic: d depends on a register, and neither the scale nor
    its inverse is an integer.
    """
    if not isinstance(d, Sym):
        return math.floor(_single(_single(d) * scale))
    if scale == int(scale):
        return d * int(scale)
    step = round(1 / scale)
    # The product is rounded to float32: it may fall below an integer that it should be.
    whole = (_single(_single(i * step) * scale) == i for i in range(d.max // step + 1))
    if abs(step * scale - 1) > 2**-23 or d.max >= 1 << 23 or not all(whole):
        raise NotStatic("a size that is not linear in a length")
    return floor_div(d, step)


def _sizes(node: BoundNode) -> list[tuple[int, int, float, tuple[float, float]]]:
    """(axis, size, scale, (start, end) of the region) of each axis that is resized."""
    x, old = node.inputs[0], node.op == "Upsample" or node.opset < 11
    axes = (
        [axis_of(node, a, x.rank) for a in node.attr("axes")]
        if node.attr("axes")
        else list(range(x.rank))
    )
    scales: Any = (
        (node.attrs.get("scales") if node.op == "Upsample" and node.opset < 9 else node.need(1))
        if old
        else (node.need(2) if node.has(2) else [])
    )
    sizes = node.need(3) if not old and node.has(3) else []
    if (
        bool(scales) == bool(sizes)
        or len(scales or sizes) != len(axes)
        or scales
        and min(scales) <= 0
        or sizes
        and min(sizes) < 0
    ):
        fail(node, f"scales {scales} and sizes {sizes} do not fit {len(axes)} axes of {x}")
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if any(isinstance(d, Sym) for d in [*x.shape, *sizes]):
        lengths = [x.shape[a] for a in axes]
        if sizes:
            scales = [_scale_between(d, s) for d, s in zip(lengths, sizes)]
        else:
            sizes = [_size_at_scale(d, s) for d, s in zip(lengths, scales)]
    elif sizes:
        scales = [_single(s / x.shape[a]) if x.shape[a] else 1.0 for a, s in zip(axes, sizes)]
        if policy != "stretch":
            one = min(scales) if policy == "not_larger" else max(scales)
            scales, sizes = [one] * len(axes), [math.floor(one * x.shape[a] + 0.5) for a in axes]
    else:
        # in float32, as in onnxruntime: 10 * 0.7 is 7, though the nearest float32 to 0.7 is smaller
        sizes = [math.floor(_single(_single(x.shape[a]) * s)) for a, s in zip(axes, scales)]
    roi = node.need(1) if not old and node.has(1) else []
    if node.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize" and len(
        roi
    ) != 2 * len(axes):
        fail(
            node,
            f"its region has {len(roi)} numbers; a start and an end for each of {len(axes)} axes"
            " are expected",
        )
    roi = roi if len(roi) == 2 * len(axes) else [0.0] * len(axes) + [1.0] * len(axes)
    return [
        (a, size, scale, (roi[i], roi[i + len(axes)]))
        for i, (a, size, scale) in enumerate(zip(axes, sizes, scales))
    ]


def _check_size(node: BoundNode, graph: Binder, sizes: dict[int, int]) -> None:
    """Raises OutOfMemory where the output takes more bytes than a plan may have.

    Without this check the tables, which take long, would be computed first.

    Args:
        sizes: {axis: size}.
    """
    x = node.inputs[0]
    shape = [most(sizes.get(a, d)) for a, d in enumerate(x.shape)]
    nbytes = bytes_for(x.dtype, product(shape))
    if graph.max_bytes is not None and nbytes > graph.max_bytes:
        raise OutOfMemory(
            f"its output {shape} has {nbytes} bytes, {graph.max_bytes} are allowed",
            node.where,
            "Use smaller scales or sizes, or raise SessionOptions.max_memory_bytes.",
        )


def _resize(node: BoundNode, graph: Binder) -> Decomposed:
    """Resizes one dimension after the other, those that shrink most first."""
    x, y = node.inputs[0], node.inputs[0]
    resized = _sizes(node)
    _check_size(node, graph, {a: size for a, size, *_ in resized})
    axes = [(a, _Axis(node, x.shape[a], size, scale, roi)) for a, size, scale, roi in resized]
    axes = [
        (a, how) for a, how in sorted(axes, key=lambda item: item[1].scale) if not how.is_identity
    ]
    if any(not isinstance(how.d, Sym) and how.d == 0 and how.size for _, how in axes):
        fail(node, f"{x} has no elements to resize")
    crops = any(how.where == "tf_crop_and_resize" for _, how in axes)
    if x.dtype != FLOAT and (axes and axes[0][1].mode != "nearest" or crops):
        return [_resized_as_float(node, graph)]
    outside = node.attr("extrapolation_value", 0.0) if crops else 0.0
    if outside:
        y = graph.op("Sub", y, graph.constant(FLOAT, [], [outside]))
    for a, how in axes:
        if isinstance(how.d, Sym) or isinstance(how.size, Sym):
            y = _resampled_at_run_time(graph, y, a, how)
            continue
        table = how.table()
        if x.dtype != FLOAT:
            y = graph.op(
                "Gather",
                y,
                graph.constant(INT64, [len(table)], [row[0][0] for row in table]),
                axis=a,
            )
        else:
            y = _resampled(graph, y, a, table)
    if outside:
        y = graph.op("Add", y, graph.constant(FLOAT, [], [outside]))
    return [y]


def _resampled_at_run_time(graph: Binder, x: Value, axis: int, how: _Axis) -> Value:
    """x resampled along an axis whose length depends on a register: its table is computed in each
    run, with the same numbers as `_Axis.table`.
    """
    shift = {"asymmetric": (0.0, 0.0), "tf_half_pixel_for_nn": (0.5, 0.0)}.get(how.where)
    if how.where in ("half_pixel", "pytorch_half_pixel"):
        shift = 0.5, 0.5
    if shift is None or how.mode == "cubic" or how.smooth or min(how.size, 2) < 2:
        raise NotStatic(f"{how.where}, {how.mode} to a size that depends on a register")

    def number(value: float) -> Value:
        return graph.constant(FLOAT, [], [value])

    def index(v: Value) -> Value:
        whole = graph.op("Cast", v, to=INT64)
        whole = graph.op("Max", whole, graph.constant(INT64, [], [0]))
        return graph.op("Min", whole, graph.constant(INT64, [], [how.d - 1]))

    ends = (graph.constant(INT64, [], [k]) for k in (0, how.size, 1))
    at = graph.op("Cast", graph.op("Range", *ends), to=FLOAT)
    at = graph.op("Div", graph.op("Add", at, number(shift[0])), number(how.scale))
    at = graph.op("Sub", at, number(shift[1]))
    if how.mode == "nearest":
        up = how.rounding in ("ceil", "round_prefer_floor")
        up = how.scale < 1 if how.rounding == "simple" else up
        half = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(how.rounding, 0.0)
        at = graph.op("Ceil" if up else "Floor", graph.op("Add", at, number(half)))
        return graph.op("Gather", x, index(at), axis=axis)
    first = graph.op("Floor", at)
    second = graph.op("Add", first, number(1.0))
    later = graph.op("Sub", at, first)
    earlier = graph.op("Sub", number(1.0), later)
    columns = graph.ints([how.size, 1])

    def table(*of: Value) -> Value:
        return graph.op("Concat", *(graph.op("Reshape", v, columns) for v in of), axis=1)

    indices, weights = table(index(first), index(second)), table(earlier, later)
    return graph.op("Resample", x, indices, weights, domain="edgewise", axis=axis)


def _resized_as_float(node: BoundNode, graph: Binder) -> Value:
    """The node computed in float32."""
    x = node.inputs[0]
    if x.dtype not in (*INTEGERS, DOUBLE, BOOL):
        unsupported(node, f"{x} in this mode")
    inputs = [graph.op("Cast", x, to=FLOAT), *node.inputs[1:]]
    outputs = [graph.fresh(node.op)]
    (y,) = graph.node(node.op, node.domain, node.name, inputs, outputs, node.attrs, node.opset)
    if x.dtype in INTEGERS:
        # the cast truncates: a sum of weights just below a whole number has to be that number
        y = graph.op(
            "Mul",
            graph.op("Round", graph.op("Mul", y, graph.constant(FLOAT, [], [1024.0]))),
            graph.constant(FLOAT, [], [1 / 1024]),
        )
    return graph.op("Cast", y, to=x.dtype)


resize, upsample = Op("Resize"), Op("Upsample")
resize.decompose(_resize)
upsample.decompose(_resize)
