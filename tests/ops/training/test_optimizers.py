"""Optimizer steps and gradient clipping against PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from engines import open_engine

from ..gradients.compare import f
from .steps import close, run


def optimize(engine, name, p, gradients, states, lr, scale=None, **attrs):
    """Runs one optimizer op over a list of gradients; p and the states are updated in place."""
    feeds = {
        "gradient": gradients,
        "lr": np.array([lr], np.float32),
        "step": [np.array([i + 1], np.int64) for i in range(len(gradients))],
    }
    if scale is not None:
        feeds["scale"] = np.array([scale], np.float32)

    def build(g, gradient, lr, step, p, scale=None, **kept):
        got = g.op(
            name,
            p,
            gradient,
            *kept.values(),
            lr,
            step,
            scale,
            domain="edgewise",
            outputs=1 + len(kept),
            **attrs,
        )
        return {"effects": got if kept else [got]}

    run(engine, build, feeds, {"p": p, **states}, len(gradients))


OPTIMIZERS = [
    (
        "AdamW",
        torch.optim.AdamW,
        {"weight_decay": 0.1, "betas": (0.8, 0.95)},
        {"weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95},
        2,
    ),
    (
        "AdamW",
        torch.optim.AdamW,
        {"weight_decay": 0.0, "eps": 1e-3},
        {"epsilon": 1e-3, "mode": "torch"},
        2,
    ),
    ("AdamW", torch.optim.Adam, {"weight_decay": 0.1}, {"weight_decay": 0.1, "mode": "adam"}, 2),
    ("SGD", torch.optim.SGD, {}, {}, 0),
    ("SGD", torch.optim.SGD, {"weight_decay": 0.1}, {"weight_decay": 0.1}, 0),
    (
        "SGD",
        torch.optim.SGD,
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.9, "weight_decay": 0.1},
        1,
    ),
    (
        "SGD",
        torch.optim.SGD,
        {"momentum": 0.9, "dampening": 0.3},
        {"momentum": 0.9, "dampening": 0.3},
        1,
    ),
    (
        "SGD",
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "nesterov": 1},
        1,
    ),
    ("Adagrad", torch.optim.Adagrad, {"weight_decay": 0.1}, {"weight_decay": 0.1}, 1),
    ("RMSprop", torch.optim.RMSprop, {"alpha": 0.9}, {"alpha": 0.9}, 1),
    (
        "RMSprop",
        torch.optim.RMSprop,
        {"centered": True, "weight_decay": 0.1},
        {"centered": 1, "weight_decay": 0.1},
        2,
    ),
    ("RMSprop", torch.optim.RMSprop, {"momentum": 0.9}, {"momentum": 0.9}, 2),
    (
        "RMSprop",
        torch.optim.RMSprop,
        {"momentum": 0.9, "centered": True},
        {"momentum": 0.9, "centered": 1},
        3,
    ),
]


@pytest.mark.parametrize("name, reference, torch_attrs, attrs, states", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("shape", [(5,), (7, 9), (300, 257)], ids=str)
def test_optimizer(engine, name, reference, torch_attrs, attrs, states, shape):
    p, grads = f(*shape), [f(*shape) * 3 for _ in range(10)]
    if "weight_decay" in attrs and reference not in (torch.optim.AdamW, torch.optim.SGD):
        # The first step is the sum of gradient and decayed weight over its own magnitude: where the
        # two nearly cancel, its sign is that of a rounding error, unless epsilon is larger.
        torch_attrs, attrs = {**torch_attrs, "eps": 1e-3}, {**attrs, "epsilon": 1e-3}
    t = torch.nn.Parameter(torch.tensor(p))
    o = reference([t], lr=0.01, **torch_attrs)
    for g in grads:
        t.grad = torch.tensor(g) * 0.5
        o.step()
    kept = {f"s{i}": np.zeros(shape, np.float32) for i in range(states)}
    optimize(engine, name, p, grads, kept, 0.01, 0.5, **attrs)
    close(p, t, 1e-5)


def test_adamw_of_ort(engine):
    """ONNX Runtime Training's rule: epsilon is added to the uncorrected root, weight decay comes
    last.
    """
    p, grads = f(50), [f(50) for _ in range(10)]
    q, m, v = p.astype(np.float64), 0, 0
    for i, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.astype(np.float64) ** 2
        q = q - 0.01 * np.sqrt(1 - 0.999**i) / (1 - 0.9**i) * m / (np.sqrt(v) + 1e-3)
        q = q - 0.01 * 0.1 * q
    optimize(
        engine,
        "AdamW",
        p,
        grads,
        {"m": np.zeros(50, np.float32), "v": np.zeros(50, np.float32)},
        0.01,
        mode="ort",
        epsilon=1e-3,
        weight_decay=0.1,
    )
    close(p, q, 1e-5)


def test_lion(engine):
    """Algorithm 2 of Chen et al. 2023."""
    p, grads = f(50), [f(50) for _ in range(10)]
    grads[3][7] = 0
    q, m = p.astype(np.float64), np.zeros(50)
    for g in grads:
        q *= 1 - 0.01 * 0.1
        q -= 0.01 * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
    state = {"m": np.zeros(50, np.float32)}
    optimize(engine, "Lion", p, grads, state, 0.01, weight_decay=0.1)
    close(p, q, 1e-5)
    close(state["m"], m, 1e-5)


@pytest.mark.parametrize("max_norm", [0.5, 1e4])
@pytest.mark.parametrize("scale", [None, 0.25])
def test_clip(engine, max_norm, scale):
    grads = [f(7), f(300, 64), f(33, 5), f(40000)]
    factor = np.float32(scale or 1)

    def build(g, a, b, c, d, scale=None):
        return {
            "y": g.op(
                "ClipScale",
                g.op("SumOfSquares", a, g.transpose(b, [1, 0]), c, d, domain="edgewise"),
                scale,
                domain="edgewise",
                max_norm=max_norm,
            )
        }

    feeds = dict(zip("abcd", grads)) | ({"scale": np.array([scale], np.float32)} if scale else {})
    parameters = [torch.nn.Parameter(torch.zeros(g.shape)) for g in grads]
    for p, g in zip(parameters, grads):
        p.grad = torch.tensor(g * factor)
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    (y,) = run(engine, build, feeds)[0].values()
    close(grads[1] * y, parameters[1].grad, 1e-5)


def _regression(steps, update):
    """Loss of a small classifier after `steps` of update(parameters, gradients, step number)."""
    torch.manual_seed(0)
    x, teacher = torch.randn(512, 40), torch.nn.Linear(40, 10)
    y = teacher(x).argmax(1)
    net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    for i in range(steps):
        at = torch.arange(64) + 64 * (i % 8)
        loss = F.cross_entropy(net(x[at]), y[at])
        net.zero_grad()
        loss.backward()
        update(list(net.parameters()), i + 1)
    return F.cross_entropy(net(x), y).item()


def test_adamw_8bit():
    """Trains as well as with states of 32 bits; one step from zero is the same as theirs."""
    engine, kept = open_engine("native"), {}

    def reference(parameters, step):
        kept.setdefault("o", torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.01)).step()

    def ours(parameters, step):
        for i, q in enumerate(parameters):
            n = q.numel()
            m, v, ma, va = kept.setdefault(
                i,
                (
                    np.zeros(n, np.int8),
                    np.zeros(n, np.uint8),
                    np.zeros(-(-n // 256), np.float32),
                    np.zeros(-(-n // 256), np.float32),
                ),
            )
            p = q.detach().numpy()

            def build(g, gradient, lr, number, p, **s):
                return {
                    "effects": g.op(
                        "AdamW8bit",
                        p,
                        gradient,
                        s["m"],
                        s["ma"],
                        s["v"],
                        s["va"],
                        lr,
                        number,
                        domain="edgewise",
                        outputs=5,
                        weight_decay=0.01,
                    )
                }

            run(
                engine,
                build,
                {
                    "gradient": q.grad.numpy(),
                    "lr": np.array([3e-3], np.float32),
                    "number": np.array([step], np.int64),
                },
                {"p": p, "m": m, "ma": ma, "v": v, "va": va},
            )

    a, b = _regression(240, reference), _regression(240, ours)
    assert b < 1.05 * a + 0.005, (a, b)
    kept.clear()
    assert abs(_regression(1, reference) - _regression(1, ours)) < 1e-5


def test_adamw_8bit_moments(engine):
    """The moments follow those of 32 bits: no drift over many steps, though one changes v by less
    than the codes are apart.
    """
    r = np.random.default_rng(0)
    scales = (10.0 ** r.uniform(-2, 0, 700)).astype(np.float32)
    grads = [
        (r.standard_normal(700) * scales * (1.0 if i < 200 else 0.3)).astype(np.float32)
        for i in range(400)
    ]
    p = np.zeros(700, np.float32)
    states = {
        "m": np.zeros(700, np.int8),
        "ma": np.zeros(3, np.float32),
        "v": np.zeros(700, np.uint8),
        "va": np.zeros(3, np.float32),
    }
    optimize(engine, "AdamW8bit", p, grads, states, 1e-3, beta2=0.99)
    v = 0
    for g in grads:
        v = 0.99 * v + 0.01 * g.astype(np.float64) ** 2
    got = ((states["v"] + 1.0) / 256 * np.repeat(states["va"], 256)[:700]) ** 2
    large = np.sqrt(v) > 0.03 * np.repeat(states["va"], 256)[:700]
    ratio = np.sqrt(got / v)[large]
    assert large.mean() > 0.5 and abs(ratio.mean() - 1) < 0.03 and ratio.std() < 0.15, (
        ratio.mean(),
        ratio.std(),
    )
