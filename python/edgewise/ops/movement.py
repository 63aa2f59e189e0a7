"""Ops that move elements without computing on them, and the kernels under them."""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("copy", {"size": "i32", "dims": "i32[6]", "xs": "i32[6]", "ys": "i32[6]"},
       [read("x", "size", "hi(dims, xs)", "lo(dims, xs)"), write("y", "size", "hi(dims, ys)", "lo(dims, ys)")],
       require=["size in (1, 2, 4, 8)"], empty=["dims"], variants={"size": "COPY_SIZE"},
       doc="Strided copy: Transpose, Slice, Expand, Concat, Split, Tile, a KV-cache append. Innermost dimension contiguous on both sides is memcpy; a 2-D transpose is blocked.")

Kernel("fill", {"size": "i32", "dims": "i32[6]", "ys": "i32[6]", "value_low": "i32", "value_high": "i32"},
       [write("y", "size", "hi(dims, ys)", "lo(dims, ys)")], require=["size in (1, 2, 4, 8)"], empty=["dims"],
       doc="Fill with a bit pattern of `size` bytes (little end in value_low).")

Kernel("trilu", {"size": "i32", "batch": "i32", "rows": "i32", "cols": "i32", "k": "i32", "upper": "i32", "x_row": "i32", "x_batch": "i32", "y_row": "i32", "y_batch": "i32"},
       [read("x", "size", "(batch-1)*x_batch + (rows-1)*x_row + cols"), write("y", "size", "(batch-1)*y_batch + (rows-1)*y_row + cols", inplace=["x"])],
       require=["size in (1, 2, 4, 8)", "min(x_row, x_batch, y_row, y_batch) >= 0"], empty=["batch", "rows", "cols"], doc="ONNX Trilu: keep the upper (lower) triangle from diagonal k, zero elsewhere.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import INT64, size_of
from .op import MS, Op, axis_of, fail, indices, ints, like, most, product, strides_of
from .symbolic import NotStatic, Sym

FAR = 1 << 62  # exporters write "to the end" as numbers of this size


transpose = Op("Transpose", half=[0], moves=True)


def _perm(n, rank):
    return n.attr("perm", list(range(rank))[::-1])


@transpose.infer
def _(n):
    x = n.inputs[0]
    perm = _perm(n, x.rank)
    if sorted(perm) != list(range(x.rank)):
        fail(n, f"perm {perm} is no permutation of {x.rank} dimensions")
    if perm == list(range(x.rank)):
        return [x]
    return [(x.dtype, [x.shape[p] for p in perm])]


@transpose.fold
def _(n, outs):
    x = n.inputs[0]
    perm = _perm(n, x.rank)
    s = strides_of(x.shape)
    return [[x.numbers[i] for i in indices(outs[0][1], [s[p] for p in perm])]]


@transpose.lower
def _(n, b):
    x = b.view(n.inputs[0])
    b.alias(n.outputs[0], x.transpose(_perm(n, len(x.shape))))


@transpose.grad
def _(n, g, dy):
    perm = _perm(n, dy.rank)
    return [g.transpose(dy, [perm.index(i) for i in range(dy.rank)])]


@transpose.cases
def _(t):
    yield t(t.f(2, 3, 4))
    for perm in ([0, 2, 1], [1, 0, 2], [2, 0, 1], [1, 2, 0], [0, 1, 2]):
        yield t(t.f(2, 3, 4), perm=perm)
    yield t(t.f(70, 130))
    yield t(t.f(3, 65, 66, dtype="float16"), perm=[0, 2, 1])
    yield t(t.f(2, 3, 2, 3, 2, 3), perm=[5, 1, 3, 0, 4, 2])
    yield t(t.f(2, 3, 2, 3, 2, 3, 2, 3), perm=[5, 1, 3, 0, 7, 4, 2, 6])
    yield t(t.f(2, 1, 3, 1), perm=[3, 2, 1, 0])
    yield t(t.f(5))
    yield t(t.f(0, 3))
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 5, 7))


slice_ = Op("Slice", half=[0], moves=True)


def _clip_index(i, low, high):
    """i clamped to [low, high]; a Sym stays one where its whole range lies inside."""
    if not isinstance(i, Sym) and not isinstance(high, Sym):
        return max(low, min(high, i))
    if i == high:
        return i
    if not isinstance(i, Sym) and (i >= FAR // 2):
        return high
    if i < low:
        return low
    return high if i > high else i


def slice_ranges(n):
    """[(axis, start, length, step)] of a Slice."""
    x = n.inputs[0]
    if n.opset < 10:
        starts, ends, axes, steps = n.attr("starts"), n.attr("ends"), n.attr("axes"), None
    else:
        starts, ends, axes, steps = ints(n, 1), ints(n, 2), ints(n, 3), ints(n, 4)
    axes = list(range(len(starts))) if axes is None else [axis_of(n, a, x.rank) for a in axes]
    steps = [1] * len(axes) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or len(set(axes)) != len(axes):
        fail(n, f"its starts, ends, axes and steps do not match: {starts}, {ends}, {axes}, {steps}")
    out = []
    for axis, start, end, step in zip(axes, starts, ends, steps):
        d = x.shape[axis]
        if step == 0:
            fail(n, "a step of 0")
        if not isinstance(start, Sym) and start < 0:
            start = max(start, -FAR) + d
        if not isinstance(end, Sym) and end < 0:
            end = max(end, -FAR) + d
        if step > 0:
            start, end = _clip_index(start, 0, d), _clip_index(end, 0, d)
            span = end - start
            length = span if step == 1 else -(-span // step)
        else:
            start, end = _clip_index(start, -1, d - 1), _clip_index(end, -1, d - 1)
            span = start - end
            length = span if step == -1 else -(-span // -step)
        if not isinstance(length, Sym):
            length = max(length, 0)
        elif length.min < 0:
            raise NotStatic("a slice that may be empty")
        out.append((axis, start, length, step))
    return out


@slice_.infer
def _(n):
    x = n.inputs[0]
    dims = list(x.shape)
    ranges = slice_ranges(n)
    for axis, start, length, step in ranges:
        dims[axis] = length
    if dims == x.shape and all(step == 1 for *_, step in ranges):
        return [x]
    return [(x.dtype, dims)]


@slice_.fold
def _(n, outs):
    x = n.inputs[0]
    s, offset = strides_of(x.shape), 0
    for axis, start, length, step in slice_ranges(n):
        offset += start * s[axis] if outs[0][1][axis] else 0
        s[axis] *= step
    return [[x.numbers[i] for i in indices(outs[0][1], s, offset)]]


@slice_.lower
def _(n, b):
    v = b.view(n.inputs[0])
    for axis, start, length, step in slice_ranges(n):
        v = v.slice(axis, start, length, step)
    b.alias(n.outputs[0], v)


@slice_.grad
def _(n, g, dy):
    return [slice_grad(g, dy, n.inputs[0].shape, [(axis, start, step) for axis, start, _, step in slice_ranges(n)])]


def slice_grad(g, dy, shape, ranges):
    """Zeros of a shape with dy where a slice, of (axis, start, step) each, was taken from."""
    if list(dy.shape) == list(shape) and all(step == 1 for *_, step in ranges):
        return dy
    axes, starts, steps = zip(*ranges)
    return g.op("SliceGrad", dy, domain="edgewise", shape=list(shape), axes=list(axes), starts=list(starts), steps=list(steps))


# (dy): float32 of attribute `shape`, zeros with dy at the slice of it that begins at `starts` along `axes`, by `steps`
slice_gradient = Op("SliceGrad", "edgewise")


def _taken(v, n, lengths):
    for axis, start, step in zip(n.attr("axes"), n.attr("starts"), n.attr("steps", [])):
        v = v.slice(axis, start, lengths[axis], step)
    return v


@slice_gradient.infer
def _(n):
    return [(n.inputs[0].dtype, list(n.attr("shape")))]


@slice_gradient.lower
def _(n, b):
    y = b.out(n.outputs[0])
    b.fill(y, 0.0)
    b.copy(b.view(n.inputs[0]), _taken(y, n, n.inputs[0].shape))


@slice_gradient.grad
def _(n, g, dy):
    starts, steps = n.attr("starts"), n.attr("steps", [])
    lengths = [n.inputs[0].shape[a] for a in n.attr("axes")]
    ends = [s + k * step for s, k, step in zip(starts, lengths, steps)]
    return [g.op("Slice", dy, g.ints(starts), g.ints([e if e >= 0 else -FAR for e in ends]), g.ints(n.attr("axes")), g.ints(steps))]


@slice_.cases
def _(t):
    x = t.f(5, 6, 7)
    far = 2**63 - 1
    for starts, ends, axes, steps in [([1], [3], None, None), ([1, 2], [3, 5], [0, 2], None), ([-3], [-1], [1], None), ([0], [far], [1], [2]), ([-1], [-far - 1], [2], [-1]), ([4, 0], [1, 9], [0, -1], [-2, 3]),
                                      ([3], [1], [0], None), ([9], [20], [0], None), ([-20], [20], [-2], [4]), ([5], [0], [1], [-3]), ([0, 0, 0], [1, 1, 1], [2, 0, 1], [1, 1, 1]),
                                      ([2], [2**31 - 1], [1], [1]), ([-1], [-2**31], [0], [-4])]:
        yield t(*[v for v in (x, starts, ends, axes, steps)])
    yield t(x, opset=9, starts=[1, -4], ends=[3, 100], axes=[0, -1])
    yield t(x, opset=9, starts=[1, 2], ends=[3, 4])
    yield t(x, t.const(t.of("int32", [1])), t.const(t.of("int32", [4])), t.const(t.of("int32", [1])))
    yield t(t.f(0, 3), [0], [2], [1])
    yield t(t.f(3, 0), [2], [0], [0], [-1])
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 9, 5), [7, 1], [1, 4], [0, 1], [-2, 1])


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
    first = b.view(n.inputs[0])
    at = 0
    if n.inputs[0].role == "cache":  # the cache has room behind what it holds: append in place
        y = first.extended(axis, n.outputs[0].shape[axis])
        b.alias(n.outputs[0], y)
        parts, at = n.inputs[1:], first.shape[axis]
    else:
        y, parts = b.out(n.outputs[0]), n.inputs
    for v in parts:
        b.copy(b.view(v), y.slice(axis, at, v.shape[axis]))
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
    v, at = b.view(n.inputs[0]), 0
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


tile = Op("Tile", moves=True)


@tile.infer
def _(n):
    x, repeats = n.inputs[0], ints(n, 1)
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        fail(n, f"repeats {repeats} do not fit a tensor of {x.rank} dimensions")
    if all(r == 1 for r in repeats):
        return [x]
    return [(x.dtype, [d * r for d, r in zip(x.shape, repeats)])]


@tile.lower
def _(n, b):
    x, y = b.view(n.inputs[0]), b.out(n.outputs[0])
    wide = [d for pair in zip(ints(n, 1), x.shape) for d in pair]
    b.copy(x.unsqueeze_each().broadcast(wide), b.reshaped(y, wide))


@tile.grad
def _(n, g, dy):
    wide = [d for pair in zip(ints(n, 1), n.inputs[0].shape) for d in pair]
    return [g.op("ReduceSum", g.reshape(dy, wide), g.ints(range(0, len(wide), 2)), keepdims=0)]


@tile.cases
def _(t):
    for x, repeats in [((2, 3), [2, 3]), ((2, 3), [1, 1]), ((4,), [3]), ((1, 2, 3), [2, 1, 4]), ((2, 3), [0, 2]), ((0, 3), [2, 2]), ((), []), ((2, 1, 2), [2, 2, 2])]:
        yield t(t.f(*x), repeats)
    yield t(t.f(2, 3, 4, 5), [2, 3, 2, 3])
    yield t(t.f(2, 1, 3, 2, 2, 3), [2, 3, 2, 3, 2, 2])
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 2, 3), [2, 2])


trilu = Op("Trilu", moves=True)


@trilu.infer
def _(n):
    if n.inputs[0].rank < 2:
        fail(n, "it wants a matrix")
    return [like(n, 0)]


@trilu.lower
def _(n, b):
    x = n.inputs[0]
    k = ints(n, 1, [0])[0]
    xv, y = b.contiguous(b.view(x)), b.out(n.outputs[0])
    batch = product(x.shape[:-2])
    if batch != 1 and any(isinstance(d, Sym) for d in x.shape[1:]):
        raise NotStatic("Trilu of several matrices with a register-dependent size")
    b.emit("trilu", {"x": xv, "y": y}, size=size_of(x.dtype), batch=batch, rows=x.shape[-2], cols=x.shape[-1], k=k, upper=n.attr("upper", 1),
           x_row=xv.strides[-2], y_row=y.strides[-2], x_batch=most(x.shape[-2]) * xv.strides[-2], y_batch=most(x.shape[-2]) * y.strides[-2])


@trilu.grad
def _(n, g, dy):
    return [g.op("Trilu", dy, *n.inputs[1:2], upper=n.attr("upper", 1))]


@trilu.cases
def _(t):
    for upper in (0, 1):
        yield t(t.f(4, 5), upper=upper)
        for k in (-9, -2, 0, 1, 3, 9):
            yield t(t.f(2, 4, 5), k, upper=upper)
    yield t(t.f(2, 3, 5, 4), -1)
    yield t(t.f(0, 4))
    yield t(t.f(2, 3, 0))
    for dtype in ("float64", "float16", "bool", "int64", "uint8", "int32"):
        yield t(t.any(dtype, 3, 3))


pad = Op("Pad", moves=True)
PAD_MODES = ("constant", "edge", "reflect", "wrap")


def _pads(n):
    """[(before, behind)] of each dimension."""
    x = n.inputs[0]
    pads = n.attr("pads") if n.opset < 11 else ints(n, 1)
    axes = ints(n, 3) if n.opset >= 18 and n.has(3) else range(x.rank)
    out = [(0, 0)] * x.rank
    axes = [axis_of(n, a, x.rank) for a in axes]
    if pads is None or len(pads) != 2 * len(axes):
        fail(n, f"pads {pads} do not fit {len(axes)} axes")
    for i, a in enumerate(axes):
        out[a] = (pads[i], pads[i + len(axes)])
    return out


@pad.decompose
def _(n, b):
    """Constants are written around x; the other modes gather along one dimension after the other."""
    x, mode, pads = n.inputs[0], n.attr("mode", "constant"), _pads(n)
    if mode not in PAD_MODES:
        fail(n, f"padding mode '{mode}'", f"It is one of {', '.join(PAD_MODES)}.")
    if mode == "constant":
        fed = n.input(2) if n.opset >= 11 else None
        if fed is not None and not product(fed.shape):
            fed = None
        value = 0 if fed is not None or n.opset >= 11 else n.attr("value", 0.0)
        return [b.op("Pad", x, fed, domain="edgewise", pads=pads, value=value)]
    for axis, (lo, hi) in enumerate(pads):
        d = x.shape[axis]
        if lo == 0 and hi == 0:
            continue
        if isinstance(d, Sym) or isinstance(lo, Sym) or isinstance(hi, Sym):
            raise NotStatic("padding by what depends on a register")
        if d + lo + hi < 0 or d == 0 and lo + hi > 0:
            fail(n, f"pads {lo} and {hi} in mode '{mode}' do not fit a dimension of {d}")
        x = b.op("Gather", x, b.constant(INT64, [d + lo + hi], [_padded_from(mode, i, d) for i in range(-lo, d + hi)]), axis=axis)
    return [x]


def _padded_from(mode, i, d):
    """Which of d elements stands at place i, which may lie outside of them."""
    if mode == "edge":
        return min(max(i, 0), d - 1)
    if mode == "wrap":
        return i % d
    turn = 2 * (d - 1) or 1
    i %= turn
    return min(i, turn - i) if d > 1 else 0


pad_constant = Op("Pad", "edgewise")  # (x, value or None); pads: (before, behind) of each dimension, value: where there is no second input


@pad_constant.infer
def _(n):
    x = n.inputs[0]
    if n.has(1) and n.inputs[1].dtype != x.dtype:
        fail(n, f"{x} is padded with {n.inputs[1]}")
    dims = [d + lo + hi for d, (lo, hi) in zip(x.shape, n.attrs["pads"])]
    if any(not isinstance(d, Sym) and d < 0 for d in dims):
        fail(n, f"pads {n.attrs['pads']} take more from {x} than there is")
    return [(x.dtype, dims)]


@pad_constant.lower
def _(n, b):
    x, y, fed = b.view(n.inputs[0]), b.out(n.outputs[0]), n.input(1)
    if fed is not None and fed.numbers is None:
        b.copy(b.view(fed).drop_leading(fed.rank).broadcast(y.shape), y)
    else:
        b.fill(y, fed.numbers[0] if fed is not None else n.attrs["value"])
    for axis, (lo, hi) in enumerate(n.attrs["pads"]):
        x = x.slice(axis, max(0, -lo), x.shape[axis] + min(0, lo) + min(0, hi))
        y = y.slice(axis, max(0, lo), x.shape[axis])
    b.copy(x, y)


@pad_constant.grad
def _(n, g, dy):
    pads = n.attrs["pads"]
    dx = g.op("Pad", dy, g.ints([-lo for lo, _ in pads] + [-hi for _, hi in pads])) if g.wants(0) or g.wants(1) else None
    if not g.wants(1):
        return [dx]
    value = g.sub(g.op("ReduceSum", dy, keepdims=0), g.op("ReduceSum", dx, keepdims=0))  # what lies around x; a negative pad drops x's own
    return [dx if g.wants(0) else None, g.reshape(value, n.inputs[1].shape)]


@pad.cases
def _(t):
    for pads in ([1, 2, 3, 4], [0, 0, 0, 0], [0, 3, 0, 0], [-1, 0, 0, -2], [2, -1, -1, 3]):
        yield t(t.f(3, 4), pads)
        yield t(t.f(3, 4), pads, 1.5)
    yield t(t.f(3, 4), [1, 2], None, [1])
    yield t(t.f(2, 3, 4), [1, 2, 3, 4], 0.5, [-1, 0])
    yield t(t.f(3, 4), opset=10, pads=[1, 0, 0, 2], value=2.5)
    yield t(t.f(3, 4), [1, 0, 0, 2], opset=11)
    for mode in ("edge", "reflect", "wrap"):
        for pads in ([1, 2, 2, 3], [0, 3, 0, 0], [2, 0, 1, -1]):
            yield t(t.f(3, 4), pads, mode=mode, opset=19)
        yield t(t.n("int32", 2, 3, 5), [1, 2, 2, 0], None, [0, -1], mode=mode, opset=19, trust="onnx", why="onnxruntime does not take axes in any order in each mode")
    yield t(t.f(1, 2, 4, 5), opset=10, mode="reflect", pads=[0, 0, 1, 2, 0, 0, 3, 4])
    yield t(t.f(1, 2, 4, 5), opset=10, mode="edge", pads=[0, 0, 1, 2, 0, 0, 3, 4])
    yield t(t.f(3), [4, 7], mode="wrap", opset=19)
    yield t(t.f(1), [2, 1], mode="edge", opset=19)
    yield t(t.f(0, 4), [1, 0, 1, 0])
    for dtype in ("float64", "float16", "int64", "int32", "uint8", "int8", "bool"):
        yield t(t.any(dtype, 3, 4), [1, 0, 0, 2])
        yield t(t.any(dtype, 3, 4), [1, 0, 0, 2], t.const(t.of(dtype, 1)))


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


center_crop_pad = Op("CenterCropPad")


@center_crop_pad.decompose
def _(n, b):
    """Of an odd difference the smaller half comes first."""
    x, wanted = n.inputs[0], ints(n, 1)
    axes = [axis_of(n, a, x.rank) for a in n.attr("axes") or range(x.rank)]
    if len(wanted) != len(axes) or len(set(axes)) != len(axes):
        fail(n, f"shape {wanted} does not fit the axes {axes} of {x}")
    pads = [0] * 2 * x.rank
    for a, size in zip(axes, wanted):
        d = x.shape[a]
        if isinstance(d, Sym) or isinstance(size, Sym):
            raise NotStatic("a crop to what depends on a register")
        before = (size - d) // 2 if size >= d else -((d - size) // 2)
        pads[a], pads[a + x.rank] = before, size - d - before
    return [b.op("Pad", x, b.constant(INT64, [len(pads)], pads)) if any(pads) else x]


@center_crop_pad.cases
def _(t):
    only = {"trust": "onnx", "why": "onnxruntime has the function's body of the standard, which fails for some axes"}
    for wanted in ([10, 7, 3], [7, 7, 7], [20, 12, 4], [10, 8, 5], [1, 0, 3]):
        yield t(t.f(11, 8, 3), wanted, opset=18, **only)
    yield t(t.f(20, 8, 3), [10, 9], axes=[1, 2], opset=18, **only)
    yield t(t.f(20, 8, 3), [10, 9], axes=[-3, -2], opset=18, **only)
    yield t(t.n("int64", 4, 5), [5, 4], opset=18, **only)


reverse_sequence = Op("ReverseSequence")


@reverse_sequence.decompose
def _(n, b):
    """Element t of a sequence of length l comes from l - 1 - t where t < l, else from its own place."""
    x, lengths = n.inputs[0], n.inputs[1]
    time, batch = n.attr("time_axis", 0), n.attr("batch_axis", 1)
    if x.rank < 2 or {time, batch} != {0, 1} or list(lengths.shape) != [x.shape[batch]] or lengths.dtype != INT64:
        fail(n, f"lengths {lengths}, time_axis {time} and batch_axis {batch} do not fit {x}")
    steps = b.op("Range", *(b.constant(INT64, [], [i]) for i in (0, x.shape[time], 1)))
    steps, lengths = b.op("Unsqueeze", steps, b.constant(INT64, [1], [batch])), b.op("Unsqueeze", lengths, b.constant(INT64, [1], [time]))
    place = b.op("Where", b.op("Less", steps, lengths), b.op("Sub", b.op("Sub", lengths, b.constant(INT64, [], [1])), steps), steps)
    flat = b.op("Reshape", x, b.constant(INT64, [3], [*x.shape[:2], product(x.shape[2:])]), allowzero=1)
    place = b.op("Expand", b.op("Unsqueeze", place, b.constant(INT64, [1], [2])), b.constant(INT64, [3], flat.shape))
    return [b.op("Reshape", b.op("GatherElements", flat, place, axis=time), b.constant(INT64, [x.rank], x.shape), allowzero=1)]


@reverse_sequence.cases
def _(t):
    for time in (0, 1):
        yield t(t.f(4, 4), t.of("int64", [4, 3, 2, 1]), time_axis=time, batch_axis=1 - time)
        yield t(t.f(5, 5, 2, 3), t.of("int64", [1, 5, 4, 1, 2]), time_axis=time, batch_axis=1 - time)
    yield t(t.f(6, 2), t.of("int64", [6, 3]))
    yield t(t.n("int64", 3, 4, 2), t.of("int64", [1, 2, 3, 3]), opset=10)
    yield t(t.f(0, 2), t.of("int64", [0, 0]), expect=[t.f(0, 2)], why="onnxruntime refuses what is empty")
