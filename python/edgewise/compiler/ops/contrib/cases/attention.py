"""Test cases of ops/contrib/attention.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..attention import attention

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@attention.cases
def attention_cases(t: Toolbox) -> Cases:
    def case(
        *more: Any,
        x: tuple[int, ...] = (2, 5, 12),
        sizes: tuple[int, ...] = (16, 16, 16),
        outputs: int = 1,
        **attrs: Any,
    ) -> Any:
        return t(
            t.f(*x),
            t.const(t.f(x[2], sum(sizes)) * 0.5),
            t.const(t.f(sum(sizes))),
            *more,
            num_heads=4,
            outputs=outputs,
            tol=1e-4,
            **attrs,
        )

    yield case()
    yield case(x=(1, 1, 8))
    yield case(unidirectional=1)
    yield case(scale=0.2)
    yield case(sizes=(16, 16, 8), qkv_hidden_sizes=[16, 16, 8])
    yield case(t.of("int32", [3, 5]))
    yield case(t.of("int32", [4, 5, 1, 2]))
    yield case(t.of("int32", [3, 5, 0, 5, 10, 0, 5, 10]))
    yield case(t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    yield case(t.of("int32", [[1, 1, 0, 0, 1], [0, 1, 1, 1, 1]]), mask_filter_value=-50.0)
    yield case(t.n("int32", 2, 5, 5, low=0, high=1) | t.of("int32", [[[1, 0, 0, 0, 0]]]))
    yield case(None, None, t.f(2, 4, 5, 5))
    yield case(t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), None, t.f(2, 4, 5, 5))
    yield case(None, t.f(2, 2, 4, 3, 4), outputs=2)
    yield case(t.of("int32", [[1, 1, 1, 0, 0, 1, 1, 1], [1] * 8]), t.f(2, 2, 4, 3, 4), outputs=2)
    yield case(None, t.f(2, 2, 4, 3, 4), outputs=2, unidirectional=1)
    for mask in ([[1]], [[0]], [[1], [0]]):  # of one column: for all keys, without an effect
        yield case(t.of("int32", mask))
    yield case(t.of("int32", [[0]]), t.f(2, 2, 4, 3, 4), outputs=2, unidirectional=1)
