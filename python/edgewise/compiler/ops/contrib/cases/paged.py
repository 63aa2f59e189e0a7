"""Test cases of ops/contrib/paged.py, which onnxruntime runs on GPUs only: by its definition, one
request, token and head after the other, with its keys in a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..paged import paged

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has no kernel for the processor"
ROWS, BLOCKS = 4, 9
TABLE = [[7, 2, 5], [0, 8, -1], [3, 6, 1]]


def _turned(x: Any, place: int, cos: Any, sin: Any, first: int, interleaved: int) -> Any:
    """x [heads, dim] after its rotation, pair by pair."""
    y, half = x.copy(), cos.shape[1]
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, half + i)
        a, b, c, s = a + first, b + first, cos[place, i], sin[place, i]
        y[:, a], y[:, b] = x[:, a] * c - x[:, b] * s, x[:, b] * c + x[:, a] * s
    return y


def _rounded(t: Toolbox, x: Any, scale: Any, dtype: str) -> Any:
    if dtype == "int8":
        return (x / scale).round().clip(-128, 127).astype("int8")
    return t.of("float8_e4m3fn", x / scale) if scale is not None else x


def _attended(q: Any, keys: Any, values: Any, seen: list[int], sink: Any, m: dict[str, Any]) -> Any:
    """One query of one head."""
    scores = [float(q @ keys[j]) * m["scale"] for j in seen]
    if m.get("softcap"):
        tanh = lambda x: 1 - 2 / (2.718281828459045 ** (2 * x) + 1)
        scores = [m["softcap"] * tanh(x / m["softcap"]) for x in scores]
    e = [2.718281828459045**x for x in scores]
    whole = sum(e) + (2.718281828459045 ** float(sink) if sink is not None else 0)
    return sum(x / whole * values[j] for x, j in zip(e, seen))


def _case(
    t: Toolbox,
    lengths: tuple[int, ...],
    past: tuple[int, ...],
    heads: int = 4,
    kv: int = 2,
    packed: bool = False,
    rotary: Any = None,
    sink: bool = False,
    norm: bool = False,
    mapped: bool = False,
    dtype: str = "float32",
    channels: bool = False,
    latent: int = 0,
    **attrs: Any,
) -> Any:
    dim, batch, tokens = 16, len(lengths), sum(lengths)
    q, k, v = (t.f(tokens, n * dim) for n in (heads, kv, kv))
    scales = [t.f(kv, 1, dim, low=0.02, high=0.05) if channels else t.of("float32", [0.03])] * 2
    each = [s[:, 0] if channels else s for s in scales] if dtype != "float32" else [None, None]
    old = [_rounded(t, t.f(BLOCKS, ROWS, kv, dim), s, dtype) for s in each]
    caches = [x.copy() for x in old]
    cos, sin = t.f(12, 4), t.f(12, 4)
    sinks, norms = t.f(heads), (t.f(dim) + 1, t.f(dim) + 1)
    first, interleaved = rotary or (0, 0)

    def prepared(x: Any, place: int, scale: Any) -> Any:
        x = x.reshape(-1, dim)
        if norm:
            x = x / ((x * x).mean(-1, keepdims=True) + 1e-6) ** 0.5 * scale
        return _turned(x, place, cos, sin, first, interleaved) if rotary else x

    slots, queries = [], []
    for r in range(batch):
        for i in range(lengths[r]):
            place, at = past[r] + i, sum(lengths[:r]) + i
            queries.append(prepared(q[at], place, norms[0]))
            slot = TABLE[r][place // ROWS] * ROWS + place % ROWS
            slots.append(-1 if mapped and i == 1 else slot)
            new = [prepared(k[at], place, norms[1]), v[at].reshape(kv, dim)]
            for cache, x, s in zip(caches, new, each):
                if slots[-1] >= 0:
                    cache[slot // ROWS, slot % ROWS] = _rounded(t, x, s, dtype)
    m = {"scale": dim**-0.5, **attrs}
    y = []
    for r in range(batch):
        total = past[r] + lengths[r]
        rows = []
        for cache, s in zip(caches, each):
            own = [cache[TABLE[r][j // ROWS], j % ROWS].astype("float64") for j in range(total)]
            rows.append([x if s is None else x * s for x in own])
        if latent:
            rows[1] = [x[:, :latent] for x in rows[0]]
        for i in range(lengths[r]):
            place, window = past[r] + i, attrs.get("local_window_size", -1)
            last = place + 1 if attrs.get("is_causal", 1) else total
            seen = [j for j in range(last) if window < 1 or j > place - window]
            x = queries[sum(lengths[:r]) + i].astype("float64")
            for h in range(heads):
                own = [[row[h // (heads // kv)] for row in part] for part in rows]
                y.append(_attended(x[h], own[0], own[1], seen, sinks[h] if sink else None, m))
    y = t.of("float32", y).reshape(tokens, -1)
    if packed:
        qkv = [x for at in range(tokens) for x in (*q[at], *k[at], *v[at])]
        q, k, v = t.of("float32", qkv).reshape(tokens, -1), None, None
    if latent:
        v, old, caches = None, [old[0], None], caches[:1]
        attrs |= {"kv_cache_layout": "LATENT", "v_head_size": latent}
    if dtype != "float32":
        kind = "PER_CHANNEL" if channels else "PER_TENSOR"
        attrs |= {"k_quant_type": kind, "v_quant_type": kind, "k_cache_dtype": dtype}
    ends = [sum(lengths[:r]) for r in range(batch + 1)]
    return t(
        *(q, k, v, *old, t.of("int32", ends), t.of("int32", past), t.of("int32", TABLE[:batch])),
        *((t.const(cos), t.const(sin)) if rotary else (None, None)),
        t.of("int32", slots) if mapped else None,
        sinks if sink else None,
        *((t.const(x) for x in norms) if norm else (None, None)),
        *(scales if dtype != "float32" else (None, None)),
        t.of("int32", [tokens, 12]),
        outputs=1 + len(caches),
        num_heads=heads,
        kv_num_heads=kv,
        do_rotary=int(rotary is not None),
        rotary_offset=first,
        rotary_interleaved=interleaved,
        tol=2e-4,
        expect=[y, *caches],
        why=WHY,
        **attrs,
    )


@paged.cases
def paged_cases(t: Toolbox) -> Cases:
    yield _case(t, (3, 1, 4), (2, 7, 0))
    yield _case(t, (1, 1, 1), (11, 3, 6), packed=True, rotary=(0, 0), scale=0.2)
    yield _case(t, (5,), (0,), rotary=(8, 1), norm=True, heads=2)
    yield _case(t, (4, 2), (6, 5), sink=True, local_window_size=3, softcap=2.0)
    yield _case(t, (3, 3), (1, 2), mapped=True)
    yield _case(t, (3, 2, 1), (2, 0, 9), is_causal=0)
    yield _case(t, (3, 2), (2, 4), dtype="int8", rotary=(0, 0))
    yield _case(t, (3, 2), (2, 4), dtype="int8", channels=True)
    yield _case(t, (1, 2), (5, 4), dtype="float8e4m3fn")
    yield _case(t, (3, 2), (2, 4), heads=3, kv=1, latent=8, scale=0.3, rotary=(8, 0))
