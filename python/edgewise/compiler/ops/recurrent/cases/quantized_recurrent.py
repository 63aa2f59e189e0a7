"""Test cases of ops/recurrent/quantized_recurrent.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..quantized_recurrent import quantized_lstm

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@quantized_lstm.cases
def quantized_lstm_cases(t: Toolbox) -> Cases:
    # Over 60 lines: a list of cases.
    def inputs(
        steps: int,
        batch: int,
        width: int,
        hidden: int,
        d: int = 1,
        dtype: str = "int8",
        columns: bool = False,
        zero: int = 0,
        bias: bool = True,
        lengths: list[int] | None = None,
        h: bool = False,
        c: bool = False,
        peepholes: bool = False,
    ) -> list[Any]:
        shape, low, high = (
            [d, 4 * hidden] if columns else [d],
            0 if dtype == "uint8" else -100,
            255 if dtype == "uint8" else 100,
        )

        def scales() -> Any:
            return t.const(t.f(*shape, low=0.001, high=0.003))

        def zeros() -> Any:
            return t.const(t.of(dtype, t.n(dtype, *shape) * 0 + zero))

        return [
            t.f(steps, batch, width),
            t.const(t.n(dtype, d, width, 4 * hidden, low=low, high=high)),
            t.const(t.n(dtype, d, hidden, 4 * hidden, low=low, high=high)),
            t.const(t.f(d, 8 * hidden)) if bias else None,
            t.of("int32", lengths) if lengths else None,
            t.f(d, batch, hidden) if h else None,
            t.f(d, batch, hidden) if c else None,
            t.const(t.f(d, 3 * hidden)) if peepholes else None,
            scales(),
            zeros(),
            scales(),
            zeros(),
        ]

    only = {"outputs": 3, "tol": 1e-3, "trust": "ort", "why": "an operator of onnxruntime"}
    for shape in (
        (3, 1, 5, 4),
        (1, 1, 3, 1),
        (6, 5, 2, 7),
        (2, 9, 8, 16),
        (5, 1, 4, 33),
        (4, 1, 30, 70),
    ):
        yield t(*inputs(*shape), hidden_size=shape[3], **only)
        yield t(
            *inputs(*shape, dtype="uint8", zero=119, h=True, c=True), hidden_size=shape[3], **only
        )
        yield t(*inputs(*shape, columns=True, bias=False), hidden_size=shape[3], **only)
    for direction in ("forward", "reverse", "bidirectional"):
        d = 2 if direction == "bidirectional" else 1
        for dtype, zero, columns in (
            ("int8", 0, True),
            ("int8", -7, False),
            ("uint8", 131, True),
            ("uint8", 5, False),
        ):
            yield t(
                *inputs(4, 3, 5, 6, d, dtype, columns, zero, h=True, c=True),
                hidden_size=6,
                direction=direction,
                **only,
            )
        yield t(
            *inputs(5, 4, 3, 6, d, lengths=[4, 4, 4, 4], h=True, c=True),
            hidden_size=6,
            direction=direction,
            **only,
        )
        yield t(*inputs(4, 3, 5, 6, d), hidden_size=6, direction=direction, clip=0.3, **only)
    yield t(
        *inputs(4, 3, 5, 6, h=True, c=True, peepholes=True), hidden_size=6, input_forget=1, **only
    )
    yield t(*inputs(4, 3, 5, 6, c=True, peepholes=True), hidden_size=6, clip=0.5, **only)
    yield t(
        *inputs(4, 3, 5, 6),
        hidden_size=6,
        activations=["HardSigmoid", "ScaledTanh", "Relu"],
        activation_alpha=[0.25, 1.2],
        activation_beta=[0.5, 0.8],
        **only,
    )
    given = inputs(0, 3, 5, 6, h=True, c=True)
    yield t(
        *given,
        hidden_size=6,
        outputs=3,
        expect=[t.f(0, 1, 3, 6), given[5], given[6]],
        why="onnxruntime gives zeros; without steps the last states are the first ones",
    )
    for wanted in ([True, False, False], [False, True, False], [False, False, True]):
        yield t(*inputs(4, 3, 5, 6), hidden_size=6, **{**only, "outputs": wanted})
