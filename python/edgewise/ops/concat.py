"""Concat and Split, and what onnxruntime's training graphs have of them."""
from __future__ import annotations

from .dtypes import INT64
from .op import MS, Op, axis_of, fail, indices, ints, product, strides_of


concat = Op("Concat", half=[], moves=True)


@concat.infer
def _(n):
    first = n.inputs[0]
    axis = axis_of(n, n.attr("axis", 1), first.rank)
    total = 0
    for v in n.inputs:
        if v.rank != first.rank or v.dtype != first.dtype or any(a != b for i, (a, b) in enumerate(zip(v.shape, first.shape)) if i != axis):
            fail(n, f"{v} does not fit {first} along axis {axis}")
        total = total + v.shape[axis]
    if len(n.inputs) == 1:
        return [first]
    filled = [v for v in n.inputs if v.shape[axis] != 0]
    if len(filled) == 1 and first.role != "cache":
        return [filled[0]]
    dims = list(first.shape)
    dims[axis] = total
    return [(first.dtype, dims)]


@concat.fold
def _(n, outs):
    first = n.inputs[0]
    axis = axis_of(n, n.attr("axis", 1), first.rank)
    outer = product(first.shape[:axis])
    out = []
    for o in range(outer):
        for v in n.inputs:
            step = len(v.numbers) // outer if outer else 0
            out += v.numbers[o * step:(o + 1) * step]
    return [out]


@concat.lower
def _(n, b):
    axis = axis_of(n, n.attr("axis", 1), n.inputs[0].rank)
    at = 0
    if n.inputs[0].role == "cache":  # the cache has room behind what it holds: append in place
        first = b.stored(n.inputs[0])
        y = first.extended(axis, n.outputs[0].shape[axis])
        b.alias(n.outputs[0], y)
        parts, at = n.inputs[1:], first.shape[axis]
    else:
        y, parts = b.out(n.outputs[0]), n.inputs
    for v in parts:
        b.store(b.view(v), y.slice(axis, at, v.shape[axis]))
        at = at + v.shape[axis]


@concat.grad
def _(n, g, dy):
    axis, at, out = axis_of(n, n.attr("axis", 1), dy.rank), 0, []
    for i, v in enumerate(n.inputs):
        end = at + v.shape[axis]
        out.append(g.op("Slice", dy, g.ints([at]), g.ints([end]), g.ints([axis])) if g.wants(i) else None)
        at = end
    return out


@concat.cases
def _(t):
    for axis in (0, 1, 2, -1, -3):
        shapes = [[2, 3, 4] for _ in range(3)]
        for i, s in enumerate(shapes):
            s[axis] = i + 1
        yield t(*[t.f(*s) for s in shapes], axis=axis)
    yield t(t.f(2, 3), axis=0)
    yield t(t.f(0, 3), t.f(2, 3), axis=0)
    yield t(t.f(2, 0), t.f(2, 3), t.f(2, 0), t.f(2, 1), axis=1)
    yield t(t.f(0, 3), t.f(0, 2), axis=1)
    yield t(t.f(2, 3), t.f(2, 3), opset=9, axis=1)
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 2, 3), t.any(dtype, 2, 1), axis=1)


split = Op("Split", half=[0], moves=True)


def _split_sizes(n):
    x = n.inputs[0]
    axis = axis_of(n, n.attr("axis", 0), x.rank)
    sizes = n.attr("split") if n.opset < 13 else ints(n, 1)
    d = x.shape[axis]
    if sizes is None:
        parts = n.attr("num_outputs") or len(n.outputs)
        if parts != len(n.outputs):
            fail(n, f"it splits into {parts} parts and has {len(n.outputs)} outputs")
        each = -(-d // parts)
        sizes = [min(each, max(0, d - i * each)) for i in range(parts)]
    if sum(sizes) != d or min(sizes, default=0) < 0 or len(sizes) < len(n.outputs):
        fail(n, f"sizes {sizes} do not split a dimension of {d} into {len(n.outputs)}")
    return axis, sizes


@split.infer
def _(n):
    x = n.inputs[0]
    axis, sizes = _split_sizes(n)
    return [(x.dtype, x.shape[:axis] + [s] + x.shape[axis + 1:]) for s in sizes]


@split.fold
def _(n, outs):
    x = n.inputs[0]
    axis, sizes = _split_sizes(n)
    s, at, out = strides_of(x.shape), 0, []
    for size_ in sizes:
        dims = x.shape[:axis] + [size_] + x.shape[axis + 1:]
        out.append([x.numbers[i] for i in indices(dims, s, at * s[axis])])
        at += size_
    return out


@split.lower
def _(n, b):
    axis, sizes = _split_sizes(n)
    v, at = b.stored(n.inputs[0]), 0
    for out, size_ in zip(n.outputs, sizes):
        if out is not None:
            b.alias(out, v.slice(axis, at, size_))
        at += size_


@split.grad
def _(n, g, *dys):
    axis, sizes = _split_sizes(n)
    dims = n.inputs[0].shape
    parts = [dys[i] if i < len(dys) and dys[i] is not None else g.zeros(dims[:axis] + [size_] + dims[axis + 1:]) for i, size_ in enumerate(sizes)]
    return [g.op("Concat", *parts, axis=axis)]


@split.cases
def _(t):
    yield t(t.f(6, 4), [1, 2, 3], outputs=3)
    yield t(t.f(6, 4), [1, 0, 3], outputs=3, axis=-1)
    yield t(t.f(6, 4), outputs=3, opset=13)
    yield t(t.f(6, 4), outputs=2, opset=11, axis=1, split=[3, 1])
    yield t(t.f(6, 4), outputs=2, opset=11, axis=1)
    yield t(t.f(7, 4), outputs=3, num_outputs=3)
    yield t(t.f(2, 5), outputs=2, num_outputs=2, axis=1)
    yield t(t.f(0, 4), outputs=2, num_outputs=2, axis=1)
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 3, 5), [2, 3], outputs=2, axis=1)


# What onnxruntime's training graphs hold of Concat and Split: the sizes as a tensor.
concat_training = Op("ConcatTraining", MS)


@concat_training.decompose
def _(n, b):
    """Its second output: how long each input is along the axis, int64."""
    axis = axis_of(n, n.attr("axis", 0), n.inputs[0].rank)
    y = b.op("Concat", *n.inputs, axis=axis)
    return [y, b.constant(INT64, [len(n.inputs)], [v.shape[axis] for v in n.inputs])][:len(n.outputs)]


@concat_training.cases
def _(t):
    xy = t.f(2, 7)
    yield t(xy[:, :3].copy(), xy[:, 3:].copy(), outputs=2, axis=1, expect=[xy, t.of("int64", [3, 4])], why="onnxruntime has it in training builds only")


split_training = Op("SplitTraining", MS)


@split_training.decompose
def _(n, b):
    outs = b.op("Split", *n.inputs[:2], outputs=len(n.outputs), axis=n.attr("axis", 0))
    return outs if isinstance(outs, list) else [outs]


@split_training.cases
def _(t):
    x = t.f(2, 7)
    yield t(x, [3, 4], outputs=2, axis=1, expect=[x[:, :3], x[:, 3:]], why="onnxruntime has it in training builds only")
