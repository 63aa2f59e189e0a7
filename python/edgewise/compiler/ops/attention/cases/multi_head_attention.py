"""Test cases of ops/attention/multi_head_attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..multi_head_attention import masked, mha

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


@mha.cases
def mha_cases(t: Toolbox) -> Cases:
    def case(q: Any, k: Any, v: Any, *more: Any, outputs: int = 1, **attrs: Any) -> Any:
        return t(q, k, v, *more, num_heads=4, outputs=outputs, tol=1e-4, **attrs)

    q, k, v = t.f(2, 5, 32), t.f(2, 7, 32), t.f(2, 7, 24)
    yield case(q, k, v)
    yield case(q, k, v, t.const(t.f(88)), scale=0.3)
    yield case(q, k, v, None, None, t.f(2, 4, 5, 7))
    yield case(q, k, v, None, None, t.f(1, 1, 5, 7))
    yield case(q, k, v, t.f(88), t.of("int32", [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]]))
    yield case(q, k, v, None, t.of("int32", [4, 7]), mask_filter_value=-50.0)
    yield case(q, t.f(2, 4, 7, 8), t.f(2, 4, 7, 8))
    k, v = t.f(2, 5, 32), t.f(2, 5, 32)
    yield case(q, k, v, unidirectional=1)
    yield case(q, k, v, outputs=3)
    yield case(q, k, v, None, None, None, t.f(2, 4, 3, 8), t.f(2, 4, 3, 8), outputs=3)
    yield case(
        q[:, :1].copy(),
        k[:, :1].copy(),
        v[:, :1].copy(),
        t.f(96),
        t.of("int32", [[1, 1, 0, 1], [0, 1, 1, 1]]),
        t.f(1, 4, 1, 4),
        t.f(2, 4, 3, 8),
        t.f(2, 4, 3, 8),
        outputs=3,
    )
    yield case(
        q, k, v, None, None, None, t.f(2, 4, 3, 8), t.f(2, 4, 3, 8), outputs=3, unidirectional=1
    )
    yield case(q, k, v, None, t.of("int32", [4, 5, 0, 5, 10, 0, 5, 10]))
    room = [t.f(2, 4, 8, 8), t.f(2, 4, 8, 8)]
    for count in (1, 3):  # a past with room after it
        yield case(
            q[:, :count].copy(),
            k[:, :count].copy(),
            v[:, :count].copy(),
            None,
            None,
            None,
            *room,
            t.of("int32", [3]),
            outputs=3,
        )
    scores: dict[str, Any] = {"outputs": [True, False, False, True]}
    yield case(
        q, k, v, None, t.of("int32", [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]), t.f(1, 4, 5, 5), **scores
    )
    yield case(q, k, v, None, None, None, t.f(2, 4, 3, 8), t.f(2, 4, 3, 8), outputs=4)


@masked.cases
def masked_cases(t: Toolbox) -> Cases:
    def case(*inputs: Any, outputs: int = 3, **attrs: Any) -> Any:
        return t(*inputs, num_heads=4, outputs=outputs, tol=1e-4, **attrs)

    new, room, share = (
        [t.f(4, 1, 32) for _ in range(3)],
        [t.f(4, 4, 8, 8) for _ in range(2)],
        {"past_present_share_buffer": 1},
    )
    mask, bias, sources = (
        t.of("int32", [[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]]),
        t.f(1, 4, 1, 4),
        t.n("int32", 2, 2, 8, low=0, high=1),
    )
    yield case(*new, None, None, *room, t.of("int32", [3]), **share)
    yield case(*new, mask, bias, *room, t.of("int32", [3]), **share)
    yield case(
        *new,
        mask,
        None,
        *room,
        t.of("int32", [3]),
        t.of("int32", [2]),
        sources,
        t.f(96),
        scale=0.3,
        **share,
    )
    yield case(new[0], t.f(4, 4, 7, 8), t.f(4, 4, 7, 8), outputs=1)
    yield case(
        new[0], t.f(4, 4, 7, 8), t.f(4, 4, 7, 8), t.n("int32", 4, 7, low=0, high=1), outputs=1
    )
