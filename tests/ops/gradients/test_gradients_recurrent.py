"""Gradients of LSTM, GRU and RNN against PyTorch's own layers, and against the definitions walked
by PyTorch where its layers lack a form.
"""

import numpy as np
import pytest
import torch

from .compare import check, close, f
from .model import gradients, node_model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TORCH_ORDER = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}  # of ONNX's gates
SHAPES = [
    (3, 2, 5, 4),
    (1, 1, 3, 1),
    (6, 5, 2, 7),
    (4, 9, 8, 16),
    (5, 3, 4, 33),
]  # steps, batch, width, hidden


def inputs(op, shape, d=1, bias=True, lengths=None, h=False, c=False, peepholes=False, layout=0):
    t, b, i, n = shape
    state, gates = (b, d, n) if layout else (d, b, n), GATES[op]
    out = [
        f(b, t, i) if layout else f(t, b, i),
        f(d, gates * n, i) * 0.5,
        f(d, gates * n, n) * 0.5,
        f(d, 2 * gates * n) if bias else None,
        np.array(lengths, np.int32) if lengths else None,
        f(*state) if h else None,
    ]
    if op == "LSTM":
        out += [f(*state) if c else None, f(d, 3 * n) if peepholes else None]
    while out[-1] is None:
        out.pop()
    return out


def by_pytorch(op, direction="forward", layout=0):
    """Its layer as a function of ONNX's inputs."""

    def run(*given):
        x, w, r, bias, lengths, h, c = [
            torch.as_tensor(v) if v is not None else None for v in given
        ] + [None] * (7 - len(given))
        d, size, n = r.shape
        weights = []
        for k in range(d):
            for v in (w[k], r[k], *((bias[k, :size], bias[k, size:]) if bias is not None else ())):
                weights.append(torch.cat([v.chunk(GATES[op])[g] for g in TORCH_ORDER[op]]))
        if layout:
            h, c = (v.transpose(0, 1) if v is not None else None for v in (h, c))
        batch = x.shape[0 if layout else 1]
        h, c = (v if v is not None else torch.zeros(d, batch, n) for v in (h, c))
        x = x.flip(0) if direction == "reverse" else x
        y, *last = {"LSTM": torch._VF.lstm, "GRU": torch._VF.gru, "RNN": torch._VF.rnn_tanh}[op](
            x,
            (h, c) if op == "LSTM" else h,
            weights,
            bias is not None,
            1,
            0.0,
            True,
            d == 2,
            bool(layout),
        )
        y = y.flip(0) if direction == "reverse" else y
        y = y.reshape(*y.shape[:2], d, n)
        return [
            y if layout else y.transpose(1, 2),
            *(v.transpose(0, 1) if layout else v for v in last),
        ]

    return run


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layers(engine, op, shape):
    more = {
        "hidden_size": shape[3],
        "outputs": 3 if op == "LSTM" else 2,
        **({"linear_before_reset": 1} if op == "GRU" else {}),
    }
    check(engine, op, inputs(op, shape), by_pytorch(op), **more)
    check(engine, op, inputs(op, shape, bias=False, h=True, c=True), by_pytorch(op), **more)
    for direction in ("reverse", "bidirectional"):
        d = 2 if direction == "bidirectional" else 1
        check(
            engine,
            op,
            inputs(op, shape, d, h=True, c=True),
            by_pytorch(op, direction),
            direction=direction,
            **more,
        )


@pytest.mark.parametrize("op", GATES)
def test_layout(engine, op):
    more = {
        "hidden_size": 7,
        "outputs": 3 if op == "LSTM" else 2,
        "layout": 1,
        **({"linear_before_reset": 1} if op == "GRU" else {}),
    }
    check(
        engine,
        op,
        inputs(op, (6, 5, 2, 7), h=True, c=True, layout=1),
        by_pytorch(op, layout=1),
        **more,
    )
    check(
        engine,
        op,
        inputs(op, (6, 5, 2, 7), 2, layout=1),
        by_pytorch(op, "bidirectional", layout=1),
        direction="bidirectional",
        **more,
    )


ACTIVATIONS = {
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Relu": torch.relu,
    "HardSigmoid": lambda x: torch.clamp(0.25 * x + 0.4, 0, 1),
    "LeakyRelu": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "ScaledTanh": lambda x: 1.3 * torch.tanh(0.6 * x),
    "Affine": lambda x: 0.7 * x + 0.2,
}
NUMBERS = {
    "HardSigmoid": (0.25, 0.4),
    "LeakyRelu": (0.1,),
    "ScaledTanh": (1.3, 0.6),
    "Affine": (0.7, 0.2),
}


def by_definition(op, direction="forward", activations=None, clip=0, coupled=False, lbr=False):
    """ONNX's equations, row by row and step by step."""
    names = (
        activations
        or {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[op]
    )
    fs = [ACTIVATIONS[a] for a in names]

    def act(k, x):
        return fs[k](torch.clamp(x, -clip, clip) if clip and k < 2 else x)

    def run(x, w, r, bias=None, lengths=None, h=None, c=None, peep=None):
        steps, batch, _ = x.shape
        d, size, n = r.shape
        bias = bias if bias is not None else torch.zeros(d, 2 * size)
        ys, hs, cs = [], [], []
        for k in range(d):
            backwards = k or direction == "reverse"
            rows = []
            pi, po, pf = peep[k].chunk(3) if peep is not None else (0, 0, 0)
            wb, rb = bias[k, :size], bias[k, size:]
            for i in range(batch):
                length = int(lengths[i]) if lengths is not None else steps
                hi = h[k, i] if h is not None else torch.zeros(n)
                ci = c[k, i] if c is not None else torch.zeros(n)
                y = [torch.zeros(n)] * steps
                for t in reversed(range(length)) if backwards else range(length):
                    a, q = x[t, i] @ w[k].T + wb, hi @ r[k].T + rb
                    if op == "LSTM":
                        gi, go, gf, gc = (a + q).chunk(4)
                        gi = act(0, gi + pi * ci)
                        gf = 1 - gi if coupled else act(0, gf + pf * ci)
                        ci = gf * ci + gi * act(1, gc)
                        hi = act(0, go + po * ci) * act(2, ci)
                    elif op == "GRU":
                        z, reset = act(0, (a + q)[:n]), act(0, (a + q)[n : 2 * n])
                        inner = (
                            reset * q[2 * n :]
                            if lbr
                            else (reset * hi) @ r[k][2 * n :].T + rb[2 * n :]
                        )
                        hi = (1 - z) * act(1, a[2 * n :] + inner) + z * hi
                    else:
                        hi = act(0, a + q)
                    y[t] = hi
                rows.append((torch.stack(y), hi, ci))
            y, hi, ci = (torch.stack(v) for v in zip(*rows))
            ys.append(y.transpose(0, 1)), hs.append(hi), cs.append(ci)
        return [torch.stack(ys, 1), torch.stack(hs), *([torch.stack(cs)] if op == "LSTM" else [])]

    return run


FORMS = [
    ("LSTM", {}),
    ("LSTM", {"coupled": True}),
    ("LSTM", {"clip": 0.7}),
    ("LSTM", {"activations": ["HardSigmoid", "ScaledTanh", "LeakyRelu"]}),
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Affine"], "clip": 0.6}),
    ("GRU", {}),
    ("GRU", {"lbr": True}),
    ("GRU", {"clip": 0.6}),
    ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "lbr": True}),
    ("RNN", {}),
    ("RNN", {"activations": ["Relu"]}),
    ("RNN", {"activations": ["Affine"], "clip": 0.5}),
]


@pytest.mark.parametrize("op, form", FORMS, ids=str)
@pytest.mark.parametrize("direction", ("forward", "reverse", "bidirectional"))
def test_forms(engine, op, form, direction):
    d = 2 if direction == "bidirectional" else 1
    attrs = {"hidden_size": 6, "direction": direction, "outputs": 3 if op == "LSTM" else 2}
    names = form.get("activations")
    if names:
        numbers = [NUMBERS.get(a, ()) for a in names] * d
        alphas, betas = [v[0] for v in numbers if v], [v[1] for v in numbers if len(v) > 1]
        attrs |= {
            "activations": names * d,
            **({"activation_alpha": alphas} if alphas else {}),
            **({"activation_beta": betas} if betas else {}),
        }
    attrs |= {
        k: v
        for k, v in (
            ("clip", form.get("clip")),
            ("input_forget", int("coupled" in form)),
            ("linear_before_reset", int("lbr" in form)),
        )
        if v
    }
    for lengths, first in (
        (None, True),
        ([5, 1, 3, 4], True),
        ([2, 3, 3, 1], True),
        ([5, 2, 3, 1], False),
    ):
        check(
            engine,
            op,
            inputs(op, (5, 4, 3, 6), d, lengths=lengths, h=first, c=first, peepholes=first),
            by_definition(op, direction, **form),
            **attrs,
        )


@pytest.mark.parametrize("op", GATES)
def test_unwanted(engine, op):
    """One output, and gradients of some inputs only."""
    full = inputs(op, (4, 3, 5, 6), 2, h=True)
    for fixed in ((0,), (1, 2), (2, 5), (0, 1, 3)):
        check(
            engine,
            op,
            full,
            lambda *v: by_pytorch(op, "bidirectional")(*v)[0],
            fixed=fixed,
            outputs=1,
            direction="bidirectional",
            hidden_size=6,
            **({"linear_before_reset": 1} if op == "GRU" else {}),
        )
    model, feeds = node_model(op, full, outputs=2, direction="bidirectional", hidden_size=6)
    seeds = {"y1": f(2, 3, 6)}
    got, grads, _, _ = gradients(model, feeds, engine, seeds=seeds)
    tensors = [torch.tensor(x, requires_grad=True) if x is not None else None for x in full]
    y = by_definition(op, "bidirectional")(*tensors)[1]
    (y * torch.tensor(seeds["y1"])).sum().backward()
    for name, dx in grads.items():
        close(dx, tensors[int(name[1:])].grad.numpy(), 1e-4, f"gradient of {name}")


def test_large(engine):
    """Many rows, and wide ones, for threads to share."""
    check(
        engine,
        "LSTM",
        inputs("LSTM", (12, 33, 24, 64), 2),
        by_pytorch("LSTM", "bidirectional"),
        hidden_size=64,
        direction="bidirectional",
        outputs=3,
        tol=2e-3,
    )
