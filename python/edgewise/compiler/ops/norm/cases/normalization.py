"""Test cases of ops/norm/normalization.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....declare.op import MS
from ... import OPS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


def _norm_cases(rms: int, opset: int, same: dict[str, Any]) -> Callable[[Toolbox], Cases]:
    def cases(t: Toolbox) -> Cases:
        for shape, axis in (
            ((2, 3, 64), -1),
            ((5, 37), 1),
            ((1, 7), -1),
            ((2, 3, 4, 5), 2),
            ((3, 4), 0),
            ((2, 300), -1),
            ((0, 8), -1),
            ((4, 1), -1),
        ):
            rest = [t.f(*shape[axis:])] + ([t.f(*shape[axis:])] if not rms else [])
            yield t(t.f(*shape), *rest, axis=axis, opset=opset, tol=1e-4, **same)
            yield t(
                t.f(*shape) + 5, rest[0], axis=axis, epsilon=1e-3, opset=opset, tol=1e-4, **same
            )
        # a scale and a bias that broadcast to x: a number for each row, each matrix, all of x
        for dims in ((3, 1), (2, 1, 1), (1,), (), (3, 3), (2, 1, 3), (1, 1, 3)):
            rest = [t.f(*dims)] if rms else [t.f(*dims), t.f(3)]
            yield t(t.f(2, 3, 3), *rest, opset=opset, tol=1e-4, **same)
            if not rms:
                yield t(t.f(2, 3, 3), t.f(3), t.f(*dims), opset=opset, tol=1e-4, **same)
                yield t(
                    t.f(2, 3, 3), t.f(*dims), t.f(3, 1), outputs=3, opset=opset, tol=1e-4, **same
                )
        for dims in ((3, 1), (4,), (1, 4), (2, 1, 1)):
            yield t(t.f(2, 3, 4), t.f(*dims), axis=1, opset=opset, tol=1e-4, **same)
        yield t(t.f(3, 16), t.f(16), opset=opset, tol=1e-4, **same)
        yield t(t.f(3, 16) * 1e-4, t.f(16), epsilon=1e-12, opset=opset, tol=1e-4, **same)
        yield t(
            t.f(3, 16, dtype="float64"), t.f(16, dtype="float64"), opset=opset, tol=1e-4, **same
        )
        yield t(
            t.f(3, 16, dtype="float16"), t.f(16, dtype="float16"), opset=opset, tol=4e-3, **same
        )

    return cases


OPS["", "LayerNormalization"].cases(_norm_cases(0, 21, {}))
OPS["", "RMSNormalization"].cases(_norm_cases(1, 23, {}))
OPS["", "SimplifiedLayerNormalization"].cases(_norm_cases(1, 21, {}))
OPS[MS, "SimplifiedLayerNormalization"].cases(
    _norm_cases(1, 21, {"same_as": ("", "SimplifiedLayerNormalization")})
)


def _skip_norm_cases(t: Toolbox, rms: int) -> Cases:
    for shape in ((2, 3, 64), (1, 5, 37), (0, 2, 8), (4, 16)):
        width = shape[-1]
        beta = [] if rms else [t.f(width)]
        yield t(t.f(*shape), t.f(*shape), t.f(width), *beta, tol=1e-4)
        yield t(t.f(*shape), t.f(*shape), t.f(width), *beta, t.f(width), tol=1e-4, epsilon=1e-3)
        yield t(
            t.f(*shape),
            t.f(*shape),
            t.f(width),
            *beta,
            t.f(width),
            outputs=[True, False, False, True],
            tol=1e-4,
        )
    yield t(t.f(2, 3, 8), t.f(2, 3, 8), t.f(8), outputs=4, tol=1e-4)
    yield t(t.f(2, 3, 8) * 1e-4, t.f(2, 3, 8) * 1e-4, t.f(8), tol=1e-4)
    yield t(t.f(2, 3, 8), t.f(3, 8), t.f(8), outputs=[True, False, False, True], tol=1e-4)
    yield t(t.f(2, 3, 8), t.f(1, 3, 8), t.f(8), outputs=[True, False, False, True], tol=1e-4)
    yield t(
        t.f(2, 3, 8, dtype="float16"),
        t.f(2, 3, 8, dtype="float16"),
        t.f(8, dtype="float16"),
        outputs=[True, False, False, True],
        tol=4e-3,
    )


OPS[MS, "SkipLayerNormalization"].cases(lambda t: _skip_norm_cases(t, 0))
OPS[MS, "SkipSimplifiedLayerNormalization"].cases(lambda t: _skip_norm_cases(t, 1))
