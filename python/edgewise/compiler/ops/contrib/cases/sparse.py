"""Test cases of ops/contrib/sparse.py, by its definition: onnxruntime wants the past and the
present in one buffer (tests/ops/test_sparse_attention.py compares them so).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sparse import sparse

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

ROWS = [[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]]
COLUMNS = [[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]]
ROOM, DIM, SIZE = 64, 16, 16


def _seen(layout: int, place: int) -> list[int]:
    """The keys that a query at this place attends to."""
    row = place // SIZE
    blocks = COLUMNS[layout][ROWS[layout][row] : ROWS[layout][row + 1]]
    return [j for j in range(place + 1) if j // SIZE in blocks]


def _turned(x: Any, place: int, tables: list[Any], interleaved: int) -> Any:
    y, half = x.copy(), DIM // 2
    cos, sin = (table[place] for table in tables)
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, half + i)
        y[..., a] = x[..., a] * cos[i] - x[..., b] * sin[i]
        y[..., b] = x[..., b] * cos[i] + x[..., a] * sin[i]
    return y


@sparse.cases
def sparse_cases(t: Toolbox) -> Cases:
    for tokens, lengths, heads, kv, packed, rotary, layouts in (
        (40, (40, 40), 4, 2, False, False, 2),
        (1, (50, 21), 4, 2, False, False, 2),
        (33, (33,), 4, 4, True, True, 1),
        (1, (64, 17, 1), 2, 1, True, True, 2),
        (1, (30,), 4, 1, False, True, 2),
    ):
        batch, scale, interleaved = len(lengths), 0.3 if packed else 0.25, int(heads == 4)
        qkv = [t.f(batch, tokens, n * DIM) for n in (heads, kv, kv)]
        past = [t.f(batch, kv, ROOM, DIM) * (tokens == 1) for _ in range(2)]
        tables = [t.f(ROOM, DIM // 2) for _ in range(2)]
        present, y = [x.copy() for x in past], []
        for b, i in ((b, i) for b in range(batch) for i in range(tokens)):
            place = lengths[b] - tokens + i
            q, k, v = (x[b, i].reshape(-1, DIM) for x in qkv)
            if rotary:
                q, k = (_turned(x, place, tables, interleaved) for x in (q, k))
            for cache, new in zip(present, (k, v)):
                cache[b, :, place] = new
            for h in range(heads):
                seen, own = _seen(h % layouts, place), h // (heads // kv)
                keys, values = (x[b, own, seen].astype("float64") for x in present)
                e = 2.718281828459045 ** (keys @ q[h] * scale)
                y.append(e @ values / e.sum())
        fused = [[*(v for x in qkv for v in x[b, i])] for b in range(batch) for i in range(tokens)]
        if packed:
            qkv = [t.of("float32", fused).reshape(batch, tokens, -1), None, None]
        csr = [t.const(t.of("int32", x[:layouts])) for x in (ROWS, COLUMNS)]
        yield t(
            *(*qkv, *past, *csr, t.of("int32", [max(lengths)]), t.of("int32", lengths)),
            *(t.const(x) for x in tables if rotary),
            outputs=3,
            num_heads=heads,
            kv_num_heads=kv,
            sparse_block_size=SIZE,
            do_rotary=int(rotary),
            rotary_interleaved=interleaved,
            tol=1e-4,
            expect=[t.of("float32", y).reshape(batch, tokens, -1), *present],
            why="onnxruntime wants the past and the present in one buffer",
            **({"scale": 0.3} if packed else {}),
        )
