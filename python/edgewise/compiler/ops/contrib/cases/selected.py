"""Test cases of ops/contrib/selected.py, by its definition: onnxruntime's CPU does not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..selected import selected

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

DIM, ROOM, CHOSEN = 8, 12, 4


def _turned(x: Any, place: int, tables: list[Any], first: int, interleaved: int) -> Any:
    """x [..., DIM] after its rotary embedding, of the channels from `first` on."""
    y, half = x.copy(), tables[0].shape[1]
    cos, sin = (table[place] for table in tables)
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, half + i)
        a, b = first + a, first + b
        y[..., a] = x[..., a] * cos[i] - x[..., b] * sin[i]
        y[..., b] = x[..., b] * cos[i] + x[..., a] * sin[i]
    return y


def _attended(q: Any, keys: Any, values: Any, scale: float, sink: float | None) -> Any:
    """The output of one head of one token, float64."""
    e = 2.718281828459045 ** (keys.astype("float64") @ q * scale)
    total = e.sum() + (0.0 if sink is None else 2.718281828459045**sink)
    return e @ values.astype("float64") / total if total else values.sum(0) * 0.0


@selected.cases
def selected_cases(t: Toolbox) -> Cases:
    # Over 60 lines: the definition beside its cases.
    for tokens, lengths, heads, kv, form in (
        (5, (5, 5), 4, 2, ""),
        (1, (9, 4), 4, 2, "packed rotary"),
        (3, (8,), 2, 1, "rotary norm sink"),
        (2, (2,), 2, 2, "bytes"),
        (1, (7, 3), 2, 2, "bytes rotary"),
        (4, (4, 4), 4, 2, "beside rotary sink"),
        (1, (9, 2), 2, 1, "beside smooth"),
    ):
        batch, beside = len(lengths), "beside" in form
        qkv = [t.f(batch, tokens, n * DIM) for n in (heads, kv, kv)]
        prompt = max(lengths) == tokens
        past = [t.f(batch, kv, ROOM, DIM) * (not prompt) for _ in range(2)]
        scales = [t.f(kv * DIM, low=0.02, high=0.05) for _ in range(2)]
        if "bytes" in form:
            past = [t.n("int8", *x.shape, low=-50, high=50) * (not prompt) for x in past]
            past = [t.of("int8", x) for x in past]
        for cache, b in ((x, b) for x in past for b in range(batch)):
            cache[b, :, lengths[b] :] = 0  # what is there afterwards is not defined
        more = [t.f(batch, kv, 6, DIM) for _ in range(2)]
        first, interleaved = (2, 1) if "norm" in form else (0, 0)
        tables = [t.f(ROOM, 2 if "norm" in form else DIM // 2) for _ in range(2)]
        norms, sink = [t.f(DIM, low=0.5, high=1.5) for _ in range(2)], t.f(heads)
        sinks = sink if "sink" in form else sink * 0 if "smooth" in form else [None] * heads
        present, y, indices, counts = [x.copy() for x in past], [], [], []
        for b, i in ((b, i) for b in range(batch) for i in range(tokens)):
            place = lengths[b] - tokens + i
            q, k, v = (x[b, i].reshape(-1, DIM) for x in qkv)
            if "norm" in form:
                q, k = (
                    x / (((x**2).mean(-1, keepdims=True) + 1e-6) ** 0.5) * w
                    for x, w in zip((q, k), norms)
                )
            if "rotary" in form:
                q, k = (_turned(x, place, tables, first, interleaved) for x in (q, k))
            for cache, new, s in zip(present, (k, v), scales):
                if "bytes" in form:
                    new = (new / s.reshape(kv, DIM)).round().clip(-128, 127)
                cache[b, :, place] = new
            near = list(range(max(0, place - 2), place + 1)) if beside else []
            count = int(t.random.integers(0 if i else 1, CHOSEN + 1))
            pool = [int(x) for x in t.random.permutation(6 if beside else place + 1)]
            chosen = pool[:count]
            counts.append(len(chosen))
            indices.append(chosen + [-1] * (CHOSEN - len(chosen)))
            whole = [x[b].astype("float64") for x in present]
            if "bytes" in form:
                whole = [x * s.reshape(kv, 1, DIM) for x, s in zip(whole, scales)]
            for h in range(heads):
                own = h // (heads // kv)
                keys, values = (x[own, near if beside else chosen] for x in whole)
                if beside:
                    keys, values = (
                        t.of("float64", [*x, *m[b, own, chosen]])
                        for x, m in zip((keys, values), more)
                    )
                y.append(_attended(q[h], keys, values, DIM**-0.5, sinks[h]))
        if "packed" in form:
            fused = [
                [*(v for x in qkv for v in x[b, i])] for b in range(batch) for i in range(tokens)
            ]
            qkv = [t.of("float32", fused).reshape(batch, tokens, -1), None, None]
        yield t(
            *(*qkv, *past, *(more if beside else [None, None])),
            *(t.of("int32", indices), t.of("int32", counts)),
            *(t.of("int32", lengths) - 1, t.of("int32", [max(lengths)])),
            *([t.const(x) for x in tables] if "rotary" in form else [None, None]),
            None,
            *([t.const(x) for x in norms] if "norm" in form else [None, None]),
            t.const(sink) if "sink" in form else None,
            None,
            *(map(t.const, scales) if "bytes" in form else []),
            outputs=3,
            num_heads=heads,
            kv_num_heads=kv,
            do_rotary=int("rotary" in form),
            rotary_offset=first,
            rotary_interleaved=interleaved,
            smooth_softmax=int("smooth" in form),
            attention_mode="local_plus_selected" if beside else "selected_only",
            selected_kv_source="auxiliary" if beside else "main",
            local_window_size=3 if beside else 0,
            tol=1e-4,
            expect=[t.of("float32", y).reshape(batch, tokens, -1), *present],
            why="onnxruntime's CPU does not have it",
        )
