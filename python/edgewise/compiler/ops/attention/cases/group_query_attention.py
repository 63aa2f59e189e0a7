"""Test cases of ops/attention/group_query_attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..group_query_attention import gqa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


@gqa.cases
def gqa_cases(t: Toolbox) -> Cases:
    # long, but only a list of cases
    def case(
        batch: int = 1,
        heads: int = 4,
        kv: int = 2,
        q_len: int = 5,
        past: int | None = 0,
        dim: int = 16,
        packed: bool = False,
        lengths: list[int] | None = None,
        total: int | None = None,
        dtype: str = "float32",
        extra: Sequence[Any] = (),
        **attrs: Any,
    ) -> Any:
        width = (heads * dim, kv * dim, kv * dim)
        q, k, v = (
            (t.f(batch, q_len, sum(width), dtype=dtype), None, None)
            if packed
            else (t.f(batch, q_len, w, dtype=dtype) for w in width)
        )
        caches = (
            [t.f(batch, kv, past, dim, dtype=dtype) for _ in range(2)]
            if past is not None
            else [None, None]
        )
        total = total or q_len + (past or 0)
        # Rows after a row's past are not defined: onnxruntime makes them zeros.
        for row, length in enumerate(lengths or ()):
            for cache in caches:
                if cache is not None:
                    cache[row, :, max(length + 1 - q_len, 0) if total != q_len else 0 :] = 0
        tables = (
            [t.f(64, dim // 2, low=-1, high=1, dtype=dtype) for _ in range(2)]
            if attrs.get("do_rotary")
            else []
        )
        lengths = t.of("int32", lengths or [total - 1] * batch)
        inputs = [q, k, v, *caches, lengths, t.const(t.of("int32", total)), *tables]
        inputs += [None] * (9 - len(inputs)) + list(extra) if extra else []
        return t(
            *inputs,
            outputs=3,
            num_heads=heads,
            kv_num_heads=kv,
            tol=1e-4 if dtype == "float32" else 4e-3,
            **attrs,
        )

    for packed in (False, True):
        yield case(packed=packed)
        yield case(packed=packed, past=None)
        yield case(packed=packed, q_len=1, past=7)
        yield case(packed=packed, q_len=1, past=70, heads=8, kv=8, dim=32)
        yield case(packed=packed, q_len=4, past=6)
        yield case(packed=packed, batch=2)
        yield case(packed=packed, batch=2, q_len=1, past=7)
        for interleaved in (0, 1):
            yield case(packed=packed, do_rotary=1, rotary_interleaved=interleaved)
            yield case(packed=packed, do_rotary=1, rotary_interleaved=interleaved, q_len=1, past=9)
            yield case(packed=packed, do_rotary=1, rotary_interleaved=interleaved, q_len=3, past=4)
    yield case(batch=2, do_rotary=1)
    yield case(batch=2, do_rotary=1, q_len=1, past=7)
    yield case(batch=2, q_len=1, past=7, lengths=[4, 7])
    yield case(batch=3, q_len=1, past=9, lengths=[0, 9, 3], do_rotary=1, local_window_size=4)
    yield case(batch=2, q_len=1, past=7, lengths=[4, 7], extra=[None, t.f(2, 4, 1, 8)])
    for q_len, length in ((1, 4), (3, 5), (5, 4)):  # a past with room after it, as long as present
        yield case(q_len=q_len, past=12, lengths=[length], total=length + 1, do_rotary=1)
        if q_len != 3:
            yield case(batch=2, q_len=q_len, past=12, lengths=[length] * 2, total=length + 1)
    yield case(softcap=1.5)
    yield case(scale=0.1)
    for window in (1, 3, 20):
        yield case(local_window_size=window)
        yield case(local_window_size=window, q_len=1, past=9)
        yield case(local_window_size=window, q_len=3, past=9, do_rotary=1)
    yield case(q_len=40, dim=64, heads=2, kv=1)
    yield case(extra=[None, t.f(1, 1, 5, 5)])
    yield case(extra=[t.of("int64", [[0, 1, 2, 3, 4]])], do_rotary=1)
    yield case(dtype="float16")
    sink = t.f(4)
    for softcap in (0.0, 2.0):
        yield case(smooth_softmax=1, softcap=softcap)
        yield case(extra=[None, None, sink], softcap=softcap)
        yield case(extra=[None, None, sink], q_len=1, past=70, local_window_size=9, softcap=softcap)
    yield case(batch=2, q_len=1, past=7, lengths=[4, 7], extra=[None, None, sink])
    yield case(extra=[None, None, sink], smooth_softmax=1)
    for more in ({}, {"q_len": 3, "past": 6}, {"packed": True}, {"do_rotary": 1}):
        yield case(causal=0, **more)
    # inputs that onnxruntime computes on GPUs only
    x, k, v, weights = t.f(1, 5, 64), t.f(1, 5, 32), t.f(1, 5, 32), [t.f(16) + 1 for _ in range(2)]

    def normed(x: Any, w: Any) -> Any:
        y = x.reshape(1, 5, -1, 16).astype("float64")
        return (y / ((y * y).mean(-1, keepdims=True) + 1e-5) ** 0.5 * w).reshape(x.shape)

    def attended(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (
            x.reshape(1, 5, -1, 16).transpose(0, 2, 1, 3) for x in (q, k, v.astype("float64"))
        )
        k, v = k.repeat(2, 1), v.repeat(2, 1)
        s = q @ k.transpose(0, 1, 3, 2) / 4
        e = 2.718281828459045 ** (
            s - 1e30 * (t.of("float64", [[j > i for j in range(5)] for i in range(5)]))
        )
        return (
            (e / e.sum(-1, keepdims=True) @ v)
            .transpose(0, 2, 1, 3)
            .reshape(1, 5, 64)
            .astype("float32")
        )

    fed = [None, None, t.of("int32", [4]), t.const(t.of("int32", 5)), *[None] * 7, *weights]
    expected = [attended(normed(x, weights[0]), normed(k, weights[1]), v)]
    for inputs in (
        [x, k, v],
        [t.of("float32", [[[*a, *b, *c] for a, b, c in zip(x[0], k[0], v[0])]]), None, None],
    ):
        yield t(
            *inputs,
            *fed,
            num_heads=4,
            kv_num_heads=2,
            qk_norm_epsilon=1e-5,
            tol=1e-4,
            expect=expected,
            why="onnxruntime norms on GPUs only",
        )
