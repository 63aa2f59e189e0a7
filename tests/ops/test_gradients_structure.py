"""Gradients of products, attention, movement, indexing and reductions against PyTorch's."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from passes.graphs import Graph
from passes.test_rotary import rotary, tables

from .gradients import gradients, node_model

MS = "com.microsoft"
R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def check(engine, op, inputs, reference, tol=1e-4, outputs=1, **more):
    """reference(*inputs): the outputs by PyTorch, floats as tensors that want gradients, everything
    else as NumPy has it.
    """
    model, feeds = node_model(op, inputs, outputs=outputs, **more)
    got, grads, seeds, plan = gradients(model, feeds, engine)
    tensors = [
        torch.tensor(x, requires_grad=True) if f"x{i}" in feeds else x for i, x in enumerate(inputs)
    ]
    expected = reference(*tensors)
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    loss = sum(
        (y * torch.tensor(seeds[f"y{i}"])).sum() for i, y in enumerate(expected) if f"y{i}" in seeds
    )
    loss.backward()
    for i, y in enumerate(expected):
        assert got[f"y{i}"].shape == tuple(y.shape)
        close(got[f"y{i}"], y.detach().numpy(), tol, f"output {i}")
    for name, dx in grads.items():
        want = tensors[int(name[1:])].grad
        if dx is None:
            assert want is None or not want.any(), f"no gradient of {name}"
        else:
            close(
                dx,
                np.zeros_like(feeds[name]) if want is None else want.numpy(),
                tol,
                f"gradient of {name}",
            )
    return plan


def close(got, want, tol, what):
    assert got.shape == want.shape, f"{what}: {got.shape} instead of {want.shape}"
    if want.size:
        scale = max(1.0, float(np.abs(want).max()))
        assert np.abs(got - want).max() <= tol * scale, (
            f"{what}: off by {np.abs(got - want).max()} of {scale}"
        )


PRODUCTS = [
    ((3, 4), (4, 5)),
    ((1, 37), (37, 65)),
    ((65, 33), (33, 129)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 1, 2, 4), (5, 4, 6)),
    ((2, 3, 4, 5, 6), (2, 3, 4, 6, 3)),
    ((1, 2, 1, 3, 4), (5, 1, 6, 4, 2)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((2, 0, 3), (2, 3, 4)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((3, 4), (2, 4, 5)),
]


@pytest.mark.parametrize("a, w", PRODUCTS, ids=str)
def test_matmul(engine, a, w):
    check(engine, "MatMul", [f(*a), f(*w)], torch.matmul)


@pytest.mark.parametrize("ta", (0, 1))
@pytest.mark.parametrize("tb", (0, 1))
def test_fused_matmul(engine, ta, tb):
    def turned(x, t):
        return x.transpose(-1, -2) if t else x

    for a, w in ((3, 40), (40, 50)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)):
        a, w = (x.swapaxes(-1, -2).copy() if t else x for x, t in ((f(*a), ta), (f(*w), tb)))
        check(
            engine,
            "FusedMatMul",
            [a, w],
            lambda a, w: 0.5 * turned(a, ta) @ turned(w, tb),
            domain=MS,
            transA=ta,
            transB=tb,
            alpha=0.5,
        )


@pytest.mark.parametrize("ta", (0, 1))
@pytest.mark.parametrize("tb", (0, 1))
@pytest.mark.parametrize("c", [None, (50,), (3, 1), (1, 50), (3, 50), ()], ids=str)
def test_gemm(engine, ta, tb, c):
    def product(a, w, c=None):
        y = 0.5 * (a.T if ta else a) @ (w.T if tb else w)
        return y if c is None else y - 2 * c

    check(
        engine,
        "Gemm",
        [f(40, 3) if ta else f(3, 40), f(50, 40) if tb else f(40, 50)]
        + ([f(*c)] if c is not None else []),
        product,
        transA=ta,
        transB=tb,
        alpha=0.5,
        beta=-2.0,
    )


def test_weight_of_batches_is_one_product(engine):
    """No batched product with a sum behind it, no copy to transpose."""
    plan = check(engine, "MatMul", [f(4, 16, 24), f(24, 40)], torch.matmul)
    assert plan.kernels == ["gemm"] * 3


# ---- attention ----


def sdpa(q, k, v, mask=None, causal=False, scale=None, softcap=0.0, window=0):
    """Attention spelt out, with shared heads, a window and a soft cap; a mask is added or, bool,
    says where to look.
    """
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None:
        s = (
            s.masked_fill(~torch.as_tensor(mask), -np.inf)
            if getattr(mask, "dtype", None) in (np.bool_, torch.bool)
            else s + mask
        )
    if causal:
        i, j = torch.arange(s.shape[-2])[:, None], torch.arange(s.shape[-1])[None]
        allowed = j <= i + (causal - 1)
        if window:
            allowed &= j > i + (causal - 1) - window
        s = s.masked_fill(~allowed, -np.inf)
    return torch.softmax(s, -1) @ v


SHAPES = {
    "plain": {},
    "grouped": {"kv": 2},
    "cross": {"q_len": 3, "kv_len": 7, "kv": 1, "v_dim": 6},
    "one": {"batch": 1, "heads": 3, "kv": 1, "q_len": 1, "kv_len": 5},
    "blocks": {
        "batch": 1,
        "heads": 4,
        "kv": 2,
        "q_len": 300,
        "kv_len": 300,
        "dim": 16,
        "v_dim": 16,
    },
}


def qkv(batch=2, heads=4, kv=4, q_len=5, kv_len=5, dim=8, v_dim=8):
    return f(batch, heads, q_len, dim), f(batch, kv, kv_len, dim), f(batch, kv, kv_len, v_dim)


@pytest.mark.parametrize("shape", SHAPES)
def test_attention(engine, shape):
    q, k, v = qkv(**SHAPES[shape])
    new = {"opset": 23}
    q_len, kv_len = q.shape[2], k.shape[2]
    check(engine, "Attention", [q, k, v], sdpa, **new)
    check(
        engine,
        "Attention",
        [q, k, v],
        lambda q, k, v: sdpa(q, k, v, scale=0.3, softcap=2.0),
        scale=0.3,
        softcap=2.0,
        **new,
    )
    for mask in (
        f(q_len, kv_len),
        f(q.shape[0], 1, q_len, kv_len),
        f(q.shape[0], q.shape[1], q_len, kv_len),
        f(q.shape[1], 1, kv_len),
    ):
        check(engine, "Attention", [q, k, v, mask], sdpa, **new)
    check(
        engine,
        "Attention",
        [q, k, v, f(q_len, kv_len)],
        lambda q, k, v, m: sdpa(q, k, v, m, softcap=3.0),
        softcap=3.0,
        **new,
    )
    mask = R.random((q.shape[0], 1, q_len, kv_len)) < 0.5
    mask[..., 0] = True
    check(engine, "Attention", [q, k, v, mask], sdpa, **new)
    if q_len == kv_len:
        check(
            engine,
            "Attention",
            [q, k, v],
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            ),
            is_causal=1,
            **new,
        )
        check(
            engine,
            "Attention",
            [q, k, v, f(q.shape[0], 1, q_len, kv_len)],
            lambda q, k, v, m: sdpa(q, k, v, m, 1, softcap=2.0),
            is_causal=1,
            softcap=2.0,
            **new,
        )


@pytest.mark.parametrize("left, right", [(-1, 1), (2, -1), (2, 1), (3, 0), (0, 0)])
def test_attention_windows(engine, left, right):
    """At three kinds of places: those of the queries alone, behind a past, and where each row's
    length says.
    """

    def allowed(q_len, kv_len, past):
        at, j = torch.arange(q_len)[:, None] + past, torch.arange(kv_len)[None]
        return (
            (left < 0) | (j >= at - left) & ((right < 0) | (j <= at + right))
            if left >= 0
            else j <= at + right
        )

    attrs = {"left_window_size": left, "right_window_size": right, "opset": 25}
    q, k, v = qkv(kv=2, q_len=150, kv_len=150)
    check(
        engine, "Attention", [q, k, v], lambda q, k, v: sdpa(q, k, v, allowed(150, 150, 0)), **attrs
    )
    q, k, v = qkv(kv=2, q_len=3, kv_len=3)
    check(
        engine,
        "Attention",
        [q, k, v, None, f(2, 2, 4, 8), f(2, 2, 4, 8)],
        lambda q, k, v, _, pk, pv: (
            sdpa(q, torch.cat([pk, k], 2), torch.cat([pv, v], 2), allowed(3, 7, 4)),
            torch.cat([pk, k], 2),
            torch.cat([pv, v], 2),
        ),
        outputs=3,
        **attrs,
    )
    q, k, v = qkv(q_len=2, kv_len=9)
    lengths = np.array([5, 9])
    mask = torch.stack([allowed(2, 9, n - 2) & (torch.arange(9) < n) for n in lengths])[:, None]
    check(
        engine,
        "Attention",
        [q, k, v, None, None, None, lengths],
        lambda q, k, v, *_: sdpa(q, k, v, mask),
        **attrs,
    )


def heads_of(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def flat(x):
    return x.transpose(1, 2).flatten(2)


def test_attention_flat_with_past(engine):
    def reference(q, k, v, _, pk, pv):
        k, v = torch.cat([pk, heads_of(k, 2)], 2), torch.cat([pv, heads_of(v, 2)], 2)
        return flat(sdpa(heads_of(q, 4), k, v, causal=5)), k, v

    check(
        engine,
        "Attention",
        [f(2, 3, 32), f(2, 3, 16), f(2, 3, 12), None, f(2, 2, 4, 8), f(2, 2, 4, 6)],
        reference,
        outputs=3,
        q_num_heads=4,
        kv_num_heads=2,
        is_causal=1,
        opset=23,
    )


def test_nothing_to_attend_to_has_no_gradient(engine):
    q, k, v = qkv()
    mask = np.ones((2, 1, 5, 5), bool)
    mask[1, 0, 3:] = False
    model, feeds = node_model("Attention", [q, k, v, mask], opset=23)
    dy = f(2, 4, 5, 8)
    dy[1, :, 3:] = 0
    _, grads, _, _ = gradients(model, feeds, engine, seeds={"y0": dy})
    assert all(np.isfinite(x).all() for x in grads.values())


@pytest.mark.parametrize("packed", (False, True))
@pytest.mark.parametrize("rotary", (None, 0, 1))
@pytest.mark.parametrize(
    "more",
    [{}, {"local_window_size": 4}, {"softcap": 1.5, "scale": 0.2}, {"bias": True}, {"ids": True}],
    ids=str,
)
def test_group_query_attention(engine, packed, rotary, more):
    more = dict(more)
    batch, heads, kv, length, dim = 2, 4, 2, 9, 8
    bias = [f(1, 1, length, length)] if more.pop("bias", False) else [None]
    ids = (
        R.integers(0, 20, (batch, length))
        if more.pop("ids", False) and rotary is not None
        else None
    )
    q, k, v = (f(batch, length, n * dim) for n in (heads, kv, kv))
    tables = [f(20, dim // 2), f(20, dim // 2)] if rotary is not None else [None, None]
    ints = [np.full(batch, length - 1, np.int32), np.array(length, np.int32)]
    inputs = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]

    def turn(x, cos, sin):
        at = torch.arange(length)[None] if ids is None else torch.as_tensor(ids)
        cos, sin = cos[at][:, None], sin[at][:, None]
        a, b = (x[..., 0::2], x[..., 1::2]) if rotary else x.chunk(2, -1)
        y = a * cos - b * sin, b * cos + a * sin
        return torch.stack(y, -1).flatten(-2) if rotary else torch.cat(y, -1)

    def reference(q, k, v, *rest):
        cos, sin, bias = rest[4], rest[5], rest[7]
        if packed:
            q, k, v = q.split([heads * dim, kv * dim, kv * dim], 2)
        q, k, v = heads_of(q, heads), heads_of(k, kv), heads_of(v, kv)
        if rotary is not None:
            q, k = turn(q, cos, sin), turn(k, cos, sin)
        return (
            flat(
                sdpa(
                    q,
                    k,
                    v,
                    bias,
                    1,
                    more.get("scale"),
                    more.get("softcap", 0.0),
                    more.get("local_window_size", 0),
                )
            ),
            k,
            v,
        )

    attrs = {"do_rotary": 1, "rotary_interleaved": rotary} if rotary is not None else {}
    check(
        engine,
        "GroupQueryAttention",
        [*inputs, None, None, *ints, *tables, ids, *bias],
        reference,
        outputs=3,
        domain=MS,
        num_heads=heads,
        kv_num_heads=kv,
        **attrs,
        **more,
    )


def test_multi_head_attention(engine):
    q, k, v = f(2, 5, 32), f(2, 7, 32), f(2, 7, 24)
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [1] * 7], np.int32)
    more = {"domain": MS, "num_heads": 4}

    def reference(q, k, v, _=None, mask=None, bias=None, causal=False):
        m = None if mask is None else torch.tensor((1 - mask) * -10000.0).float()[:, None, None]
        m = bias if m is None else m if bias is None else m + bias
        return flat(sdpa(heads_of(q, 4), heads_of(k, 4), heads_of(v, 4), m, causal))

    check(engine, "MultiHeadAttention", [q, k, v], reference, **more)
    check(engine, "MultiHeadAttention", [q, k, v, None, mask], reference, **more)
    check(engine, "MultiHeadAttention", [q, k, v, None, None, f(1, 4, 5, 7)], reference, **more)
    check(
        engine,
        "MultiHeadAttention",
        [q, f(2, 4, 7, 8), f(2, 4, 7, 8)],
        lambda q, k, v: flat(sdpa(heads_of(q, 4), k, v)),
        **more,
    )
    check(
        engine,
        "MultiHeadAttention",
        [f(2, 5, 4, 3, 8)],
        lambda x: reference(*(x[:, :, :, i].flatten(2) for i in range(3)), causal=True),
        unidirectional=1,
        **more,
    )
    check(
        engine,
        "MultiHeadAttention",
        [q, f(2, 7, 4, 2, 8)],
        lambda q, x: reference(q, *(x[:, :, :, i].flatten(2) for i in range(2))),
        **more,
    )


@pytest.mark.parametrize("interleaved", (0, 1))
def test_rotary_embedding(engine, interleaved):
    def turned(x, cos, sin, half):
        x, rest = x[..., : 2 * half], x[..., 2 * half :]
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        y = a * cos - b * sin, b * cos + a * sin
        return torch.cat(
            [torch.stack(y, -1).flatten(-2) if interleaved else torch.cat(y, -1), rest], -1
        )

    ids = R.integers(0, 20, (2, 5))
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 3, 5, 8), f(20, 4), f(20, 4), ids],
        lambda x, c, s, i: turned(x, c[i][:, None], s[i][:, None], 4),
        opset=23,
        interleaved=interleaved,
    )
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 5, 30), f(2, 5, 2), f(2, 5, 2)],
        lambda x, c, s: flat(turned(heads_of(x, 3), c[:, None], s[:, None], 2)),
        opset=23,
        interleaved=interleaved,
        num_heads=3,
        rotary_embedding_dim=4,
    )
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 5, 24), np.array([4]), f(20, 4), f(20, 4)],
        lambda x, i, c, s: flat(turned(heads_of(x, 3), c[4:9], s[4:9], 4)),
        domain=MS,
        interleaved=interleaved,
        num_heads=3,
    )
    check(
        engine,
        "RotaryEmbedding",
        [f(2, 3, 5, 8), ids, f(20, 4), f(20, 4)],
        lambda x, i, c, s: turned(x, c[i][:, None], s[i][:, None], 4),
        domain=MS,
        interleaved=interleaved,
    )


# ---- movement, shapes, indexing, reductions ----


@pytest.mark.parametrize(
    "op, inputs, reference, more",
    [
        ("Transpose", [f(2, 3, 4)], lambda x: x.permute(1, 2, 0), {"perm": [1, 2, 0]}),
        ("Transpose", [f(2, 3, 4)], lambda x: x.permute(2, 1, 0), {}),
        ("Reshape", [f(2, 3, 4), np.array([4, -1])], lambda x, s: x.reshape(4, 6), {}),
        ("Flatten", [f(2, 3, 4)], lambda x: x.flatten(1), {}),
        ("Squeeze", [f(2, 1, 4), np.array([1])], lambda x, a: x[:, 0], {}),
        ("Unsqueeze", [f(2, 4), np.array([0, 2])], lambda x, a: x[None, :, None], {}),
        ("Expand", [f(3, 1), np.array([2, 3, 4])], lambda x, s: x.expand(2, 3, 4), {}),
        ("Tile", [f(2, 3), np.array([2, 3])], lambda x, s: x.tile(2, 3), {}),
        ("Concat", [f(2, 3), f(2, 1), f(2, 4)], lambda *x: torch.cat(x, 1), {"axis": -1}),
        (
            "Slice",
            [f(5, 6), np.array([1, -1]), np.array([4, -100]), np.array([0, 1]), np.array([2, -2])],
            lambda x, *_: x[1:4:2].flip(1)[:, ::2],
            {},
        ),
        (
            "Slice",
            [f(5, 6), np.array([1]), np.array([3]), np.array([1])],
            lambda x, *_: x[:, 1:3],
            {},
        ),
        (
            "Pad",
            [f(3, 4), np.array([1, 2, 3, 4])],
            lambda x, p: torch.nn.functional.pad(x, (2, 4, 1, 3)),
            {},
        ),
        (
            "Pad",
            [f(3, 4), np.array([1, -1, -1, 4]), f()],
            lambda x, p, c: torch.cat([torch.cat([c.expand(1, 3), x[:2, 1:]]), c.expand(3, 4)], 1),
            {},
        ),
        ("Trilu", [f(2, 4, 5), np.array(1)], lambda x, k: x.triu(1), {}),
        ("Trilu", [f(2, 4, 5)], lambda x: x.tril(), {"upper": 0}),
        (
            "Gather",
            [f(5, 6), np.array([[0, 4, -1], [0, 0, 2]])],
            lambda x, i: x[torch.as_tensor(i)],
            {},
        ),
        (
            "Gather",
            [f(3, 5, 2), np.array([[0, 4, -1], [0, 0, 2]])],
            lambda x, i: x[:, torch.as_tensor(i)],
            {"axis": 1},
        ),
        ("Gather", [f(3, 5, 2), np.array(-2)], lambda x, i: x[:, -2], {"axis": 1}),
        (
            "GatherElements",
            [f(5, 6), R.integers(-5, 5, (3, 4))],
            lambda x, i: x.gather(0, torch.as_tensor(i % 5)),
            {},
        ),
        (
            "GatherElements",
            [f(5, 6), R.integers(-6, 6, (5, 9))],
            lambda x, i: x.gather(1, torch.as_tensor(i % 6)),
            {"axis": 1},
        ),
        (
            "GatherND",
            [f(3, 4, 5), R.integers(-3, 3, (2, 3, 2))],
            lambda x, i: x[i[..., 0], i[..., 1]],
            {},
        ),
        (
            "GatherND",
            [f(3, 4, 5), R.integers(-4, 4, (3, 2, 1))],
            lambda x, i: torch.stack([a[k[:, 0]] for a, k in zip(x, i)]),
            {"batch_dims": 1},
        ),
        (
            "ScatterElements",
            [f(5, 6), R.permutation(5)[:3, None].repeat(4, 1), f(3, 4)],
            lambda x, i, u: x.scatter(0, torch.as_tensor(i), u),
            {},
        ),
        (
            "ScatterND",
            [f(5, 6), np.array([[4], [0]]), f(2, 6)],
            lambda x, i, u: x.index_copy(0, torch.tensor([4, 0]), u),
            {},
        ),
        (
            "ScatterND",
            [f(5, 6), np.array([[4, 1], [0, -1]]), f(2)],
            lambda x, i, u: x.index_put((torch.tensor([4, 0]), torch.tensor([1, 5])), u),
            {},
        ),
        (
            "ScatterND",
            [f(5, 6), np.array([[4], [0], [4]]), f(3, 6)],
            lambda x, i, u: x.index_add(0, torch.tensor([4, 0, 4]), u),
            {"reduction": "add"},
        ),
        ("TopK", [f(3, 9), np.array([4])], lambda x, k: x.topk(4).values, {}),
        (
            "TopK",
            [f(9, 3), np.array([4])],
            lambda x, k: x.topk(4, 0, largest=False).values,
            {"axis": 0, "largest": 0},
        ),
        *[
            (
                "CumSum",
                [f(3, 7), np.array(1)],
                lambda x, a, e=e, r=r: cumsum(x, e, r),
                {"exclusive": e, "reverse": r},
            )
            for e in (0, 1)
            for r in (0, 1)
        ],
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_structure(engine, op, inputs, reference, more):
    check(engine, op, inputs, reference, **more)


def cumsum(x, exclusive, reverse):
    x = x.flip(1) if reverse else x
    y = x.cumsum(1) - (x if exclusive else 0)
    return y.flip(1) if reverse else y


@pytest.mark.parametrize(
    "how, torch_name", [("add", "sum"), ("mul", "prod"), ("min", "amin"), ("max", "amax")]
)
def test_scatter_reductions(engine, how, torch_name):
    i = R.integers(0, 5, (8, 4))
    u = f(8, 4)
    if how == "mul":  # one zero at a place, and two at another
        i[:3, 0], u[:2, 0], i[3:, 0] = 1, 0, 2
        u[3, 0] = 0
    check(
        engine,
        "ScatterElements",
        [f(5, 4), i, u],
        lambda x, i, u: x.scatter_reduce(0, torch.as_tensor(i), u, torch_name),
        opset=18,
        reduction=how,
    )
    places = np.stack([i, np.broadcast_to(np.arange(4), i.shape)], -1)
    check(
        engine,
        "ScatterND",
        [f(5, 4), places, u],
        lambda x, p, u: x.scatter_reduce(0, torch.as_tensor(i), u, torch_name),
        opset=18,
        reduction=how,
    )


def test_split(engine):
    check(
        engine,
        "Split",
        [f(2, 7), np.array([3, 0, 4])],
        lambda x, s: x.split([3, 0, 4], 1),
        outputs=3,
        axis=1,
    )
    model, feeds = node_model("Split", [f(2, 7), np.array([3, 4])], outputs=2, axis=1)
    dy = f(2, 4)
    _, grads, _, _ = gradients(model, feeds, engine, seeds={"y1": dy})  # one part is not used
    assert np.array_equal(grads["x0"], np.concatenate([np.zeros((2, 3), np.float32), dy], 1))


REDUCTIONS = {
    "Sum": lambda x, d, k: x.sum(d, keepdim=k),
    "Mean": lambda x, d, k: x.mean(d, keepdim=k),
    "Max": lambda x, d, k: x.amax(d, keepdim=k),
    "Min": lambda x, d, k: x.amin(d, keepdim=k),
    "L1": lambda x, d, k: x.abs().sum(d, keepdim=k),
    "L2": lambda x, d, k: torch.linalg.vector_norm(x, dim=d, keepdim=k),
    "SumSquare": lambda x, d, k: (x * x).sum(d, keepdim=k),
    "LogSum": lambda x, d, k: x.abs().sum(d, keepdim=k).log(),
    "LogSumExp": lambda x, d, k: x.logsumexp(d, keepdim=k),
    "Prod": lambda x, d, k: product_over(x, d, k),
}


def product_over(x, dims, keep):
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim=keep)
    return x


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(engine, name):
    for dims in ((1,), (0, 2), (0, 1, 2)):
        for keep in (0, 1):
            x = np.abs(f(3, 4, 5)) if name == "LogSum" else f(3, 4, 5)
            if name in ("Max", "Min", "L2"):
                x[1], x[2, :, 0] = 1, 0
                x[:, 1, 1] = x[:, 2, 1] = x[0, 0, 1] = 4 if name == "Max" else -4  # ties
            if name == "L2":
                x[:, 2] = 0
            if name == "Prod":
                x[0, 1], x[2, :2, 3] = 0, 0
                x[1, 1, 1] = 0
            check(
                engine,
                f"Reduce{name}",
                [x, np.array(dims)],
                lambda x, d: REDUCTIONS[name](x, dims, bool(keep)),
                keepdims=keep,
                opset=18,
            )
    check(
        engine,
        f"Reduce{name}",
        [np.abs(f(3, 4)) + 0.1],
        lambda x: REDUCTIONS[name](x, (1,), False),
        axes=[-1],
        keepdims=0,
        opset=11,
    )


# ---- quantized weights ----


def unpacked(w, bits, k):
    """[N, K] numbers of bytes [N, ...] that hold `bits` wide ones, low first."""
    parts = np.stack([w.reshape(len(w), -1) >> s & (1 << bits) - 1 for s in range(0, 8, bits)], -1)
    return parts.reshape(len(w), -1)[:, :k].astype(np.float32)


@pytest.mark.parametrize("bits", (2, 4, 8))
@pytest.mark.parametrize("zeros", (None, "packed", "float"))
@pytest.mark.parametrize(
    "rows, k, cols, block",
    [((1,), 64, 48, 32), ((5,), 100, 17, 16), ((2, 17), 130, 9, 64), ((33,), 300, 700, 32)],
)
def test_matmul_nbits(engine, bits, zeros, rows, k, cols, block):
    blocks = -(-k // block)
    w, scales, bias = (
        R.integers(0, 256, (cols, blocks, block * bits // 8), np.uint8),
        np.abs(f(cols, blocks)) * 0.05,
        f(cols),
    )
    z = {
        None: None,
        "packed": R.integers(0, 256, (cols, -(-blocks * bits // 8)), np.uint8),
        "float": (f(cols, blocks) + 2).astype(np.float32),
    }[zeros]
    zero = (
        np.full((cols, blocks), 2.0 ** (bits - 1))
        if z is None
        else unpacked(z, bits, blocks)
        if zeros == "packed"
        else z
    )
    dense = (unpacked(w, bits, k) - zero.repeat(block, 1)[:, :k]) * scales.repeat(block, 1)[:, :k]
    check(
        engine,
        "MatMulNBits",
        [f(*rows, k), w, scales, z, None, bias],
        lambda a, w, s, z, g, bias: a @ torch.tensor(dense.T.astype(np.float32)) + bias,
        domain=MS,
        fixed=(2, 3),
        K=k,
        N=cols,
        bits=bits,
        block_size=block,
    )


@pytest.mark.parametrize("kind", (0, 1))
def test_matmul_bnb4(engine, kind):
    k, cols, block = 128, 7, 32
    w, absmax = R.integers(0, 256, cols * k // 2).astype(np.uint8), np.abs(f(cols * k // block))
    attrs = {
        "domain": MS,
        "fixed": (2,),
        "K": k,
        "N": cols,
        "block_size": block,
        "quant_type": kind,
    }
    model, feeds = node_model("MatMulBnb4", [np.eye(k, dtype=np.float32), w, absmax], **attrs)
    dense = torch.tensor(gradients(model, feeds, engine)[0]["y0"])  # what it multiplies by
    check(engine, "MatMulBnb4", [f(11, k), w, absmax], lambda a, w, s: a @ dense, **attrs)


def graph_model(nodes, feeds, constants, output="y0"):
    inputs = [helper.make_tensor_value_info(n, 1, x.shape) for n, x in feeds.items()]
    graph = helper.make_graph(
        [helper.make_node(op, i, o, **a) for op, i, o, a in nodes],
        "case",
        inputs,
        [helper.make_tensor_value_info(output, 1, None)],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "dtype, zero",
    [("int8", 0), ("int8", 3), ("uint8", 128), ("uint8", "columns"), ("int8", None)],
    ids=str,
)
@pytest.mark.parametrize("columns", (False, True))
@pytest.mark.parametrize("k, n", [(40, 50), (7, 5), (300, 700)])
def test_dynamically_quantized_product(engine, dtype, zero, columns, k, n):
    """As onnxruntime's quantize_dynamic writes it: straight through to the activations, by the
    weights as they are, which stay bytes.
    """
    low = -128 if dtype == "int8" else 0
    w = R.integers(low, low + 256, (k, n)).astype(dtype)
    scale = (np.abs(f(n)) * 0.01 if columns else np.float32(0.01)).astype(np.float32)
    zeros = (
        R.integers(100, 150, n).astype(dtype)
        if zero == "columns"
        else None
        if zero is None
        else np.array(zero, dtype)
    )
    feeds = {"x": f(2, 9, k)}
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["a", "as", "az"], {}),
        ("MatMulInteger", ["a", "w", "az"] + (["wz"] if zeros is not None else []), ["i"], {}),
        ("Cast", ["i"], ["c"], {"to": 1}),
        ("Mul", ["as", "ws"], ["s"], {}),
        ("Mul", ["c", "s"], ["y0"], {}),
    ]
    model = graph_model(
        nodes, feeds, {"w": w, "ws": scale, **({"wz": zeros} if zeros is not None else {})}
    )
    _, grads, seeds, plan = gradients(model, feeds, engine)
    dense = (w.astype(np.float32) - (0 if zeros is None else zeros.astype(np.float32))) * scale
    close(grads["x"], seeds["y0"] @ dense.T, 1e-4, "gradient of x")
    assert not [s for s in plan.slots if s.kind == "computed" and s.nbytes > 2 * k * n], (
        "the weights stay bytes, packed"
    )


@pytest.mark.parametrize("per_axis", (False, True))
def test_quantize_dequantize(engine, per_axis):
    x, scale = f(3, 4, 5) * 3, np.abs(f(4)) * 0.02 + 0.01 if per_axis else np.float32(0.02)
    zero = R.integers(-20, 20, 4).astype(np.int8) if per_axis else np.int8(7)
    feeds = {"x": x, "s": np.asarray(scale)}
    model = graph_model(
        [
            ("QuantizeLinear", ["x", "s", "z"], ["q"], {"axis": 1}),
            ("DequantizeLinear", ["q", "s", "z"], ["y0"], {"axis": 1}),
        ],
        feeds,
        {"z": zero},
    )
    got, grads, seeds, _ = gradients(model, feeds, engine)
    tx, ts = torch.tensor(x, requires_grad=True), torch.tensor(scale, requires_grad=True)
    tz = torch.tensor(zero.astype(np.float32 if per_axis else np.int32))
    y = (
        torch._fake_quantize_learnable_per_channel_affine(tx, ts, tz, 1, -128, 127, 1.0)
        if per_axis
        else torch._fake_quantize_learnable_per_tensor_affine(
            tx, ts.reshape(1), tz.float().reshape(1), -128, 127, 1.0
        )
    )
    (y * torch.tensor(seeds["y0"])).sum().backward()
    close(got["y0"], y.detach().numpy(), 1e-5, "output")
    close(grads["x"], tx.grad.numpy(), 1e-5, "gradient of x")
    assert (tx.grad == 0).any()


@pytest.mark.parametrize(
    "shape, more",
    [((), {}), ((4,), {"axis": 1}), ((3,), {"axis": 0}), ((3, 2, 5), {"axis": 1, "block_size": 3})],
    ids=str,
)
def test_dequantize(engine, shape, more):
    q, scale = R.integers(-128, 128, (3, 4, 5)).astype(np.int8), np.abs(f(*shape))
    zero = R.integers(-9, 9, shape).astype(np.int8)

    def each(v):
        return (
            v
            if v.ndim == 0
            else (
                v.repeat_interleave(3, 1)[:, :4]
                if more.get("block_size")
                else v.reshape([-1] + [1] * (2 - more["axis"]))
            )
        )

    check(
        engine,
        "DequantizeLinear",
        [q, scale, zero],
        lambda q, s, z: (torch.tensor(q).float() - each(torch.tensor(z).float())) * each(s),
        **more,
    )


def test_fake_quant(engine):
    x, scale, zero = f(3, 40) * 30, np.float32(0.25), np.float32(100)
    check(
        engine,
        "FakeQuant",
        [x, scale, zero],
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, 0.25, 100, 0, 255),
        domain=MS,
        fixed=(1, 2),
        quant_min=0,
        quant_max=255,
    )


@pytest.mark.parametrize("kv", (4, 2))
@pytest.mark.parametrize("softcap", (0.0, 3.0))
def test_attention_as_exporters_spell_it(engine, kv, softcap):
    """Rotary embedding, shared heads, a float bias and merged heads, recognised before gradients
    are made.
    """
    B, H, S, D = 2, 4, 9, 8
    g = Graph()
    cos, sin = tables(g, D, batch=1, seq=S)
    x = [g.input(B, S, n * D) for n in (H, kv, kv)]
    bias = g.input(1, H, S, S)
    q, k, v = (
        g.Transpose(g.Reshape(a, [B, S, n, D]), perm=[0, 2, 1, 3]) for a, n in zip(x, (H, kv, kv))
    )
    q, k = rotary(g, q, cos, sin), rotary(g, k, cos, sin)
    if kv != H:
        k, v = (
            g.Reshape(g.Expand(g.unsqueeze(a, 2), [B, kv, H // kv, S, D]), [B, H, S, D])
            for a in (k, v)
        )
    s = g.Mul(g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2])), D**-0.5)
    if softcap:
        s = g.Mul(g.Tanh(g.Div(s, softcap)), softcap)
    y = g.MatMul(g.Softmax(g.Add(s, bias), axis=-1), v)
    g.output(g.Reshape(g.Transpose(y, perm=[0, 2, 1, 3]), [B, S, H * D]))
    model = onnx.load_from_string(g.model())
    got, grads, seeds, plan = gradients(model, g.feeds, engine, wrt=[*x, bias])
    assert (
        "attention" in plan.kernels
        and "rope" in plan.kernels
        and "softmax_and_grad" in plan.kernels
    )
    t = {n: torch.tensor(a, requires_grad=True) for n, a in g.feeds.items()}
    at = torch.arange(S)[:, None] * torch.tensor(1 / 10000 ** (np.arange(0, D, 2) / D)).float()
    c, sn = at.cos(), at.sin()

    def turn(a):
        lo, hi = a.chunk(2, -1)
        return torch.cat([lo * c - hi * sn, hi * c + lo * sn], -1)

    q, k, v = (heads_of(t[n], m) for n, m in zip(x, (H, kv, kv)))
    want = flat(sdpa(turn(q), turn(k), v, t[bias], softcap=softcap))
    (want * torch.tensor(next(iter(seeds.values())))).sum().backward()
    close(next(iter(v for n, v in got.items())), want.detach().numpy(), 1e-4, "output")
    for n in (*x, bias):
        close(grads[n], t[n].grad.numpy(), 1e-4, f"gradient of {n}")
