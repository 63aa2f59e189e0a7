"""Rotary position embedding in its ONNX and com.microsoft forms, and the kernel under them."""
from __future__ import annotations

from .attention_grad import part, split_heads
from .attention_kernel import by_heads, shaped
from .dtypes import FLOAT, INT64
from .kernel import Kernel, read, write
from .op import MS, Op, fail, like, product, takes

Kernel("rope", {"batch": "i32", "heads": "i32", "seq": "i32", "head_dim": "i32", "rotary_dim": "i32", "interleaved": "i32", "x_b": "i32", "x_h": "i32", "x_s": "i32", "y_b": "i32", "y_h": "i32", "y_s": "i32",
                "c_b": "i32", "c_s": "i32", "c_rows": "i32", "position": "i32", "positions": "i32", "scale": "f32"},
       [read("x", 4, "(batch-1)*x_b + (heads-1)*x_h + (seq-1)*x_s + head_dim"),
        read("cos", 4, "(c_rows-1)*c_s + rotary_dim // 2 if positions >= 1 else (batch-1)*c_b + (seq-1)*c_s + rotary_dim // 2"),
        read("sin", 4, "(c_rows-1)*c_s + rotary_dim // 2 if positions >= 1 else (batch-1)*c_b + (seq-1)*c_s + rotary_dim // 2"),
        read("position_ids", 8, "batch * seq if positions == 2 else (batch if positions == 3 else 1)", optional=True),
        write("y", 4, "(batch-1)*y_b + (heads-1)*y_h + (seq-1)*y_s + head_dim", inplace=["x"])],
       require=["rotary_dim > 0", "rotary_dim % 2 == 0", "rotary_dim <= head_dim", "positions >= 0", "positions < 4", "c_rows > 0", "min(x_b, x_h, x_s) >= 0", "min(y_b, y_h, y_s) >= 0", "min(c_b, c_s) >= 0", "batch * seq <= 2147483647", "distinct(batch, y_b, heads, y_h, seq, y_s, head_dim, 1)"],
       empty=["batch", "heads", "seq"], variants={"interleaved": "ROPE_INTERLEAVED"},
       doc="Rotary embedding of the first rotary_dim elements of each head; the rest is copied. Row of the cos/sin tables for (b, s): positions 0: b*c_b + s*c_s directly; 1: row position + s; "
           "2: row position_ids[b, s] (int64); 3: row position_ids[b] + s. A row outside [0, c_rows) is EW_E_INDEX. interleaved: pairs (2i, 2i+1), else (i, i + rotary_dim/2).")


def emit_rope(b, x, y, cos, sin, rotary_dim, positions=0, position_ids=None, position=0, interleaved=0):
    """x, y [batch, heads, seq, dim]; cos, sin: [rows, rotary_dim/2] tables, or [batch|1, seq, rotary_dim/2] with positions 0."""
    x = b.inner_contiguous(x)
    batch, heads, seq, dim = x.shape
    cos, sin = b.inner_contiguous(cos), b.inner_contiguous(sin)
    if positions == 0:
        cos, sin = (t.broadcast([batch, seq, rotary_dim // 2]) for t in (cos, sin))
        c_b, c_s, rows = cos.strides[0], cos.strides[1], 1
        if sin.strides[:2] != cos.strides[:2]:
            cos, sin = b.contiguous(cos), b.contiguous(sin)
            c_b, c_s = cos.strides[:2]
    else:
        c_b, c_s, rows = 0, cos.strides[0], cos.shape[0]
        if sin.strides[0] != c_s:
            cos, sin = b.contiguous(cos), b.contiguous(sin)
            c_s = cos.strides[0]
    b.emit("rope", {"x": x, "cos": cos, "sin": sin, "position_ids": position_ids, "y": y}, batch=batch, heads=heads, seq=seq, head_dim=dim, rotary_dim=rotary_dim, interleaved=int(interleaved != 0),
           x_b=x.strides[0], x_h=x.strides[1], x_s=x.strides[2], y_b=y.strides[0], y_h=y.strides[1], y_s=y.strides[2], c_b=c_b, c_s=c_s, c_rows=rows, position=position, positions=positions, scale=1.0)


# Made by passes/rotary.py. Inputs: x [batch, heads, seq, dim], cos, sin [batch|1, seq, rotary_dim/2].
rope_direct = Op("Rope", "edgewise")


@rope_direct.infer
def _(n):
    return [like(n, 0)]


@rope_direct.lower
def _(n, b):
    cos, sin = b.view(n.inputs[1]), b.view(n.inputs[2])
    x = b.view(n.inputs[0])
    emit_rope(b, x, b.out(n.outputs[0]), cos, sin, 2 * cos.shape[-1], interleaved=n.attr("interleaved", 0))


@rope_direct.grad
def _(n, g, dy):
    x, cos, sin = n.inputs
    turn = n.attr("interleaved", 0)
    dx = g.op("Rope", dy, cos, g.neg(sin), domain="edgewise", interleaved=turn) if g.wants(0) else None  # turned back
    return [dx, *table_gradients(g, x, dy, cos.shape, turn, g.wants(1) or g.wants(2))]


def table_gradients(g, x, dy, shape, interleaved, wanted):
    """Gradients of cos and sin of a shape [batch|1, seq, half], where x [batch, heads, seq, dim] was turned by them."""
    if not wanted:
        return None, None
    half = shape[-1]

    def pair(v):
        v = part(g, v, 3, 0, 2 * half)
        if interleaved:
            v = g.reshape(v, [*v.shape[:3], half, 2])
            return [g.reshape(part(g, v, 4, i, 1), v.shape[:4]) for i in (0, 1)]
        return [part(g, v, 3, i * half, half) for i in (0, 1)]
    (x0, x1), (d0, d1) = pair(x), pair(dy)
    along = g.add(g.mul(d0, x0), g.mul(d1, x1)), g.sub(g.mul(d1, x0), g.mul(d0, x1))
    return tuple(g.sum_to(g.op("ReduceSum", v, g.ints([1]), keepdims=0), shape) for v in along)


rotary = Op("RotaryEmbedding")  # opset 23


@rotary.cases
def _(t):
    for interleaved in (0, 1):
        new = {"opset": 23, "interleaved": interleaved}
        yield t(t.f(2, 3, 5, 8), t.f(20, 4), t.f(20, 4), t.n("int64", 2, 5, low=0, high=19), **new)
        yield t(t.f(2, 3, 5, 8), t.f(2, 5, 4), t.f(2, 5, 4), **new)
        yield t(t.f(2, 5, 24), t.f(20, 4), t.f(20, 4), t.n("int64", 2, 5, low=0, high=19), num_heads=3, **new)
        yield t(t.f(2, 5, 24), t.f(2, 5, 4), t.f(2, 5, 4), num_heads=3, **new)
        yield t(t.f(2, 3, 5, 10), t.f(20, 2), t.f(20, 2), t.n("int64", 2, 5, low=0, high=19), rotary_embedding_dim=4, **new)
        yield t(t.f(1, 4, 1, 64), t.f(7, 32), t.f(7, 32), t.of("int64", [[6]]), **new)


@rotary.infer
def _(n):
    takes(n, (FLOAT,), 0, 1, 2)
    x = n.inputs[0]
    if x.rank not in (3, 4) or (x.rank == 3 and not n.attr("num_heads")):
        fail(n, f"it wants [batch, heads, seq, dim], or three dimensions and num_heads, not {x}")
    heads = n.attr("num_heads", 0)
    batch, seq, dim = (x.shape[0], x.shape[2], x.shape[3]) if x.rank == 4 else (x.shape[0], x.shape[1], x.shape[2] // heads)
    if heads < 0 or x.rank == 3 and x.shape[2] % heads:
        fail(n, f"{heads} heads do not share {x} evenly")
    half = (n.attr("rotary_embedding_dim", 0) or dim) // 2
    for i, name in ((1, "cos_cache"), (2, "sin_cache")):
        shaped(n, i, name, *((None, half) if n.has(3) else (batch, seq, half)))
    if n.has(3):
        check_positions(n, 3, batch, seq)
    return [like(n, 0)]


def check_positions(n, i, batch, seq):
    shaped(n, i, "position_ids", batch, seq)
    if n.inputs[i].dtype != INT64:
        fail(n, f"its position_ids are {n.inputs[i]}; int64 is wanted")


def _lower_rotary(n, b, cos, sin, position_ids, positions):
    x, y = b.view(n.inputs[0]), b.out(n.outputs[0])
    heads = n.attr("num_heads", 0)
    if len(x.shape) == 3:
        if not heads:
            dim = n.attr("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
            heads = x.shape[2] // dim
        x, y = by_heads(b, x, heads), by_heads(b, y, heads)
    rotary_dim = n.attr("rotary_embedding_dim", 0) or x.shape[3]
    emit_rope(b, x, y, cos, sin, rotary_dim, positions, position_ids, 0, n.attr("interleaved", 0))


@rotary.lower
def _(n, b):
    cos, sin = b.view(n.inputs[1]), b.view(n.inputs[2])
    ids = b.contiguous(b.view(n.inputs[3])) if n.has(3) else None
    _lower_rotary(n, b, cos, sin, ids, 2 if ids is not None else 0)


@rotary.grad
def _(n, g, dy):
    return _rotary_gradients(n, g, dy, 3, 1)


def _rotary_gradients(n, g, dy, ids, table):
    """Of x and, at inputs `table` and the next, of cos and sin; position ids are input `ids` where it is there."""
    x, cos, sin, half = n.inputs[0], n.inputs[table], n.inputs[table + 1], n.inputs[table].shape[-1]
    out = [None] * max(len(n.inputs), table + 2)
    again = list(n.inputs)
    again[0], again[table + 1] = dy, g.neg(sin)
    out[0] = g.op(n.op, *again, domain=n.domain, **n.attrs) if g.wants(0) else None
    if g.wants(table) or g.wants(table + 1):
        if x.rank == 3:
            heads = n.attr("num_heads", 0) or x.shape[2] // (n.attr("rotary_embedding_dim", 0) or 2 * half)
            x, dy = split_heads(g, x, heads), split_heads(g, dy, heads)
        batch, seq = x.shape[0], x.shape[2]
        got = table_gradients(g, x, dy, [batch, seq, half] if n.has(ids) else cos.shape, n.attr("interleaved", 0), True)
        if n.has(ids):
            places = n.inputs[ids]
            if list(places.shape) != [batch, seq]:  # where each row begins
                places = g.add(g.reshape(places, [product(places.shape), 1]), g.constant(INT64, [batch, seq], [i for _ in range(batch) for i in range(seq)]))
            got = [g.op("GatherGrad", d, places, domain="edgewise", rows=cos.shape[0]) for d in got]
        out[table:table + 2] = got
    return out


rotary_ms = Op("RotaryEmbedding", MS)


@rotary_ms.cases
def _(t):
    for interleaved in (0, 1):
        for x in (t.f(2, 5, 24), t.f(2, 3, 5, 8)):
            heads = {"num_heads": 3} if x.ndim == 3 else {}
            yield t(x, t.n("int64", 2, 5, low=0, high=19), t.f(20, 4), t.f(20, 4), interleaved=interleaved, **heads)
            yield t(x, t.of("int64", [4]), t.f(20, 4), t.f(20, 4), interleaved=interleaved, **heads)
        yield t(t.f(2, 5, 24), t.n("int64", 2, 5, low=0, high=19), t.f(20, 4), t.f(20, 4), interleaved=interleaved)
        yield t(t.f(2, 5, 30), t.n("int64", 2, 5, low=0, high=19), t.f(20, 2), t.f(20, 2), interleaved=interleaved, num_heads=3, rotary_embedding_dim=4)
    yield t(t.f(1, 1, 64), t.of("int64", [[3]]), t.f(20, 16), t.f(20, 16))
    yield t(t.f(1, 2, 16, dtype="float16"), t.of("int64", [[3, 4]]), t.f(20, 4, dtype="float16"), t.f(20, 4, dtype="float16"))


@rotary_ms.infer
def _(n):
    x, ids, cos, sin = n.inputs[:4]
    heads, rotary = n.attr("num_heads", 0), n.attr("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
    if x.rank not in (3, 4) or x.dtype != FLOAT or cos.rank != 2 or list(sin.shape) != list(cos.shape) or 2 * cos.shape[1] != rotary or ids.dtype != INT64:
        fail(n, f"its inputs {x}, {ids}, {cos}, {sin} do not fit together")
    seq = x.shape[2] if x.rank == 4 else x.shape[1]
    if product(ids.shape) != 1:
        check_positions(n, 1, x.shape[0], seq)
    if x.rank == 3:
        heads = heads or x.shape[2] // rotary
        if heads < 1 or x.shape[2] % heads or x.shape[2] // heads < rotary:
            fail(n, f"{heads} heads of at least {rotary} do not share {x} evenly")
    return [like(n, 0)]


@rotary_ms.lower
def _(n, b):
    ids = b.contiguous(b.view(n.inputs[1]))
    positions = 3 if product(ids.shape) == 1 else 2
    if positions == 3 and b.view(n.inputs[0]).shape[0] != 1:
        ids = b.contiguous(ids.broadcast([b.view(n.inputs[0]).shape[0]]))
    _lower_rotary(n, b, b.view(n.inputs[2]), b.view(n.inputs[3]), ids, positions)


@rotary_ms.grad
def _(n, g, dy):
    return _rotary_gradients(n, g, dy, 1, 2)
