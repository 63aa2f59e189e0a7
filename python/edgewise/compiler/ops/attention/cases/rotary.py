"""Test cases of ops/attention/rotary.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rotary import rotary, rotary_ms

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@rotary.cases
def rotary_cases(t: Toolbox) -> Cases:
    for interleaved in (0, 1):
        new = {"opset": 23, "interleaved": interleaved}
        yield t(t.f(2, 3, 5, 8), t.f(20, 4), t.f(20, 4), t.n("int64", 2, 5, low=0, high=19), **new)
        yield t(t.f(2, 3, 5, 8), t.f(2, 5, 4), t.f(2, 5, 4), **new)
        yield t(
            t.f(2, 5, 24),
            t.f(20, 4),
            t.f(20, 4),
            t.n("int64", 2, 5, low=0, high=19),
            num_heads=3,
            **new,
        )
        yield t(t.f(2, 5, 24), t.f(2, 5, 4), t.f(2, 5, 4), num_heads=3, **new)
        yield t(
            t.f(2, 3, 5, 10),
            t.f(20, 2),
            t.f(20, 2),
            t.n("int64", 2, 5, low=0, high=19),
            rotary_embedding_dim=4,
            **new,
        )
        yield t(t.f(1, 4, 1, 64), t.f(7, 32), t.f(7, 32), t.of("int64", [[6]]), **new)


@rotary_ms.cases
def rotary_ms_cases(t: Toolbox) -> Cases:
    for interleaved in (0, 1):
        for x in (t.f(2, 5, 24), t.f(2, 3, 5, 8)):
            heads = {"num_heads": 3} if x.ndim == 3 else {}
            yield t(
                x,
                t.n("int64", 2, 5, low=0, high=19),
                t.f(20, 4),
                t.f(20, 4),
                interleaved=interleaved,
                **heads,
            )
            yield t(x, t.of("int64", [4]), t.f(20, 4), t.f(20, 4), interleaved=interleaved, **heads)
        yield t(
            t.f(2, 5, 24),
            t.n("int64", 2, 5, low=0, high=19),
            t.f(20, 4),
            t.f(20, 4),
            interleaved=interleaved,
        )
        yield t(
            t.f(2, 5, 30),
            t.n("int64", 2, 5, low=0, high=19),
            t.f(20, 2),
            t.f(20, 2),
            interleaved=interleaved,
            num_heads=3,
            rotary_embedding_dim=4,
        )
    yield t(t.f(1, 1, 64), t.of("int64", [[3]]), t.f(20, 16), t.f(20, 16))
    yield t(
        t.f(1, 2, 16, dtype="float16"),
        t.of("int64", [[3, 4]]),
        t.f(20, 4, dtype="float16"),
        t.f(20, 4, dtype="float16"),
    )
