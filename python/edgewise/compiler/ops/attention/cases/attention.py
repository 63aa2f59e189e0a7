"""Test cases of ops/attention/attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attention import attention

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


@attention.cases
def attention_cases(t: Toolbox) -> Cases:
    # long, but only a list of cases
    def qkv(
        batch: int = 2,
        heads: int = 4,
        kv: int = 4,
        q_len: int = 5,
        kv_len: int = 5,
        dim: int = 8,
        v_dim: int = 8,
        dtype: str = "float32",
    ) -> tuple[Any, Any, Any]:
        return (
            t.f(batch, heads, q_len, dim, dtype=dtype),
            t.f(batch, kv, kv_len, dim, dtype=dtype),
            t.f(batch, kv, kv_len, v_dim, dtype=dtype),
        )

    def flat(
        batch: int = 2,
        heads: int = 4,
        kv: int = 4,
        q_len: int = 5,
        kv_len: int = 5,
        dim: int = 8,
        v_dim: int = 8,
    ) -> tuple[Any, Any, Any]:
        return (
            t.f(batch, q_len, heads * dim),
            t.f(batch, kv_len, kv * dim),
            t.f(batch, kv_len, kv * v_dim),
        )

    new = {"opset": 23, "tol": 1e-4}
    shapes: list[dict[str, Any]] = [
        {},
        {"kv": 2},
        {"kv": 1, "q_len": 1, "kv_len": 37},
        {"q_len": 33, "kv_len": 70, "dim": 16, "v_dim": 12},
        {"batch": 1, "heads": 1, "kv": 1, "dim": 64, "v_dim": 64, "q_len": 1, "kv_len": 130},
        {"batch": 1, "heads": 2, "kv": 2, "dim": 75, "v_dim": 83, "q_len": 1, "kv_len": 90},
        {"batch": 1, "heads": 4, "kv": 2, "dim": 75, "v_dim": 83, "q_len": 1, "kv_len": 90},
    ]
    for shape in shapes:
        q, k, v = qkv(**shape)
        yield t(q, k, v, **new)
        yield t(q, k, v, scale=0.3, softcap=2.0, **new)
        q_len, kv_len = q.shape[2], k.shape[2]
        yield t(q, k, v, t.f(q_len, kv_len), **new)
        yield t(q, k, v, t.f(q.shape[0], 1, q_len, kv_len), softcap=3.0, **new)
        yield t(q, k, v, t.b(q_len, kv_len) | (t.n("int64", q_len, kv_len) * 0 + 1 > 0), **new)
        mask = t.b(q.shape[0], q.shape[1], q_len, kv_len)
        mask[..., 0] = True
        yield t(q, k, v, mask, **new)
        if q_len == kv_len:
            yield t(q, k, v, is_causal=1, **new)
    q, k, v = flat()
    yield t(q, k, v, q_num_heads=4, kv_num_heads=4, **new)
    yield t(q, k, v, is_causal=1, q_num_heads=4, kv_num_heads=4, **new)
    q, k, v = flat(kv=2, q_len=3, kv_len=6)
    yield t(q, k, v, q_num_heads=4, kv_num_heads=2, **new)
    q, k, v = qkv(kv=2, q_len=3, kv_len=3)
    yield t(q, k, v, None, t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), outputs=3, **new)
    yield t(q, k, v, t.f(3, 7), t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), outputs=3, **new)
    yield t(q, k, v, None, t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), is_causal=1, outputs=3, **new)
    q, k, v = flat(kv=2, q_len=3, kv_len=3)
    yield t(
        q,
        k,
        v,
        None,
        t.f(2, 2, 4, 8),
        t.f(2, 2, 4, 8),
        q_num_heads=4,
        kv_num_heads=2,
        outputs=3,
        **new,
    )
    yield t(*qkv(dtype="float16"), opset=23, tol=4e-3)
    yield t(*qkv(q_len=0), **new)
    yield t(*qkv(q_len=3, kv_len=7), is_causal=1, **new)
    yield t(*qkv(), None, None, None, t.of("int64", [3, 5]), opset=24, tol=1e-4)
    yield t(
        *qkv(q_len=1, kv_len=9),
        None,
        None,
        None,
        t.of("int64", [4, 9]),
        opset=24,
        is_causal=1,
        tol=1e-4,
    )
    yield t(
        *qkv(q_len=2, kv_len=9), t.f(2, 9), None, None, t.of("int64", [4, 9]), opset=24, tol=1e-4
    )
    yield t(
        *qkv(q_len=2, kv_len=9),
        t.f(2, 4, 2, 6),
        None,
        None,
        t.of("int64", [4, 6]),
        opset=24,
        tol=1e-4,
    )  # a mask shorter than the keys
    yield t(
        *qkv(q_len=4), None, None, None, t.of("int64", [2, 5]), opset=24, is_causal=1, tol=1e-4
    )  # queries before the first key see nothing
    never = t.b(5, 5)
    never[0], never[1] = True, False
    yield t(*qkv(), never, opset=24, is_causal=1, tol=1e-4)
    for mode in range(4):
        scores = {
            "qk_matmul_output_mode": mode,
            "outputs": [True, False, False, True],
            "opset": 24,
            "tol": 1e-4,
            "trust": "onnx",
            "why": "onnxruntime's masks are the lowest float, not -inf",
        }
        yield t(*qkv(q_len=3, kv_len=7), t.f(2, 1, 3, 7), **scores)
        if mode != 0:  # ONNX's own reference gives capped scores in mode 0
            yield t(*qkv(kv=2), never, softcap=2.0, is_causal=1, **scores)
        yield t(
            *flat(kv=2, q_len=3, kv_len=6),
            q_num_heads=4,
            kv_num_heads=2,
            is_causal=1,
            softmax_precision=1,
            **scores,
        )
        yield t(
            *qkv(q_len=2, kv_len=9),
            t.f(2, 8),
            None,
            None,
            t.of("int64", [4, 8]),
            is_causal=1,
            **scores,
        )
        yield t(
            *qkv(kv=2, q_len=3, kv_len=3),
            t.f(3, 7),
            t.f(2, 2, 4, 8),
            t.f(2, 2, 4, 8),
            scale=0.3,
            qk_matmul_output_mode=mode,
            outputs=4,
            opset=23,
            tol=1e-4,
        )
    newest = {"opset": 25, "tol": 1e-4}
    for bounds in (
        {"left_window_size": 2},
        {"right_window_size": 1},
        {"left_window_size": 1, "right_window_size": 2},
        {"left_window_size": 0, "right_window_size": 0},
        {"left_window_size": 3, "is_causal": 1},
    ):
        yield t(*qkv(q_len=6, kv_len=6), **bounds, **newest)
        yield t(
            *qkv(q_len=2, kv_len=9),
            t.b(2, 9),
            None,
            None,
            t.of("int64", [4, 9]),
            **bounds,
            **newest,
        )
        yield t(
            *qkv(kv=2, q_len=3, kv_len=3),
            t.f(3, 7),
            t.f(2, 2, 4, 8),
            t.f(2, 2, 4, 8),
            outputs=4,
            qk_matmul_output_mode=2,
            **bounds,
            **newest,
        )
