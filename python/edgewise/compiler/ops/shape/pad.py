"""Pad and CenterCropPad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import Dim, Op, axis_of, fail, ints, product
from ...declare.symbolic import NotStatic, Sym, TooShort

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

pad = Op("Pad", moves=True)
PAD_MODES = ("constant", "edge", "reflect", "wrap")
LONG = 4096  # elements of a dimension


def _pads(node: BoundNode) -> list[tuple[Dim, Dim]]:
    """How many elements are added before and after each dimension; negative: removed."""
    x = node.inputs[0]
    pads = node.attr("pads") if node.opset < 11 else ints(node, 1)
    axes = ints(node, 3) if node.opset >= 18 and node.has(3) else range(x.rank)
    out: list[tuple[Dim, Dim]] = [(0, 0)] * x.rank
    axes = [axis_of(node, a, x.rank) for a in axes]
    if pads is None or len(pads) != 2 * len(axes):
        fail(node, f"pads {pads} do not fit {len(axes)} axes")
    for i, a in enumerate(axes):
        out[a] = (pads[i], pads[i + len(axes)])
    return out


@pad.decompose
def pad_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """The edgewise operator Pad for constants; for other modes, Gather along one dimension after
    the other.
    """
    x, mode, pads = node.inputs[0], node.attr("mode", "constant"), _pads(node)
    if mode not in PAD_MODES:
        fail(node, f"padding mode '{mode}'", f"It is one of {', '.join(PAD_MODES)}.")
    if all(type(p) is int and p == 0 for both in pads for p in both):
        return [x]
    if mode == "constant":
        fed = node.input(2) if node.opset >= 11 else None
        if fed is not None and not product(fed.shape):
            fed = None
        value = 0 if fed is not None or node.opset >= 11 else node.attr("value", 0.0)
        return [graph.op("Pad", x, fed, domain="edgewise", pads=pads, value=value)]
    for axis, (lo, hi) in enumerate(pads):
        d = x.shape[axis]
        if lo == 0 and hi == 0:
            continue
        if isinstance(lo, Sym):
            raise NotStatic("padding that depends on a register")
        if isinstance(hi, Sym):
            x = graph.op("Gather", x, _padded_end(graph, mode, d, lo, hi), axis=axis)
            continue
        if isinstance(d, Sym):
            x = graph.op("Gather", x, _padded_length(graph, mode, d, lo, hi), axis=axis)
            continue
        if d + lo + hi < 0 or d == 0 and lo + hi > 0:
            fail(node, f"pads {lo} and {hi} in mode '{mode}' do not fit a dimension of {d}")
        x = _padded(graph, x, axis, mode, d, lo, hi)
    return [x]


def _padded(graph: Binder, x: Value, axis: int, mode: str, d: int, lo: int, hi: int) -> Value:
    """One dimension of d elements, padded. The middle of a long one, a sound's samples, is copied:
    it needs no list of indices.
    """

    def gathered(first: int, end: int) -> Value:
        numbers = [_padded_from(mode, i, d) for i in range(first, end)]
        return graph.op("Gather", x, graph.constant(INT64, [len(numbers)], numbers), axis=axis)

    if min(lo, hi) < 0 or d < LONG or d < lo + hi:
        return gathered(-lo, d + hi)
    before = [gathered(-lo, 0)] if lo else []
    after = [gathered(d, d + hi)] if hi else []
    return graph.op("Concat", *before, x, *after, axis=axis)


def _padded_length(graph: Binder, mode: str, d: Sym, lo: int, hi: int) -> Value:
    """Which of d elements is repeated at each index, for a length that depends on a register."""
    if d.min <= max(lo, hi) or min(lo, hi) < 0:
        raise TooShort(f"pads {lo} and {hi} of a dimension of at least {d.min}")

    def numbers(first: Dim, count: Dim, step: int) -> Value:
        ends = (first, first + count * step, step)
        return graph.op("Range", *(graph.constant(INT64, [], [end]) for end in ends))

    def repeated(index: Dim, count: int) -> Value:
        return graph.op("Expand", graph.constant(INT64, [1], [index]), graph.ints([count]))

    if mode == "edge":
        before, after = repeated(0, lo), repeated(d - 1, hi)
    elif mode == "wrap":
        before, after = numbers(d - lo, lo, 1), numbers(0, hi, 1)
    else:
        before, after = numbers(lo, lo, -1), numbers(d - 2, hi, -1)
    return graph.op("Concat", before, numbers(0, d, 1), after, axis=0)


def _padded_end(graph: Binder, mode: str, d: Dim, lo: int, hi: Sym) -> Value:
    """As _padded_length, where so much is added to the end that a length becomes a multiple."""
    least = d.min if isinstance(d, Sym) else d
    if mode == "wrap" or lo < 0 or hi.min < 0:
        raise NotStatic("padding that depends on a register")
    if least <= max(lo, hi.max):
        raise TooShort(f"pads {lo} and {hi} of a dimension of at least {least}")
    ends = [graph.constant(INT64, [], [end]) for end in (-lo, d + hi, 1)]
    places, last = graph.op("Range", *ends), graph.constant(INT64, [1], [d - 1])
    if mode == "edge":
        return graph.op("Min", graph.op("Max", places, graph.ints([0])), last)
    beyond = graph.op("Abs", graph.op("Sub", last, graph.op("Abs", places)))
    return graph.op("Sub", last, beyond)


def _padded_from(mode: str, i: int, d: int) -> int:
    """Which of d elements is repeated at index i, which may be outside of [0, d)."""
    if mode == "edge":
        return min(max(i, 0), d - 1)
    if mode == "wrap":
        return i % d
    period = 2 * (d - 1) or 1
    i %= period
    return min(i, period - i) if d > 1 else 0


# Inputs: x, the value or None. Attributes: pads, (before, after) for each dimension; value, used
# where there is no second input.
pad_constant = Op("Pad", "edgewise")


@pad_constant.infer
def pad_constant_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    if node.has(1) and node.inputs[1].dtype != x.dtype:
        fail(node, f"{x} is padded with {node.inputs[1]}")
    dims = [d + lo + hi for d, (lo, hi) in zip(x.shape, node.attrs["pads"])]
    if any(not isinstance(d, Sym) and d < 0 for d in dims):
        fail(node, f"pads {node.attrs['pads']} remove more elements than {x} has")
    return [(x.dtype, dims)]


@pad_constant.lower
def pad_constant_lower(node: BoundNode, builder: Builder) -> None:
    x, y, fed = builder.view(node.inputs[0]), builder.out(node.outputs[0]), node.input(1)
    if fed is None:
        builder.fill(y, node.attrs["value"])
    elif fed.numbers is None:
        builder.copy(builder.view(fed).drop_leading(fed.rank).broadcast(y.shape), y)
    else:
        builder.fill(y, fed.numbers[0])
    for axis, (lo, hi) in enumerate(node.attrs["pads"]):
        x = x.slice(axis, max(0, -lo), x.shape[axis] + min(0, lo) + min(0, hi))
        y = y.slice(axis, max(0, lo), x.shape[axis])
    builder.copy(x, y)


@pad_constant.grad
def pad_constant_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    pads = node.attrs["pads"]
    dx = (
        gradients.op("Pad", dy, gradients.ints([-lo for lo, _ in pads] + [-hi for _, hi in pads]))
        if gradients.wants(0) or gradients.wants(1)
        else None
    )
    if not gradients.wants(1):
        return [dx]
    # Of the value: the sum over the padding, which is that of dy without the part that is x.
    value = gradients.sub(
        gradients.op("ReduceSum", dy, keepdims=0), gradients.op("ReduceSum", dx, keepdims=0)
    )
    return [dx if gradients.wants(0) else None, gradients.reshape(value, node.inputs[1].shape)]


center_crop_pad = Op("CenterCropPad")


@center_crop_pad.decompose
def center_crop_pad_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """If a difference is odd, its smaller half comes first."""
    x, wanted = node.inputs[0], ints(node, 1)
    axes = [axis_of(node, a, x.rank) for a in node.attr("axes") or range(x.rank)]
    if len(wanted) != len(axes) or len(set(axes)) != len(axes):
        fail(node, f"shape {wanted} does not fit the axes {axes} of {x}")
    pads = [0] * 2 * x.rank
    for a, size in zip(axes, wanted):
        d = x.shape[a]
        if isinstance(d, Sym) or isinstance(size, Sym):
            raise NotStatic("a crop to a length that depends on a register")
        before = (size - d) // 2 if size >= d else -((d - size) // 2)
        pads[a], pads[a + x.rank] = before, size - d - before
    return [graph.op("Pad", x, graph.constant(INT64, [len(pads)], pads)) if any(pads) else x]
