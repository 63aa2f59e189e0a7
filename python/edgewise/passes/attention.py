"""softmax(q k^T * scale + mask) v as exporters spell it, recognised from its Softmax."""

from __future__ import annotations

from ..declare.dtypes import BOOL, FLOAT, UINT8, unpack
from ..ir import Value
from .rewrite import Rewriter, number, op_of, split_scalar


def fuse_attention(bound):
    """MatMul, scaling, masks, Softmax, MatMul become Attention (of the domain edgewise); a
    Transpose and Reshape that merge its heads become part of it (`merged`).
    """
    r = Rewriter(bound)
    biases = {}
    for softmax in r.nodes("Softmax"):
        _match(r, softmax, biases)
    r.done()
    r = Rewriter(bound)
    for n in r.nodes("Attention"):
        if n.domain == "edgewise":
            _merge_heads(r, n)
    r.done()


def _match(r, softmax, biases):
    scores = softmax.inputs[0]
    rank = scores.rank
    if rank not in (3, 4) or softmax.attr("axis", -1 if softmax.opset >= 13 else 1) not in (
        -1,
        rank - 1,
    ):
        return
    # behind the softmax: an optional guard against NaN, then the product with v
    p, nan_to_zero = softmax.outputs[0], 0
    users = r.users.get(id(p), [])
    if len(users) == 2 and None not in users and {u.op for u in users} == {"IsNaN", "Where"}:
        isnan, where = sorted(users, key=lambda u: u.op)
        if (
            r.only_user(isnan.outputs[0]) is where
            and where.inputs[0] is isnan.outputs[0]
            and number(where.inputs[1]) == 0.0
            and where.inputs[2] is p
        ):
            p, nan_to_zero = where.outputs[0], 1
        else:
            return
    last = r.only_user(p)
    flat = None
    if last is not None and last.op == "Reshape" and last.outputs[0].rank == 3 and p.rank == 4:
        p, last = last.outputs[0], r.only_user(last.outputs[0])
        flat = True
    if last is None or last.op != "MatMul" or last.inputs[0] is not p or len(last.inputs) != 2:
        return
    v = last.inputs[1]
    # before it: masks, scaling, soft cap, and the product of q and k
    masks, scale, softcap = [], 1.0, 0.0
    value = scores
    if rank == 3:  # heads and batch in one dimension, as older models have it
        flat = True
        if (
            op_of(scores) == "Reshape"
            and r.single(scores)
            and scores.producer.inputs[0].rank == 4
            and list(scores.producer.inputs[0].shape[2:]) == list(scores.shape[1:])
        ):
            value = scores.producer.inputs[0]
    shape4 = list(value.shape) if value.rank == 4 else [1, *value.shape]
    for _ in range(8):
        n = value.producer
        if n is None or not r.single(value):
            return
        if n.op == "MatMul":
            break
        if n.op == "Add" and scale == 1.0 and not softcap:
            # the mask is the operand that does not come from a product
            i = 0 if _is_scores(n.inputs[0]) else 1 if _is_scores(n.inputs[1]) else None
            if i is None or list(n.inputs[i].shape) != list(value.shape):
                return
            masks.append(n.inputs[1 - i])
            value = n.inputs[i]
        elif (
            n.op == "Where"
            and scale == 1.0
            and not softcap
            and n.inputs[2].constant
            and number(n.inputs[2]) is not None
            and number(n.inputs[2]) < -1e4
            and list(n.inputs[1].shape) == list(value.shape)
        ):
            masks.append((n.inputs[0], n.inputs[2]))
            value = n.inputs[1]
        elif n.op == "Reshape" and value.rank == 4 and n.inputs[0].rank == 3:
            value, flat = n.inputs[0], True
        elif n.op in ("Mul", "Div"):
            x, c = split_scalar(value, "Mul", "Div")
            if x is value:
                return
            if op_of(x) == "Tanh" and not softcap and scale == 1.0:
                softcap = c
                x, inner = split_scalar(x.producer.inputs[0], "Mul", "Div")
                scale = inner * softcap
                if c <= 0:
                    return
            else:
                scale *= c
            value = x
        else:
            return
    product = value.producer
    if product is None or product.op != "MatMul" or len(product.inputs) != 2:
        return
    q, k = product.inputs
    q, c = split_scalar(q, "Mul", "Div")
    scale *= c
    k, c = split_scalar(k, "Mul", "Div")
    scale *= c
    if q.rank not in (3, 4) or q.rank != k.rank:
        return
    batch, heads, q_len, kv_len = shape4
    perm = list(range(k.rank - 2)) + [k.rank - 1, k.rank - 2]
    if q.rank == 3 and (not flat or q.shape[0] != batch * heads):
        return
    at = last
    k = _source(k)
    # keys and values as [batch, kv_heads, kv_len, dim], without the copies that repeat shared heads
    k = (
        r.transpose(at, k, perm)
        if k.producer is None or k.producer.op != "Transpose" or k.producer.attr("perm") != perm
        else k.producer.inputs[0]
    )
    if q.rank == 3:
        q = r.reshape(at, q, [batch, heads, q_len, q.shape[-1]])
        k = _unflatten(r, at, k, [batch, heads, kv_len, k.shape[-1]])
        v = _unflatten(r, at, v, [batch, heads, kv_len, v.shape[-1]])
    else:
        k = _unflatten(r, at, k, k.shape)
    k, v = _shared(k), _shared(v)
    if k.shape[1] != v.shape[1]:
        return
    inputs, attrs = [q, k, v], {"scale": scale, "softcap": softcap, "nan_to_zero": nan_to_zero}
    if (
        len(masks) == 1 and (past := _causal(masks[0], q_len, kv_len)) is not None
    ):  # the kernel leaves out what lies behind the diagonal, rather than adding numbers to it
        masks = []
        attrs |= {"causal": 1, "past": past}
    for m in reversed(masks):
        if isinstance(m, tuple):
            m = _bias(r, at, m, biases, len(masks) == 1)
        if m.rank == 3 and flat:
            if m.shape[0] == batch * heads:
                m = r.reshape(at, m, [batch, heads] + m.shape[1:])
            elif m.shape[0] == 1:
                m = r.reshape(at, m, [1] + m.shape)
            else:
                return
        inputs.append(m)
    if (
        any(x.rank != 4 or x.shape[0] != batch for x in (q, k, v))
        or q.shape[1] != heads
        or heads % k.shape[1]
    ):
        return
    out = at.outputs[0]
    if flat:
        shape = [batch, heads, q_len, v.shape[3]]
        back = r.only_user(out)
        if back is not None and back.op == "Reshape" and list(back.outputs[0].shape) == shape:
            r.become(back, "Attention", "edgewise", inputs, **attrs)
            return
        y = r.insert(at, "Attention", "edgewise", inputs, FLOAT, shape, **attrs)
        r.become(
            at, "Reshape", "", [y, Value("shape", 7, [3], numbers=list(out.shape))], allowzero=1
        )
    else:
        r.become(at, "Attention", "edgewise", inputs, **attrs)


def _causal(mask, q_len, kv_len):
    """`past`, where a mask is a triangle of the model's file (a buffer, or a part cut out of one)
    that lets query i attend to the keys up to i + past; else None. (Of several masks none is: what
    one puts aside by a finite number counts again where another puts all the rest aside.)

    Args: mask: Value that is added (zeros, and lower than -1e4 behind the diagonal), or (condition,
    what stands where it is false).
    """
    value = mask[0] if isinstance(mask, tuple) else mask
    rows = _rows(value)
    if (
        rows is None
        or [q_len, kv_len] != list(value.shape[-2:])
        or not isinstance(mask, tuple)
        and value.dtype != FLOAT
    ):
        return None
    past = kv_len - q_len
    if past < 0:
        return None
    if value.dtype == FLOAT:
        low = rows[0][-4:]
        if q_len > 1 and not unpack(FLOAT, low, 1)[0] < -1e4:
            return None
        yes, no = bytes(4), low
    else:
        yes, no = b"\1", b"\0"
    return (
        past
        if all(row == yes * (past + i + 1) + no * (q_len - 1 - i) for i, row in enumerate(rows))
        else None
    )


def _rows(value):
    """The bytes of each row of a constant matrix (dimensions of 1 before it), if it lies in the
    model's file or is cut out of what does; else None.
    """
    n = value.producer
    if (
        n is not None
        and n.op == "Cast"
        and n.inputs[0].dtype in (BOOL, UINT8)
        and value.dtype in (BOOL, UINT8)
    ):
        return _rows(n.inputs[0])
    if n is not None and n.op == "Slice" and len(n.inputs) >= 4:
        whole, (starts, ends, axes), steps = (
            n.inputs[0],
            (v.numbers for v in n.inputs[1:4]),
            n.inputs[4].numbers if len(n.inputs) > 4 and n.inputs[4] is not None else [1],
        )
        if (
            None in (starts, ends, axes, steps)
            or len(starts) != 1
            or list(steps) != [1]
            or not all(isinstance(x, int) for x in (*starts, *ends))
            or (rows := _rows(whole)) is None
        ):
            return None
        axis, length = axes[0] % whole.rank, whole.shape[axes[0]]
        part = slice(*slice(starts[0], ends[0]).indices(length))
        size = len(rows[0]) // whole.shape[-1]
        return (
            rows[part]
            if axis == whole.rank - 2
            else (
                [row[part.start * size : part.stop * size] for row in rows]
                if axis == whole.rank - 1
                else None
            )
        )
    if (
        value.tensor is None
        or value.role == "state"
        or value.rank < 2
        or value.dtype not in (FLOAT, BOOL, UINT8)
        or value.tensor.count != value.shape[-2] * value.shape[-1]
        or not value.tensor.count
    ):
        return None
    data, length = value.tensor.bytes(), value.tensor.nbytes // value.shape[-2]
    return [bytes(data[i : i + length]) for i in range(0, len(data), length)]


def _is_scores(v):
    """Whether a value comes from a matrix product through scaling, masks and reshapes."""
    for _ in range(8):
        n = v.producer
        if n is None:
            return False
        if n.op == "MatMul":
            return v.rank >= 3 and not n.inputs[1].constant
        if n.op in ("Mul", "Div"):
            x, _ = split_scalar(v, "Mul", "Div")
            if x is v:
                return False
            v = x
        elif n.op in ("Reshape", "Tanh"):
            v = n.inputs[0]
        elif n.op == "Where":
            v = n.inputs[1]
        elif n.op == "Add":
            v = next(
                (
                    i
                    for i in n.inputs
                    if not i.constant
                    and i.rank == v.rank
                    and list(i.shape) == list(v.shape)
                    and _is_scores(i)
                ),
                None,
            )
            if v is None:
                return False
        else:
            return False
    return False


def _source(v):
    """Looks through Reshape(Transpose(Reshape(k))) that only flattens batch and heads around a swap
    of the last two axes.
    """
    n = v.producer
    if (
        n is not None
        and n.op == "Reshape"
        and v.rank == 4
        and n.inputs[0].rank == 3
        and n.inputs[0].shape[1:] == v.shape[2:]
    ):
        t = n.inputs[0].producer
        if t is not None and t.op == "Transpose" and t.attr("perm") == [0, 2, 1]:
            f = t.inputs[0].producer
            if (
                f is not None
                and f.op == "Reshape"
                and f.inputs[0].rank == 4
                and f.inputs[0].shape[:2] == v.shape[:2]
                and f.inputs[0].shape[2:] == t.inputs[0].shape[1:]
            ):
                return _Swapped(f.inputs[0], v)
    return v


class _Swapped:
    """A value seen with its last two axes swapped: quacks as the Value of a Transpose."""

    def __init__(self, value, like):
        self.shape, self.rank, self.dtype = like.shape, like.rank, like.dtype
        self.producer = _SwapNode(value)


class _SwapNode:
    op = "Transpose"

    def __init__(self, value):
        self.inputs = [value]

    def attr(self, name, default=None):
        rank = self.inputs[0].rank
        return list(range(rank - 2)) + [rank - 1, rank - 2]


def _unflatten(r, at, v, shape):
    """v as `shape`, through the Reshape that flattened it where there is one."""
    if list(v.shape) == list(shape):
        return v
    n = v.producer
    if n is not None and n.op == "Reshape" and list(n.inputs[0].shape) == list(shape):
        return n.inputs[0]
    return r.reshape(at, v, shape)


def _shared(v):
    """Looks through Reshape(Expand(Unsqueeze(x))) that repeats each head for its group of
    queries.
    """
    n = v.producer
    if n is None or n.op != "Reshape" or v.rank != 4:
        return v
    e = n.inputs[0].producer
    if e is None or e.op != "Expand" or e.outputs[0].rank != 5:
        return v
    x = e.inputs[0]
    wide, narrow = e.outputs[0].shape, x.shape
    if (
        len(narrow) != 5
        or narrow[2] != 1
        or [d for i, d in enumerate(wide) if i != 2] != [d for i, d in enumerate(narrow) if i != 2]
        or wide[1] * wide[2] != v.shape[1]
    ):
        return v
    u = x.producer
    if (
        u is not None
        and u.op in ("Unsqueeze", "Reshape")
        and u.inputs[0].rank == 4
        and u.inputs[0].shape == narrow[:2] + narrow[3:]
    ):
        return u.inputs[0]
    return v


def _bias(r, before, pair, biases, alone):
    """Where(mask, scores, low) as the number to add: 0 where the mask is true, low elsewhere (low +
    score rounds to low).

    Float16's lowest number is not low enough for that, which shows in rows of which all is masked:
    their weights are equal. Where no other mask is added, a number that absorbs every score stands
    in for it.
    """
    mask, low = pair
    key = (id(mask), id(low), alone)
    if key not in biases:
        zero = Value("zero", FLOAT, [], numbers=[0.0])
        if alone and number(low) > -1e9:
            low = Value("low", FLOAT, [], numbers=[-1e30])
        biases[key] = r.insert(before, "Where", "", [mask, zero, low], FLOAT, mask.shape)
    return biases[key]


def _merge_heads(r, node):
    """Attention, Transpose, Reshape to [batch, seq, heads * dim]: written in that layout at
    once.
    """
    y = node.outputs[0]
    t = r.only_user(y)
    if t is None or t.op != "Transpose" or t.attr("perm") != [0, 2, 1, 3]:
        return
    m = r.only_user(t.outputs[0])
    if m is None or m.op != "Reshape":
        return
    out = m.outputs[0]
    want = [y.shape[0], y.shape[2], y.shape[1] * y.shape[3]]
    if list(out.shape) != want:
        if out.rank != 2 or list(out.shape) != [want[0] * want[1], want[2]]:
            return
        merged = r.insert(
            m, "Attention", "edgewise", node.inputs, FLOAT, want, **{**node.attrs, "merged": 1}
        )
        r.become(
            m, "Reshape", "", [merged, Value("shape", 7, [2], numbers=list(out.shape))], allowzero=1
        )
        return
    r.become(m, "Attention", "edgewise", node.inputs, **{**node.attrs, "merged": 1})
