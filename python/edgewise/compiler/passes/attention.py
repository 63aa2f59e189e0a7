"""softmax(q k^T * scale + mask) v as exporters spell it, recognised from its Softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..declare.dtypes import FLOAT, INT64
from ..ir import BoundNode, Value
from .attention_masks import LOW, Mask, added_mask, as_four_dimensions, causal_past
from .rewrite import Rewriter, number, op_of, split_scalar

if TYPE_CHECKING:
    from ..bind import BoundGraph

MAX_NODES = 8  # between the product of q and k and the softmax


def fuse_attention(bound: BoundGraph) -> None:
    """MatMul, scaling, masks, Softmax, MatMul become Attention (of the domain edgewise).

    A Transpose and Reshape that merge its heads become part of it (`merged`).
    """
    r = Rewriter(bound)
    made: dict[tuple[int, int, bool], Value] = {}
    for softmax in r.nodes("Softmax"):
        _match(r, softmax, made)
    r.done()
    r = Rewriter(bound)
    for n in r.nodes("Attention"):
        if n.domain == "edgewise":
            _merge_heads(r, n)
    r.done()


@dataclass
class _Scores:
    """What stands between q, k and the softmax.

    Attributes:
        value: the product of q and k, or what is computed of it.
        masks: in the order from the softmax to the product.
        scale, softcap: of the scores.
        flat: whether heads and batch are one dimension somewhere, as older models have it.
    """

    value: Value
    flat: bool
    masks: list[Mask] = field(default_factory=list)
    scale: float = 1.0
    softcap: float = 0.0


def _match(r: Rewriter, softmax: BoundNode, made: dict[tuple[int, int, bool], Value]) -> None:
    """Replaces the last product of an attention, if this is its softmax."""
    scores = softmax.inputs[0]
    rank = scores.rank
    axis = softmax.attr("axis", -1 if softmax.opset >= 13 else 1)
    if rank not in (3, 4) or axis not in (-1, rank - 1):
        return
    found = _product_with_values(r, softmax)
    if found is None:
        return
    at, nan_to_zero, flat = found
    s = _Scores(scores, flat)
    if rank == 3:
        s.flat = True
        if (
            op_of(scores) == "Reshape"
            and r.single(scores)
            and scores.producer.inputs[0].rank == 4
            and list(scores.producer.inputs[0].shape[2:]) == list(scores.shape[1:])
        ):
            s.value = scores.producer.inputs[0]
    shape = list(s.value.shape) if s.value.rank == 4 else [1, *s.value.shape]
    if not _walk_to_product(r, s):
        return
    operands = _operands(r, at, s, shape)
    if operands is None:
        return
    inputs, attrs = operands, {"scale": s.scale, "softcap": s.softcap, "nan_to_zero": nan_to_zero}
    masks = _masks(r, at, s, shape, attrs, made)
    if masks is None or any(x.rank != 4 or x.shape[0] != shape[0] for x in inputs):
        return
    q, k, v = inputs
    if q.shape[1] != shape[1] or shape[1] % k.shape[1]:
        return
    _replace(r, at, [q, k, v, *masks], attrs, [*shape[:3], v.shape[3]] if s.flat else None)


def _product_with_values(r: Rewriter, softmax: BoundNode) -> tuple[BoundNode, int, bool] | None:
    """(product with v, whether NaN becomes 0 before it, whether heads are merged with the batch)"""
    p, nan_to_zero, flat = softmax.outputs[0], 0, False
    users = [u for u in r.users.get(id(p), []) if u is not None]
    if len(users) == 2 and r.reads(p) == 2 and {u.op for u in users} == {"IsNaN", "Where"}:
        isnan, where = sorted(users, key=lambda u: u.op)
        if (
            id(r.only_user(isnan.outputs[0])) != id(where)
            or where.inputs[0] is not isnan.outputs[0]
            or number(where.inputs[1]) != 0.0
            or where.inputs[2] is not p
        ):
            return None
        p, nan_to_zero = where.outputs[0], 1
    last = r.only_user(p)
    if last is not None and last.op == "Reshape" and last.outputs[0].rank == 3 and p.rank == 4:
        p, flat = last.outputs[0], True
        last = r.only_user(p)
    if last is None or last.op != "MatMul" or last.inputs[0] is not p or len(last.inputs) != 2:
        return None
    return last, nan_to_zero, flat


def _walk_to_product(r: Rewriter, s: _Scores) -> bool:
    """Walks from the softmax up to the product of q and k, and collects masks, scale and soft cap.

    Returns:
        whether there is such a product and nothing else on the way
    """
    for _ in range(MAX_NODES):
        n = s.value.producer
        if n is None or not r.single(s.value):
            return False
        if n.op == "MatMul":
            break
        plain = s.scale == 1.0 and not s.softcap
        if n.op == "Add" and plain:
            # The mask is the operand that does not come from a product.
            i = 0 if _is_scores(n.inputs[0]) else 1 if _is_scores(n.inputs[1]) else None
            if i is None or list(n.inputs[i].shape) != list(s.value.shape):
                return False
            s.masks.append(n.inputs[1 - i])
            s.value = n.inputs[i]
        elif n.op == "Where" and plain and _excludes(n, s.value):
            s.masks.append((n.inputs[0], n.inputs[2]))
            s.value = n.inputs[1]
        elif n.op == "Reshape" and s.value.rank == 4 and n.inputs[0].rank == 3:
            s.value, s.flat = n.inputs[0], True
        elif n.op not in ("Mul", "Div") or not _take_scale(s):
            return False
    product = s.value.producer
    return product is not None and product.op == "MatMul" and len(product.inputs) == 2


def _excludes(where: BoundNode, value: Value) -> bool:
    """Whether a Where is a mask: Where(condition, scores, a very low number)."""
    low = number(where.inputs[2]) if where.inputs[2].constant else None
    return low is not None and low < LOW and list(where.inputs[1].shape) == list(value.shape)


def _take_scale(s: _Scores) -> bool:
    """Takes a multiplication by a number, or a soft cap, into the scores; False: it is neither."""
    x, factor = split_scalar(s.value, "Mul", "Div")
    if x is s.value:
        return False
    if op_of(x) == "Tanh" and not s.softcap and s.scale == 1.0:
        s.softcap = factor
        assert x.producer is not None
        x, inner = split_scalar(x.producer.inputs[0], "Mul", "Div")
        s.scale = inner * s.softcap
        if factor <= 0:
            return False
    else:
        s.scale *= factor
    s.value = x
    return True


def _operands(
    r: Rewriter, at: BoundNode, s: _Scores, shape: Sequence[Any]
) -> tuple[Value, Value, Value] | None:
    """(q, k, v) as [batch, heads, length, dim], with keys and values without the copies that repeat
    shared heads; None where they do not fit.

    Args:
        r: the rewriter.
        at: the product with v.
        s: the scores, walked to the product of q and k; their scale takes those of q and k.
        shape: [batch, heads, q_len, kv_len].
    """
    product: Any = s.value.producer
    q, factor = split_scalar(product.inputs[0], "Mul", "Div")
    s.scale *= factor
    k, factor = split_scalar(product.inputs[1], "Mul", "Div")
    s.scale *= factor
    if q.rank not in (3, 4) or q.rank != k.rank:
        return None
    batch, heads, q_len, kv_len = shape
    if q.rank == 3 and (not s.flat or q.shape[0] != batch * heads):
        return None
    v = at.inputs[1]
    perm = list(range(k.rank - 2)) + [k.rank - 1, k.rank - 2]
    k = _source(k)
    if k.producer is None or k.producer.op != "Transpose" or k.producer.attr("perm") != perm:
        k = r.transpose(at, k, perm)
    else:
        k = k.producer.inputs[0]
    if q.rank == 3:
        together = [batch * heads, kv_len]
        if any(x.rank != 4 and list(x.shape[:-1]) != together for x in (k, v)):
            return None  # the products broadcast
        q = r.reshape(at, q, [batch, heads, q_len, q.shape[-1]])
        k = _unflatten(r, at, k, [batch, heads, kv_len, k.shape[-1]])
        v = _unflatten(r, at, v, [batch, heads, kv_len, v.shape[-1]])
    else:
        k = _unflatten(r, at, k, k.shape)
    k, v = _shared(k), _shared(v)
    return (q, k, v) if k.shape[1] == v.shape[1] else None


def _masks(
    r: Rewriter,
    at: BoundNode,
    s: _Scores,
    shape: Sequence[Any],
    attrs: dict[str, Any],
    made: dict[tuple[int, int, bool], Value],
) -> list[Value] | None:
    """The masks as inputs of Attention; None where one does not fit.

    A causal mask becomes attributes: the kernel leaves out keys instead of adding numbers to them.
    """
    batch, heads, q_len, kv_len = shape
    if len(s.masks) == 1:
        past = causal_past(s.masks[0], q_len, kv_len)
        if past is not None:
            attrs.update(causal=1, past=past)
            return []
    out = []
    for mask in reversed(s.masks):
        m: Value | None = added_mask(r, at, mask, made, len(s.masks) == 1)
        if m is not None and m.rank == 3 and s.flat:
            m = as_four_dimensions(r, at, m, batch, heads)
        if m is None:
            return None
        out.append(m)
    return out


def _replace(
    r: Rewriter,
    at: BoundNode,
    inputs: list[Value],
    attrs: dict[str, Any],
    shape: Sequence[Any] | None,
) -> None:
    """Makes the product with v an Attention.

    Args:
        r: the rewriter.
        at: the product.
        inputs, attrs: of Attention.
        shape: of Attention's output, where the product's output has other dimensions.
    """
    if shape is None:
        r.become(at, "Attention", "edgewise", inputs, **attrs)
        return
    out = at.outputs[0]
    back = r.only_user(out)
    if back is not None and back.op == "Reshape" and list(back.outputs[0].shape) == list(shape):
        r.become(back, "Attention", "edgewise", inputs, **attrs)
        return
    y = r.insert(at, "Attention", "edgewise", inputs, FLOAT, shape, **attrs)
    dims = Value("shape", INT64, [3], numbers=list(out.shape))
    r.become(at, "Reshape", "", [y, dims], allowzero=1)


def _is_scores(v: Value) -> bool:
    """Whether a value comes from a matrix product through scaling, masks and reshapes."""
    for _ in range(MAX_NODES):
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
            same = [i for i in n.inputs if not i.constant and list(i.shape) == list(v.shape)]
            scores = next((i for i in same if _is_scores(i)), None)
            if scores is None:
                return False
            v = scores
        else:
            return False
    return False


def _source(v: Value) -> Any:
    """k after Reshape(Transpose(Reshape(k))) that only swaps the last two axes: as such a swap.

    Other values are returned as they are.
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
    """A value with its last two axes swapped: stands for the output of a Transpose."""

    def __init__(self, value: Value, like: Value) -> None:
        self.shape, self.rank, self.dtype = like.shape, like.rank, like.dtype
        self.producer = _SwapNode(value)


class _SwapNode:
    """Stands for that Transpose."""

    op = "Transpose"

    def __init__(self, value: Value) -> None:
        self.inputs = [value]

    def attr(self, name: str, default: Any = None) -> list[int]:
        rank = self.inputs[0].rank
        return list(range(rank - 2)) + [rank - 1, rank - 2]


def _unflatten(r: Rewriter, at: BoundNode, v: Value, shape: Sequence[Any]) -> Value:
    """v as `shape`, through the Reshape that flattened it where there is one."""
    if list(v.shape) == list(shape):
        return v
    n = v.producer
    if n is not None and n.op == "Reshape" and list(n.inputs[0].shape) == list(shape):
        return n.inputs[0]
    return r.reshape(at, v, shape)


def _shared(v: Value) -> Value:
    """x after Reshape(Expand(Unsqueeze(x))), which repeats each head for its group of queries.

    Other values are returned as they are.
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


def _merge_heads(r: Rewriter, node: BoundNode) -> None:
    """Attention, Transpose, Reshape to [batch, seq, heads * dim] become one Attention that writes
    this layout.
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
        dims = Value("shape", INT64, [2], numbers=list(out.shape))
        r.become(m, "Reshape", "", [merged, dims], allowzero=1)
        return
    r.become(m, "Attention", "edgewise", node.inputs, **{**node.attrs, "merged": 1})
