"""Ops that only training needs: gradients of norms, softmax and losses against PyTorch's, steps of
optimizers over ten steps, clipping, random numbers.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from edgewise.bind import bind
from edgewise.bind.autodiff import Gradients, add_gradients
from edgewise.declare.dtypes import BOOL, FLOAT, INT8, INT32, INT64, UINT8
from edgewise.engine.native import NativeEngine
from edgewise.errors import InputError, UnsupportedOp
from edgewise.ir import Graph, Value
from edgewise.onnx import as_source, read_model
from edgewise.plan.builder import lower
from engines import open_engine
from onnx import helper, numpy_helper

from .gradients import gradients, node_model
from .test_gradients_structure import check, f

MS = "com.microsoft"
T = torch.as_tensor


def close(got, want, tol=1e-4):
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else np.asarray(want)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tol * max(1.0, np.abs(want).max())


# ---- norms ----
def rms_norm(x, scale, epsilon, width=1):
    return x * torch.rsqrt((x * x).mean(tuple(range(-width, 0)), keepdim=True) + epsilon) * scale


@pytest.mark.parametrize(
    "shape, axis",
    [
        ((3, 64), -1),
        ((2, 5, 37), -1),
        ((2, 3, 4, 5), 2),
        ((1, 1), -1),
        ((200, 300), -1),
        ((2000, 24), -1),
    ],
    ids=str,
)
@pytest.mark.parametrize("fixed", [(), (1,), (1, 2), (0,), (0, 1)], ids=str)
def test_layer_norm(engine, shape, axis, fixed):
    inputs = [f(*shape) * 2 + 1, f(*shape[axis:]), f(*shape[axis:])]
    check(
        engine,
        "LayerNormalization",
        inputs,
        lambda x, s, b: F.layer_norm(T(x), s.shape, T(s), T(b), 1e-3),
        fixed=fixed,
        axis=axis,
        epsilon=1e-3,
    )


@pytest.mark.parametrize(
    "shape, axis", [((3, 64), -1), ((2, 5, 37), -1), ((2, 3, 4, 5), 2), ((200, 300), -1)], ids=str
)
@pytest.mark.parametrize("fixed", [(), (1,), (0,)], ids=str)
@pytest.mark.parametrize(
    "op, opset", [("RMSNormalization", 23), ("SimplifiedLayerNormalization", 21)]
)
def test_rms_norm(engine, op, opset, shape, axis, fixed):
    inputs = [f(*shape) * 2, f(*shape[axis:])]
    check(
        engine,
        op,
        inputs,
        lambda x, s: rms_norm(T(x), T(s), 1e-3, s.ndim),
        fixed=fixed,
        axis=axis,
        epsilon=1e-3,
        opset=opset,
    )


@pytest.mark.parametrize(
    "shape, skip",
    [((2, 3, 64), (2, 3, 64)), ((2, 3, 37), (3, 37)), ((2, 3, 24), (1, 3, 24))],
    ids=str,
)
@pytest.mark.parametrize("rms", [0, 1])
@pytest.mark.parametrize("with_bias", [0, 1])
def test_skip_norm(engine, shape, skip, rms, with_bias):
    width = shape[-1:]
    inputs = [
        f(*shape),
        f(*skip),
        f(*width),
        *([] if rms else [f(*width)]),
        *([f(*width)] if with_bias else []),
    ]

    def reference(x, skip, scale, *rest):
        rest = list(rest)
        total = x + skip + (rest.pop() if with_bias else 0)
        return (
            rms_norm(total, scale, 1e-3)
            if rms
            else F.layer_norm(total, width, scale, rest[0], 1e-3)
        ), total

    name = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
    check(engine, name, inputs, lambda *g: reference(*g)[0], domain=MS, epsilon=1e-3)
    model, feeds = node_model(name, inputs, MS, outputs=4, epsilon=1e-3)
    del model.graph.output[1:3]
    model.graph.node[0].output[1] = model.graph.node[0].output[2] = ""
    given = [torch.tensor(x, requires_grad=True) for x in inputs]
    y, total = reference(*given)
    for wanted in (("y0", "y3"), ("y3",)):  # the sum alone too
        seeds = {k: f(*shape) for k in wanted}
        _, got, _, _ = gradients(model, feeds, engine, seeds=seeds)
        expected = torch.autograd.grad(
            [{"y0": y, "y3": total}[k] for k in wanted],
            given,
            [torch.tensor(d) for d in seeds.values()],
            retain_graph=True,
            allow_unused=True,
        )
        for (_k, g), e in zip(got.items(), expected):
            if e is not None:
                close(g, e)


def test_layer_norm_statistics(engine):
    x, scale, bias = f(2, 3, 40) * 3 + 1, f(40), f(40)
    model, feeds = node_model("LayerNormalization", [x, scale, bias], outputs=3, opset=17)
    out, got, _, _ = gradients(model, feeds, engine, seeds={"y0": f(2, 3, 40)})
    close(out["y1"], x.mean(-1, keepdims=True))
    close(out["y2"], 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5))
    with pytest.raises(UnsupportedOp, match="mean and deviation"):
        gradients(model, feeds, engine, seeds={"y1": f(2, 3, 1)})


# ---- softmax ----
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 37), (1, 1), (5,), (4, 1000)], ids=str)
@pytest.mark.parametrize(
    "op, reference", [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)]
)
def test_softmax(engine, shape, op, reference):
    for axis in range(len(shape)):
        check(engine, op, [f(*shape) * 3], lambda x: reference(x, axis), axis=axis)
    if len(shape) == 3:
        check(
            engine,
            op,
            [f(*shape)],
            lambda x: reference(x.reshape(shape[0], -1), 1).reshape(shape),
            axis=1,
            opset=11,
        )


# ---- losses ----
LOSSES = [
    ((6, 5), {}),
    ((40, 300), {}),
    ((3, 4, 5), {}),
    ((2, 7, 3, 2), {}),
    ((6, 5), {"weight": True}),
    ((6, 5, 4), {"weight": True, "ignore_index": 2}),
    ((30, 11), {"ignore_index": -100}),
    ((3, 4099), {}),
]


def _labels(shape, ignore, dtype):
    y = np.random.default_rng(0).integers(0, shape[1], (shape[0], *shape[2:])).astype(dtype)
    if ignore is not None:
        y.flat[::3] = ignore
    return y


@pytest.mark.parametrize("shape, options", LOSSES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_cross_entropy(engine, shape, options, reduction, dtype):
    ignore = options.get("ignore_index")
    y, weight = (
        _labels(shape, ignore, dtype),
        (np.abs(f(shape[1])) + 0.1 if options.get("weight") else None),
    )
    attrs = {"reduction": reduction} | ({"ignore_index": ignore} if ignore is not None else {})
    torch_attrs = {
        "weight": None if weight is None else torch.tensor(weight),
        "reduction": reduction,
    } | ({"ignore_index": ignore} if ignore is not None else {})
    extra, fixed = ([weight], (2,)) if weight is not None else ([], ())
    check(
        engine,
        "SoftmaxCrossEntropyLoss",
        [f(*shape) * 2, y, *extra],
        lambda x, *_: F.cross_entropy(x, torch.tensor(y).long(), **torch_attrs),
        fixed=fixed,
        **attrs,
    )
    check(
        engine,
        "NegativeLogLikelihoodLoss",
        [f(*shape), y, *extra],
        lambda x, *_: F.nll_loss(x, torch.tensor(y).long(), **torch_attrs),
        fixed=fixed,
        **attrs,
    )


def test_log_probabilities(engine):
    """The gradient also flows through SoftmaxCrossEntropyLoss' second output."""
    x, y = f(6, 5, 2), _labels((6, 5, 2), None, "int64")
    model, feeds = node_model("SoftmaxCrossEntropyLoss", [x, y], outputs=2)
    seeds = {"y0": np.float32(2), "y1": f(6, 5, 2)}
    _, got, _, _ = gradients(model, feeds, engine, seeds=seeds)
    t = torch.tensor(x, requires_grad=True)
    close(
        got["x0"],
        torch.autograd.grad(
            2 * F.cross_entropy(t, torch.tensor(y))
            + (torch.log_softmax(t, 1) * torch.tensor(seeds["y1"])).sum(),
            t,
        )[0],
    )


# ---- graphs made by hand ----
def run(engine, build, feeds, states=(), times=1):
    """Runs what build(g, **values) adds `times` times. feeds: {name: array, or list of arrays, one
    per run}; states: {name: array}, updated in place. Returns [{output: array}].
    """
    codes = {"float32": FLOAT, "int64": INT64, "int8": INT8, "uint8": UINT8, "int32": INT32}
    bound = bind(Graph("test", opsets={"": 23}), {})
    first = {k: v[0] if isinstance(v, list) else v for k, v in feeds.items()}
    for k, v in first.items():
        bound.inputs[k] = Value(k, codes[v.dtype.name], v.shape, role="input")
    values = {k: bound.state(k, codes[v.dtype.name], v.shape) for k, v in dict(states).items()}
    outs = build(Gradients(bound), **bound.inputs, **values)
    bound.effects += list(outs.pop("effects", []))
    bound.outputs = outs
    return run_plan(engine, lower(bound.prune()), feeds, states, times)


def run_plan(engine, plan, feeds, states=(), times=1):
    loaded, results, memory = engine.load(plan), [], {}
    types = {FLOAT: np.float32, INT64: np.int64, BOOL: bool}
    try:
        for i, s in enumerate(plan.slots):
            memory[s.name] = engine.alloc(s.nbytes)
            loaded.bind(i, memory[s.name], s.nbytes)
        for k, v in dict(states).items():
            engine.write(memory[k], v.tobytes())
        loaded.init()
        for t in range(times):
            for k, v in feeds.items():
                engine.write(
                    memory[k], np.ascontiguousarray(v[t] if isinstance(v, list) else v).tobytes()
                )
            loaded.run()
            results.append(
                {
                    s.name: (
                        np.frombuffer(
                            bytes(engine.read(memory[s.name], s.nbytes)), types[s.dtype]
                        ).reshape(s.shape)
                    )
                    for s in plan.slots
                    if s.kind == "output"
                }
            )
        for k, v in dict(states).items():
            v[...] = np.frombuffer(bytes(engine.read(memory[k], v.nbytes)), v.dtype).reshape(
                v.shape
            )
    finally:
        loaded.free()
        for a in memory.values():
            engine.free(a)
    return results


def smoothed(engine, x, y, weight=None, **attrs):
    """(loss, gradient in x) of the op CrossEntropy."""
    feeds = {"x": x, "y": y} | ({"w": weight} if weight is not None else {})

    def build(g, x, y, w=None):
        loss = g.op("CrossEntropy", x, y, w, domain="edgewise", **attrs)
        seed = g.constant(FLOAT, loss.shape, [0.5] * int(np.prod(loss.shape)))
        return {"loss": loss, "dx": add_gradients(g.bound, [(loss, seed)], [x])[0]}

    (out,) = run(engine, build, feeds)
    return out["loss"], out["dx"]


@pytest.mark.parametrize(
    "shape, ignore, weighted",
    [((6, 5), None, False), ((9, 67), -100, False), ((9, 67), 3, True), ((4, 5, 3), -1, True)],
    ids=str,
)
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_label_smoothing(engine, shape, ignore, weighted, smoothing, reduction):
    x, y, weight = (
        f(*shape) * 2,
        _labels(shape, ignore, "int64"),
        np.abs(f(shape[1])) + 0.1 if weighted else None,
    )
    attrs = {"label_smoothing": smoothing, "reduction": reduction} | (
        {"ignore_index": ignore} if ignore is not None else {}
    )
    t = torch.tensor(x, requires_grad=True)
    loss = F.cross_entropy(
        t, torch.tensor(y), weight=None if weight is None else torch.tensor(weight), **attrs
    )
    got, dx = smoothed(engine, x, y, weight, **attrs)
    close(got, loss)
    close(dx, torch.autograd.grad(0.5 * loss.sum(), t)[0])


@pytest.mark.parametrize("label, ignore", [(5, None), (-1, None), (-100, 3), (2**40, -100)])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_labels_out_of_range(engine, label, ignore, reduction):
    with pytest.raises(InputError, match=f"out of range .{label}"):
        smoothed(
            engine,
            f(3, 5),
            np.array([0, label, 1]),
            reduction=reduction,
            **({"ignore_index": ignore} if ignore is not None else {}),
        )


@pytest.mark.parametrize("ignore", [-100, 7, 2])
def test_ignored_rows(engine, ignore):
    """What stands in a row that is ignored does not matter; where all are, the mean is NaN, as
    PyTorch's, and the gradient still zero.
    """
    x, y = f(4, 5), np.array([ignore, 1, ignore, 0])
    x[0] = np.nan
    loss, dx = smoothed(engine, x, y, ignore_index=ignore, reduction="mean")
    t = torch.tensor(x[[1, 3]], requires_grad=True)
    want = F.cross_entropy(t, torch.tensor([1, 0]))
    close(loss, want)
    close(dx[[1, 3]], torch.autograd.grad(0.5 * want, t)[0])
    assert not dx[[0, 2]].any()
    loss, dx = smoothed(engine, x, np.full(4, ignore), ignore_index=ignore, reduction="mean")
    assert np.isnan(loss) and not dx.any()


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
    t = torch.nn.Parameter(torch.tensor(p))
    o = reference([t], lr=0.01, **torch_attrs)
    for g in grads:
        t.grad = torch.tensor(g) * 0.5
        o.step()
    kept = {f"s{i}": np.zeros(shape, np.float32) for i in range(states)}
    optimize(engine, name, p, grads, kept, 0.01, 0.5, **attrs)
    close(p, t, 1e-5)


def test_adamw_of_ort(engine):
    """ONNX Runtime Training's rule: epsilon beside the root that is not corrected, decay last."""
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


# ---- random numbers ----
def philox(counter, key, rounds=7):
    """Philox-4x32 of arrays of words."""
    c, k = [np.asarray(x, np.uint64) for x in counter], list(key)
    for _ in range(rounds):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
        c = [
            b >> high ^ c[1] ^ np.uint64(k[0]),
            b & low,
            a >> high ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(n, seed, stream):
    """What core/kernels/random/random.c draws for n elements."""
    blocks = np.arange(-(-n // 16) * 4)
    w = philox(
        [blocks, 0 * blocks, 0 * blocks + stream, 0 * blocks], [seed & 0xFFFFFFFF, seed >> 32]
    )
    return np.stack(w, 0).reshape(4, -1, 4).transpose(1, 0, 2).reshape(-1)[:n].astype(np.uint32)


def test_philox():
    """Known answers of Random123 1.14."""
    assert [int(x[0]) for x in philox([[0]] * 4, [0, 0], 10)] == [
        0x6627E8D5,
        0xE169C58D,
        0xBC57AC4C,
        0x9B00DBD8,
    ]
    assert [int(x[0]) for x in philox([[0xFFFFFFFF]] * 4, [0xFFFFFFFF] * 2, 10)] == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]
    assert [int(x[0]) for x in philox([[0]] * 4, [0, 0])] == [
        0x5F6FB709,
        0x0D893F64,
        0x4F121F81,
        0x4F730A48,
    ]


@pytest.mark.parametrize("shape", [(1,), (17,), (3, 64), (5, 7001)], ids=str)
def test_random(engine, shape):
    seed, n = 0x123456789ABCDEF, int(np.prod(shape))
    x, d, r = f(*shape), f(*shape), words(n, seed, 3).reshape(shape)

    def build(g, x, d, seed):
        a = g.op("Dropout", x, seed, domain="edgewise", ratio=0.3, stream=3)
        b = g.op(
            "Dropout",
            g.transpose(g.transpose(d, range(d.rank)[::-1]), range(d.rank)[::-1]),
            seed,
            domain="edgewise",
            ratio=0.7,
            stream=3,
        )
        return {
            "a": a,
            "b": b,
            "u": g.op(
                "RandomUniform",
                seed,
                domain="edgewise",
                shape=list(shape),
                low=-0.5,
                high=0.25,
                stream=3,
            ),
            "v": g.op("RandomUniform", seed, domain="edgewise", shape=list(shape), stream=4),
        }

    (out,) = run(engine, build, {"x": x, "d": d, "seed": np.array([seed], np.int64)})
    close(out["a"], np.where(r >= 0.3 * 2**32, x / 0.7, 0), 1e-6)
    close(out["b"], np.where(r >= 0.7 * 2**32, d / 0.3, 0), 1e-6)
    close(out["u"], (r >> 8) * 2.0**-24 * 0.75 - 0.5, 1e-6)
    assert (out["v"] == (words(n, seed, 4).reshape(shape) >> 8) * np.float32(2.0**-24)).all()


@pytest.mark.parametrize(
    "opset, training_mode", [(7, None), (12, None), (13, True), (22, True), (22, False)]
)
def test_dropout(engine, opset, training_mode):
    """A file's Dropout: drawn from the seed where the graph is bound for training, with the same
    mask backwards; nothing else.
    """
    constants = [
        numpy_helper.from_array(np.float32(0.25), "ratio"),
        numpy_helper.from_array(np.array(bool(training_mode)), "mode"),
    ]
    inputs = ["x"] if opset < 12 else ["x", "ratio"] + ([] if training_mode is None else ["mode"])
    node = helper.make_node(
        "Dropout", inputs, ["y", "mask"], **({"ratio": 0.25} if opset < 12 else {})
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, [50, 40])],
        [
            helper.make_tensor_value_info("y", 1, None),
            helper.make_tensor_value_info("mask", 9, None),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    x, dy = f(50, 40), f(50, 40)
    for training in (False, True):
        bound = bind(
            read_model(as_source(model.SerializeToString())), {"x": [50, 40]}, training=training
        )
        d = bound.inputs["dy"] = Value("dy", FLOAT, [50, 40], role="input")
        (bound.outputs["dx"],) = add_gradients(
            bound, [(bound.outputs["y"], d)], [bound.inputs["x"]]
        )
        assert ("seed" in bound.inputs) == (training and training_mode is not False)
        feeds = {"x": x, "dy": dy} | (
            {"seed": np.array([5], np.int64)} if "seed" in bound.inputs else {}
        )
        (out,) = run_plan(engine, lower(bound), feeds)
        kept = (
            words(2000, 5, 1).reshape(50, 40) >= 2**30
            if "seed" in bound.inputs
            else np.ones((50, 40), bool)
        )
        assert (out["mask"] == kept).all()
        factor = np.float32(1 / 0.75) if "seed" in bound.inputs else 1
        close(out["y"], np.where(kept, x * factor, 0), 1e-6)
        close(out["dx"], np.where(kept, dy * factor, 0), 1e-6)


def test_threads_change_nothing():
    """Sums run over the same parts whatever the number of threads: the same bits."""
    x, dy, scale = f(3000, 96), f(3000, 96), f(96)
    logits, labels = f(700, 301), np.random.default_rng(0).integers(0, 301, 700)

    def build(g, x, dy, scale, logits, labels):
        dx, dscale, dbias = g.op(
            "NormGrad", x, dy, scale, domain="edgewise", outputs=3, rms=0, epsilon=1e-5, cols=96
        )
        return {
            "dx": dx,
            "dscale": dscale,
            "dbias": dbias,
            "loss": g.op("CrossEntropy", logits, labels, domain="edgewise"),
            "norm": g.op("SumOfSquares", x, dy, scale, domain="edgewise"),
        }

    feeds = {"x": x, "dy": dy, "scale": scale, "logits": logits, "labels": labels}
    outs = []
    for threads in (1, 2, 3):
        engine = NativeEngine(threads=threads)
        outs.append(run(engine, build, feeds)[0])
    for out in outs[1:]:
        assert all((out[k] == outs[0][k]).all() for k in out)
