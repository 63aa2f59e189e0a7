"""Test cases of ops/recurrent/layers.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....declare.op import MS
from ... import OPS

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


def _cases(t: Toolbox, gates: int, training: bool) -> Cases:
    # Over 60 lines: a list of cases.
    def inputs(
        steps: int,
        batch: int,
        width: int,
        hidden: int,
        d: int = 1,
        bias: bool = True,
        lengths: list[int] | None = None,
        h: bool = False,
        c: bool = False,
        peepholes: bool = False,
        layout: int = 0,
    ) -> list[Any]:
        x = t.f(batch, steps, width) if layout else t.f(steps, batch, width)
        state, scale = (batch, d, hidden) if layout else (d, batch, hidden), min(0.4, hidden**-0.5)
        out = [
            x,
            t.const(t.f(d, gates * hidden, width) * scale),
            t.const(t.f(d, gates * hidden, hidden) * scale),
            t.f(d, 2 * gates * hidden) if bias else None,
            t.of("int32", lengths) if lengths else None,
            t.f(*state) if h else None,
        ]
        if gates == 4:
            out += [t.f(*state) if c else None, t.f(d, 3 * hidden) if peepholes else None]
        while out[-1] is None:
            out.pop()
        return out

    states = 2 if gates == 4 else 1
    ort = {
        "trust": "ort",
        "why": (
            "ONNX's reference has neither lengths nor clip, nor activations in the order of the"
            " gates"
        ),
    }
    both = {
        "outputs": 1 + states,
        "tol": 1e-4,
        **ort,
        **({"same_as": ("", {4: "LSTM", 3: "GRU"}[gates])} if training else {}),
    }
    for lbr in (0, 1) if gates == 3 else (0,):
        more = {"linear_before_reset": 1} if lbr else {}
        for shape in (
            (3, 2, 5, 4),
            (1, 1, 3, 1),
            (6, 5, 2, 7),
            (2, 9, 8, 16),
            (5, 1, 4, 33),
            (4, 6, 3, 32),
            (3, 1, 4, 256),
        ):
            yield t(*inputs(*shape), hidden_size=shape[3], **both, **more)
            yield t(
                *inputs(*shape, bias=False, h=True, c=True), hidden_size=shape[3], **both, **more
            )
        for direction in ("forward", "reverse", "bidirectional"):
            d = 2 if direction == "bidirectional" else 1
            yield t(
                *inputs(4, 3, 5, 6, d, h=True, c=True),
                hidden_size=6,
                direction=direction,
                **both,
                **more,
            )
            if not training:
                yield t(
                    *inputs(5, 4, 3, 6, d, lengths=[5, 1, 3, 4], h=True, c=True),
                    hidden_size=6,
                    direction=direction,
                    **both,
                    **more,
                )
                yield t(
                    *inputs(5, 4, 3, 6, d, lengths=[2, 3, 3, 1]),
                    hidden_size=6,
                    direction=direction,
                    **both,
                    **more,
                )
                yield t(
                    *inputs(4, 3, 5, 6, d),
                    hidden_size=6,
                    direction=direction,
                    clip=0.3,
                    **both,
                    **more,
                )
        if training:
            continue
        for activations, numbers in (
            (
                ["Relu", "HardSigmoid", "Affine"],
                {"activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.1]},
            ),
            (
                ["HardSigmoid", "ScaledTanh", "LeakyRelu"],
                {"activation_alpha": [0.25, 1.2, 0.1], "activation_beta": [0.5, 0.8]},
            ),
            (["Tanh", "Relu", "Sigmoid"], {}),
        ):
            count = {4: 3, 3: 2, 1: 1}[gates]
            numbers = {
                k: v[
                    : sum(
                        a
                        in (
                            ("HardSigmoid", "Affine", "ScaledTanh", "LeakyRelu")
                            if k[-1] == "a" and k[11] == "a"
                            else ("HardSigmoid", "Affine", "ScaledTanh")
                        )
                        for a in activations[:count]
                    )
                ]
                for k, v in numbers.items()
            }
            yield t(
                *inputs(4, 3, 5, 6),
                hidden_size=6,
                activations=activations[:count],
                **{k: v for k, v in numbers.items() if v},
                **both,
                **more,
            )
        for wanted in ([True, False, False], [False, True, False], [False, False, True]):
            if any(wanted[: 1 + states]):
                yield t(
                    *inputs(4, 3, 5, 6),
                    hidden_size=6,
                    outputs=wanted[: 1 + states],
                    tol=1e-4,
                    **ort,
                    **more,
                )
        yield t(
            *inputs(4, 3, 5, 6, h=True, layout=1),
            hidden_size=6,
            layout=1,
            outputs=1 + states,
            tol=1e-4,
            trust="onnx",
            why="onnxruntime has no layout 1",
            **more,
        )
        yield t(*inputs(4, 3, 5, 6), hidden_size=6, opset=7, **both, **more)
        yield t(
            *inputs(30, 2, 5, 96, 2, lengths=[20, 30]),
            hidden_size=96,
            direction="bidirectional",
            **both,
            **more,
        )
    for layout in (0, 1)[: 2 - training]:  # no steps: the last states are the first ones
        d, batch, hidden = 2, 3, 6
        given = inputs(0, batch, 5, hidden, d, h=True, c=True, layout=layout)
        shape = (batch, 0, d, hidden) if layout else (0, d, batch, hidden)
        yield t(
            *given,
            hidden_size=hidden,
            direction="bidirectional",
            layout=layout,
            outputs=1 + states,
            expect=[t.f(*shape), *given[5 : 5 + states]],
            why="onnxruntime gives zeros, or dies; ONNX's reference fails",
        )
    if gates == 4 and not training:
        for attrs in ({}, {"input_forget": 1}, {"clip": 0.5}):
            yield t(
                *inputs(4, 3, 5, 6, h=True, c=True, peepholes=True), hidden_size=6, **attrs, **both
            )
            yield t(
                *inputs(4, 3, 5, 6, 2, lengths=[4, 2, 1], peepholes=True),
                hidden_size=6,
                direction="bidirectional",
                **attrs,
                **both,
            )


for _name, _domain, _gates, _training in (
    ("LSTM", "", 4, False),
    ("GRU", "", 3, False),
    ("RNN", "", 1, False),
    ("LSTMTraining", MS, 4, True),
    ("GRUTraining", MS, 3, True),
):
    OPS[_domain, _name].cases(
        lambda t, _gates=_gates, _training=_training: _cases(t, _gates, _training)
    )
