"""Ops that move elements without computing on them, and the kernels under them."""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("copy", {"size": "i32", "dims": "i32[6]", "xs": "i32[6]", "ys": "i32[6]"},
       [read("x", "size", "hi(dims, xs)", "lo(dims, xs)"), write("y", "size", "hi(dims, ys)", "lo(dims, ys)")],
       require=["size in (1, 2, 4, 8)"], empty=["dims"],
       doc="Strided copy: Transpose, Slice, Expand, Concat, Split, Tile, a KV-cache append. Innermost dimension contiguous on both sides is memcpy; a 2-D transpose is blocked.")

Kernel("fill", {"size": "i32", "dims": "i32[6]", "ys": "i32[6]", "value_low": "i32", "value_high": "i32"},
       [write("y", "size", "hi(dims, ys)", "lo(dims, ys)")], require=["size in (1, 2, 4, 8)"], empty=["dims"],
       doc="Fill with a bit pattern of `size` bytes (little end in value_low).")

Kernel("range", {"type": "i32", "n": "i32", "start": "i32", "delta": "i32", "f_start": "f32", "f_delta": "f32"},
       [write("y", "bytes_of(type)", "n")], empty=["n"],
       doc="y[i] = start + i*delta for integer types, f_start + i*f_delta for float ones.")

Kernel("gather", {"size": "i32", "index_type": "i32", "outer": "i32", "count": "i32", "rows": "i32", "inner": "i32", "x_outer": "i32", "x_row": "i32", "y_outer": "i32"},
       [read("x", "size", "(outer-1)*x_outer + (rows-1)*x_row + inner"), read("index", "bytes_of(index_type)", "count"),
        write("y", "size", "(outer-1)*y_outer + (count-1)*inner + inner")],
       require=["size in (1, 2, 4, 8)", "index_type in (6, 7)", "x_outer >= 0", "x_row >= 0", "y_outer >= 0", "rows > 0"], empty=["outer", "count", "inner"],
       doc="y[o, c, :] = x[o, index[c], :]; negative indices count from the end; one out of [-rows, rows) is EW_E_INDEX.")

Kernel("gather_elements", {"size": "i32", "index_type": "i32", "dims": "i32[6]", "rows": "i32", "x_axis": "i32", "xs": "i32[6]", "is": "i32[6]"},
       [read("x", "size", "hi(dims, xs) + (rows - 1) * x_axis"), read("index", "bytes_of(index_type)", "hi(dims, is)"),
        write("y", "size", "dims[0]*dims[1]*dims[2]*dims[3]*dims[4]*dims[5]")],
       require=["size in (1, 2, 4, 8)", "index_type in (6, 7)", "rows > 0", "x_axis >= 0",
                "min(xs[0], xs[1], xs[2], xs[3], xs[4], xs[5]) >= 0", "min(is[0], is[1], is[2], is[3], is[4], is[5]) >= 0"], empty=["dims"],
       doc="ONNX GatherElements: dims are the index's; y contiguous. x_axis: stride of the gathered axis, which has `rows` rows; xs: x's strides along the others, 0 for the gathered one.")

Kernel("gather_nd", {"size": "i32", "index_type": "i32", "batch": "i32", "count": "i32", "depth": "i32", "inner": "i32", "x_batch": "i32", "sizes": "i32[6]", "strides": "i32[6]"},
       [read("x", "size", "(batch-1)*x_batch + hi(sizes, strides) - 1 + inner"), read("index", "bytes_of(index_type)", "batch*count*depth"), write("y", "size", "batch*count*inner")],
       require=["size in (1, 2, 4, 8)", "index_type in (6, 7)", "depth >= 0", "depth <= 6", "x_batch >= 0",
                "min(strides[0], strides[1], strides[2], strides[3], strides[4], strides[5]) >= 0", "min(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]) > 0"],
       empty=["batch", "count", "inner"],
       doc="ONNX GatherND: y[b, c, :] = x[b][sum_d index[b,c,d]*strides[d] ...]; sizes/strides beyond depth are 1/0; out-of-range index is EW_E_INDEX.")

Kernel("scatter_nd", {"size": "i32", "type": "i32", "index_type": "i32", "reduction": "i32", "count": "i32", "depth": "i32", "inner": "i32", "sizes": "i32[6]", "strides": "i32[6]"},
       [read("index", "bytes_of(index_type)", "count*depth"), read("updates", "size", "count*inner"), write("y", "size", "hi(sizes, strides) - 1 + inner")],
       require=["size in (1, 2, 4, 8)", "index_type in (6, 7)", "reduction >= 0", "reduction < 5", "bytes_of(type) == size", "depth >= 0", "depth <= 6",
                "min(strides[0], strides[1], strides[2], strides[3], strides[4], strides[5]) >= 0", "min(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]) > 0"],
       empty=["count", "inner"],
       doc="ONNX ScatterND into y, which already holds data. reduction: 0 none, 1 add, 2 mul, 3 min, 4 max.")

Kernel("trilu", {"size": "i32", "batch": "i32", "rows": "i32", "cols": "i32", "k": "i32", "upper": "i32", "x_row": "i32", "x_batch": "i32", "y_row": "i32", "y_batch": "i32"},
       [read("x", "size", "(batch-1)*x_batch + (rows-1)*x_row + cols"), write("y", "size", "(batch-1)*y_batch + (rows-1)*y_row + cols", inplace=["x"])],
       require=["size in (1, 2, 4, 8)", "min(x_row, x_batch, y_row, y_batch) >= 0"], empty=["batch", "rows", "cols"], doc="ONNX Trilu: keep the upper (lower) triangle from diagonal k, zero elsewhere.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT32, INT64, INTEGERS, size_of, wrap
from .op import MS, Op, axis_of, broadcast, fail, indices, ints, like, most, product, read_as, strides_of, unsupported
from .symbolic import NotStatic, Sym

FAR = 1 << 62

identity = Op("Identity", half=[0])


@identity.infer
def _(n):
    return [n.inputs[0]]


dropout = Op("Dropout")


@dropout.infer
def _(n):
    if n.has(2) and n.need(2)[0]:
        unsupported(n, "Dropout in training mode runs only inside a training graph", "Export the model in evaluation mode.")
    return [n.inputs[0]] + ([(BOOL, list(n.inputs[0].shape))] if n.wants(1) else [])


@dropout.lower
def _(n, b):
    y = b.out(n.outputs[1])
    b.fill(y, b"\1")


shape = Op("Shape", half=[0])


@shape.infer
def _(n):
    dims = n.inputs[0].shape
    return [(INT64, [len(dims[_clamp(n.attr("start", 0), len(dims)):_clamp(n.attr("end", FAR), len(dims))])])]


def _clamp(i, rank):
    return max(0, min(rank, i + rank if i < 0 else i))


@shape.fold
def _(n, outs):
    dims = n.inputs[0].shape
    return [list(dims[_clamp(n.attr("start", 0), len(dims)):_clamp(n.attr("end", FAR), len(dims))])]


shape.folds_without_numbers = True

size = Op("Size", half=[0])


@size.infer
def _(n):
    return [(INT64, [])]


@size.fold
def _(n, outs):
    return [[product(n.inputs[0].shape)]]


size.folds_without_numbers = True


def _numbers_of(n, outs):
    return [n.inputs[0].numbers]


def _same_layout(op):
    """An op that only renames dimensions: no step where the layout allows it."""
    op.fold(_numbers_of)

    @op.lower
    def _(n, b):
        b.alias(n.outputs[0], b.reshaped(b.view(n.inputs[0]), n.outputs[0].shape))


reshape = Op("Reshape", half=[0])


@reshape.infer
def _(n):
    x = n.inputs[0]
    wanted = ints(n, 1) if n.opset >= 5 else n.attr("shape", [])
    dims, free, known = [], None, 1
    for i, d in enumerate(wanted):
        if not isinstance(d, Sym) and d == 0 and not n.attr("allowzero", 0):
            if i >= x.rank:
                fail(n, f"it copies dimension {i} of a tensor that has {x.rank}")
            d = x.shape[i]
        if not isinstance(d, Sym) and d == -1:
            if free is not None:
                fail(n, "two of its dimensions are -1")
            free, d = i, 1
        elif not isinstance(d, Sym) and d < -1:
            fail(n, f"dimension {d} is negative")
        dims.append(d)
    if free is not None:
        dims[free] = _free_dimension(n, x.shape, [d for i, d in enumerate(dims) if i != free])
    elif product_of(x.shape) != product_of(dims):
        fail(n, f"a tensor of shape {x.shape} cannot be reshaped to {dims}")
    if dims == x.shape:
        return [x]
    return [(x.dtype, dims)]


def product_of(dims):
    """Element count as (factor, [Sym, ...]): comparable also with several register-dependent dimensions."""
    factor, syms = 1, []
    for d in dims:
        if isinstance(d, Sym):
            syms.append((d.scale, d.add))
        else:
            factor *= d
    return factor, sorted(syms)


def _free_dimension(n, shape, others):
    """The dimension that -1 stands for."""
    left = list(shape)
    rest = []
    for d in others:
        if isinstance(d, Sym) and d in left:
            left.remove(d)
        else:
            rest.append(d)
    total, known = product(left), product(rest)
    if known == 0:
        return 0
    if isinstance(total, Sym) or isinstance(known, Sym):
        return total // known
    if total % known:
        fail(n, f"a tensor of shape {shape} cannot be reshaped to {others} and -1")
    return total // known


_same_layout(reshape)

flatten = Op("Flatten", half=[0])


@flatten.infer
def _(n):
    x = n.inputs[0]
    axis = axis_of(n, n.attr("axis", 1), x.rank, 1)
    return [(x.dtype, [product(x.shape[:axis]), product(x.shape[axis:])])]


_same_layout(flatten)

squeeze = Op("Squeeze", half=[0])


@squeeze.infer
def _(n):
    x = n.inputs[0]
    axes = n.attr("axes") if n.opset < 13 else ints(n, 1)
    if axes is None:
        axes = [i for i, d in enumerate(x.shape) if d == 1]
    axes = {axis_of(n, a, x.rank) for a in axes}
    for a in axes:
        if not isinstance(x.shape[a], Sym) and x.shape[a] != 1:
            fail(n, f"dimension {a} of {x.shape} is not 1 and cannot be squeezed")
    return [(x.dtype, [d for i, d in enumerate(x.shape) if i not in axes])]


_same_layout(squeeze)

unsqueeze = Op("Unsqueeze", half=[0])


@unsqueeze.infer
def _(n):
    x = n.inputs[0]
    axes = n.attr("axes") if n.opset < 13 else ints(n, 1)
    rank = x.rank + len(axes)
    axes = sorted(axis_of(n, a, rank) for a in axes)
    if len(set(axes)) != len(axes):
        fail(n, "it names an axis twice")
    dims = list(x.shape)
    for a in axes:
        dims.insert(a, 1)
    return [(x.dtype, dims)]


_same_layout(unsqueeze)

transpose = Op("Transpose", half=[0])


@transpose.infer
def _(n):
    x = n.inputs[0]
    perm = n.attr("perm") or list(range(x.rank))[::-1]
    if sorted(perm) != list(range(x.rank)):
        fail(n, f"perm {perm} is no permutation of {x.rank} dimensions")
    if perm == list(range(x.rank)):
        return [x]
    return [(x.dtype, [x.shape[p] for p in perm])]


@transpose.fold
def _(n, outs):
    x = n.inputs[0]
    perm = n.attr("perm") or list(range(x.rank))[::-1]
    s = strides_of(x.shape)
    return [[x.numbers[i] for i in indices(outs[0][1], [s[p] for p in perm])]]


@transpose.lower
def _(n, b):
    x = b.view(n.inputs[0])
    b.alias(n.outputs[0], x.transpose(n.attr("perm") or list(range(len(x.shape)))[::-1]))


slice_ = Op("Slice", half=[0])


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


def _ranges(n):
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
    ranges = _ranges(n)
    for axis, start, length, step in ranges:
        dims[axis] = length
    if dims == x.shape and all(step == 1 for *_, step in ranges):
        return [x]
    return [(x.dtype, dims)]


@slice_.fold
def _(n, outs):
    x = n.inputs[0]
    s, offset = strides_of(x.shape), 0
    for axis, start, length, step in _ranges(n):
        offset += start * s[axis] if outs[0][1][axis] else 0
        s[axis] *= step
    return [[x.numbers[i] for i in indices(outs[0][1], s, offset)]]


@slice_.lower
def _(n, b):
    v = b.view(n.inputs[0])
    for axis, start, length, step in _ranges(n):
        v = v.slice(axis, start, length, step)
    b.alias(n.outputs[0], v)


concat = Op("Concat", half=[])


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


split = Op("Split", half=[0])


def _split_sizes(n):
    x = n.inputs[0]
    axis = axis_of(n, n.attr("axis", 0), x.rank)
    sizes = n.attr("split") if n.opset < 13 else ints(n, 1)
    d = x.shape[axis]
    if sizes is None:
        parts = n.attr("num_outputs") or len(n.outputs)
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


expand = Op("Expand")


@expand.infer
def _(n):
    x = n.inputs[0]
    dims = broadcast(n, x.shape, ints(n, 1))
    if dims == x.shape:
        return [x]
    return [(x.dtype, dims)]


@expand.fold
def _(n, outs):
    return [read_as(n.inputs[0], outs[0][1])]


@expand.lower
def _(n, b):
    b.alias(n.outputs[0], b.view(n.inputs[0]).broadcast(n.outputs[0].shape))


tile = Op("Tile")


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


gather = Op("Gather", half=[0])


def gathered_shape(n, axis):
    x, i = n.inputs[0], n.inputs[1]
    return x.shape[:axis] + i.shape + x.shape[axis + 1:]


@gather.infer
def _(n):
    x, i = n.inputs[:2]
    if i.dtype not in (INT32, INT64):
        fail(n, f"its indices have the type of {i}; int32 or int64 is wanted")
    axis = axis_of(n, n.attr("axis", 0), x.rank)
    return [(x.dtype, gathered_shape(n, axis))]


@gather.fold
def _(n, outs):
    x, i = n.inputs[:2]
    axis = axis_of(n, n.attr("axis", 0), x.rank)
    rows, inner, outer = x.shape[axis], product(x.shape[axis + 1:]), product(x.shape[:axis])
    out = []
    for o in range(outer):
        for k in i.numbers:
            if not -rows <= k < rows:
                fail(n, f"index {k} is outside a dimension of {rows}")
            at = (o * rows + k % rows) * inner
            out += x.numbers[at:at + inner]
    return [out]


@gather.lower
def _(n, b):
    x, i = n.inputs[:2]
    axis = axis_of(n, n.attr("axis", 0), x.rank)
    k = i.scalar()
    if k is not None and (isinstance(k, Sym) or -most(x.shape[axis]) <= k):  # a constant index is a slice
        if not isinstance(k, Sym) and k < 0:
            k = x.shape[axis] + k
        if isinstance(k, Sym) or isinstance(x.shape[axis], Sym) or k < x.shape[axis]:
            v = b.view(x).slice(axis, k, 1)
            b.alias(n.outputs[0], v.drop(axis) if i.rank == 0 else b.reshaped(v, n.outputs[0].shape))
            return
    xv, iv, y = b.rows_from(b.view(x), axis), b.flat(b.view(i)), b.out(n.outputs[0])
    inner, outer = product(x.shape[axis + 1:]), product(x.shape[:axis])
    if isinstance(inner, Sym) or axis > 1 and isinstance(outer, Sym):
        raise NotStatic("Gather of rows with a register-dependent length")
    count = product(i.shape)
    rows = x.shape[axis]
    if rows == 0:
        fail(n, "it gathers from an empty dimension")
    b.emit("gather", {"x": xv, "index": iv, "y": y}, size=size_of(x.dtype), index_type=i.dtype, outer=outer, count=count, rows=rows, inner=inner,
           x_outer=xv.strides[axis - 1] if axis and outer != 1 else 0, x_row=xv.strides[axis], y_outer=y.strides[axis - 1] if axis and outer != 1 else 0)


gather_elements = Op("GatherElements")


@gather_elements.infer
def _(n):
    x, i = n.inputs
    axis_of(n, n.attr("axis", 0), x.rank)
    if x.rank != i.rank or i.dtype not in (INT32, INT64):
        fail(n, f"its indices {i} do not fit {x}")
    return [(x.dtype, list(i.shape))]


@gather_elements.lower
def _(n, b):
    x, i = n.inputs
    if x.rank > 6:
        unsupported(n, "GatherElements of more than 6 dimensions")
    axis = axis_of(n, n.attr("axis", 0), x.rank)
    if any(a > c for k, (a, c) in enumerate(zip(i.shape, x.shape)) if k != axis):
        fail(n, f"its indices {i} do not fit {x}")
    xv, iv, y = b.view(x), b.view(i), b.out(n.outputs[0])
    b.flat(y)
    if min(xv.strides) < 0 or min(iv.strides) < 0:
        xv, iv = b.contiguous(xv), b.contiguous(iv)
    pad = 6 - x.rank
    xs = list(xv.strides)
    xs[axis] = 0
    b.emit("gather_elements", {"x": xv, "index": iv, "y": y}, size=size_of(x.dtype), index_type=i.dtype, dims=[1] * pad + list(i.shape), rows=x.shape[axis], x_axis=xv.strides[axis],
           xs=[0] * pad + xs, **{"is": [0] * pad + iv.strides})


gather_nd = Op("GatherND", half=[0])


@gather_nd.infer
def _(n):
    x, i = n.inputs
    batch = n.attr("batch_dims", 0)
    depth = i.shape[-1] if i.rank else 0
    if not i.rank or isinstance(depth, Sym) or batch + depth > x.rank or i.dtype != INT64:
        fail(n, f"its indices {i} do not fit {x}")
    return [(x.dtype, i.shape[:-1] + x.shape[batch + depth:])]


@gather_nd.fold
def _(n, outs):
    x, i = n.inputs
    if n.attr("batch_dims", 0):
        raise NotStatic("batched")
    depth, s, out = i.shape[-1], strides_of(x.shape), []
    inner = product(x.shape[depth:])
    for k in range(0, len(i.numbers), depth):
        at = 0
        for d, j in enumerate(i.numbers[k:k + depth]):
            if isinstance(j, Sym) or not -x.shape[d] <= j < x.shape[d]:
                raise NotStatic("index")
            at += (j % x.shape[d]) * s[d]
        out += x.numbers[at:at + inner]
    return [out]


@gather_nd.lower
def _(n, b):
    x, i = n.inputs
    batch, depth = n.attr("batch_dims", 0), i.shape[-1]
    iv, y = b.flat(b.view(i)), b.out(n.outputs[0])
    b.flat(y)
    if depth > 6:
        unsupported(n, "GatherND with more than 6 index components")
    tail = x.shape[batch + depth:]
    xv = b.view(x)
    if not xv.plain_from(batch + depth) or min(xv.strides, default=0) < 0 or (batch and not xv.plain_from(0)):
        xv = b.contiguous(xv)
    sizes, strides = list(x.shape[batch:batch + depth]), list(xv.strides[batch:batch + depth])
    batches = product(x.shape[:batch])
    b.emit("gather_nd", {"x": xv, "index": iv, "y": y}, size=size_of(x.dtype), index_type=i.dtype, batch=batches, count=product(i.shape[batch:-1]), depth=depth, inner=product(tail),
           x_batch=product(x.shape[batch:]) if batch else 0, sizes=sizes + [1] * (6 - depth), strides=strides + [0] * (6 - depth))


scatter_nd = Op("ScatterND")


@scatter_nd.infer
def _(n):
    x, i, u = n.inputs
    if not i.rank or isinstance(i.shape[-1], Sym) or i.shape[-1] > x.rank or u.dtype != x.dtype or i.dtype != INT64:
        fail(n, f"its indices {i} and updates {u} do not fit {x}")
    if product_of(u.shape) != product_of(i.shape[:-1] + x.shape[i.shape[-1]:]):
        fail(n, f"updates {u} do not fit indices {i} into {x}")
    if n.attr("reduction", "none") == "none" and u.shape == x.shape and _names_every_element(i, x.shape):
        return [u]  # how TorchScript writes mask[:, :, :, :length] = updates
    return [like(n, 0)]


def _names_every_element(index, dims):
    """Whether an index tensor [*dims, rank] surely holds each element's own place: concat of expanded ranges."""
    if index.rank != len(dims) + 1 or index.shape[:-1] != list(dims) or index.shape[-1] != len(dims):
        return False
    if index.numbers is not None:
        return index.numbers == [k for place in _places(dims) for k in place]
    c = index.producer
    if c is None or c.op != "Concat" or len(c.inputs) != len(dims):
        return False
    return all(_counts_along(v, axis, dims) for axis, v in enumerate(c.inputs))


def _places(dims):
    out = [[]]
    for d in dims:
        out = [p + [i] for p in out for i in range(d)]
    return out


def _counts_along(v, axis, dims):
    """Whether v [*dims, 1] is 0, 1, 2, ... along one axis and the same along the others."""
    for _ in range(4):
        if v.producer is None or v.producer.op not in ("Unsqueeze", "Expand", "Reshape"):
            break
        if v.producer.op == "Expand" or v.producer.op == "Unsqueeze" and v.producer.inputs[0].shape == list(dims):
            v = v.producer.inputs[0]
            continue
        break
    # v broadcasts to dims: its axes are the last ones
    shape = [1] * (len(dims) - v.rank) + list(v.shape)
    if len(shape) != len(dims) or any(d != 1 for i, d in enumerate(shape) if i != axis) or shape[axis] != dims[axis]:
        return False
    while v.numbers is None and v.producer is not None and v.producer.op in ("Unsqueeze", "Reshape", "Identity"):
        v = v.producer.inputs[0]
    if v.numbers is not None:
        return v.numbers == list(range(len(v.numbers)))
    n = v.producer
    return n is not None and n.op == "Range" and n.inputs[0].numbers == [0] and n.inputs[2].numbers == [1]


@scatter_nd.lower
def _(n, b):
    x, i, u = n.inputs
    depth = i.shape[-1]
    y = b.out(n.outputs[0])
    b.copy(b.view(x), y)
    kinds = {"none": 0, "add": 1, "mul": 2, "min": 3, "max": 4}
    reduction = n.attr("reduction", "none")
    if reduction not in kinds or depth > 6:
        unsupported(n, f"reduction '{reduction}' with {depth} index components")
    tail = x.shape[depth:]
    if any(isinstance(d, Sym) for d in tail[1:]):
        raise NotStatic("ScatterND of rows with a register-dependent length")
    sizes, strides = list(x.shape[:depth]), list(y.strides[:depth])
    b.emit("scatter_nd", {"index": b.flat(b.view(i)), "updates": b.flat(b.view(u)), "y": y}, size=size_of(x.dtype), type=x.dtype, index_type=i.dtype, reduction=kinds[reduction],
           count=product(i.shape[:-1]), depth=depth, inner=product(tail), sizes=sizes + [1] * (6 - depth), strides=strides + [0] * (6 - depth))


trilu = Op("Trilu")


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


range_ = Op("Range")


@range_.infer
def _(n):
    (start,), (limit,), (delta,) = ints(n, 0), ints(n, 1), ints(n, 2)
    if delta == 0:
        fail(n, "a step of 0")
    span = limit - start
    if isinstance(span, Sym):
        count = span // delta
        if count.min < 0:
            raise NotStatic("a range that may be empty")
    elif isinstance(span, float):
        import math
        if not math.isfinite(span / delta):
            fail(n, "its bounds are not finite")
        count = max(0, math.ceil(span / delta))
    else:
        count = max(0, -(-span // delta))
    if most(count) >= 1 << 31:
        fail(n, f"a range of {count} elements")
    return [(n.inputs[0].dtype, [count])]


@range_.fold
def _(n, outs):
    start, delta, count = n.inputs[0].numbers[0], n.inputs[2].numbers[0], outs[0][1][0]
    if isinstance(start, Sym) and count > 4:
        raise NotStatic("a long range from a register")
    return [[start + i * delta for i in range(count)]]


@range_.lower
def _(n, b):
    start, delta = n.inputs[0].numbers[0], n.inputs[2].numbers[0]
    b.range(b.out(n.outputs[0]), start, delta)


constant_of_shape = Op("ConstantOfShape")


@constant_of_shape.infer
def _(n):
    value, dims = n.attr("value"), ints(n, 0)
    if any(d < 0 for d in dims if not isinstance(d, Sym)):
        fail(n, f"shape {dims} has a negative dimension")
    dtype = value.dtype if value is not None else FLOAT
    return [(FLOAT if dtype == FLOAT16 else dtype, dims)]


def _filler(n):
    value = n.attr("value")
    return value.numbers()[0] if value is not None else 0.0


@constant_of_shape.fold
def _(n, outs):
    return [[_filler(n)] * product(outs[0][1])]


@constant_of_shape.lower
def _(n, b):
    from .dtypes import pack
    y = b.scalar(n.outputs[0].dtype, _filler(n))
    b.alias(n.outputs[0], y.broadcast(n.outputs[0].shape))


pad = Op("Pad")


@pad.infer
def _(n):
    x = n.inputs[0]
    if n.attr("mode", "constant") != "constant":
        unsupported(n, f"padding mode '{n.attr('mode')}'")
    return [(x.dtype, [d + lo + hi for d, (lo, hi) in zip(x.shape, _pads(n))])]


def _pads(n):
    x = n.inputs[0]
    pads = n.attr("pads") if n.opset < 11 else ints(n, 1)
    axes = ints(n, 3) if n.opset >= 18 and n.has(3) else range(x.rank)
    out = [(0, 0)] * x.rank
    axes = [axis_of(n, a, x.rank) for a in axes]
    if len(pads) != 2 * len(axes):
        fail(n, f"pads {pads} do not fit {len(axes)} axes")
    for i, a in enumerate(axes):
        out[a] = (pads[i], pads[i + len(axes)])
    return out


@pad.lower
def _(n, b):
    x, y = b.view(n.inputs[0]), b.out(n.outputs[0])
    value = n.attr("value", 0.0) if n.opset < 11 else (n.need(2)[0] if n.has(2) and n.inputs[2].shape != [0] else 0)
    b.fill(y, value)
    for axis, (lo, hi) in enumerate(_pads(n)):
        x = x.slice(axis, max(0, -lo), x.shape[axis] + min(0, lo) + min(0, hi))
        y = y.slice(axis, max(0, lo), x.shape[axis])
    b.copy(x, y)
