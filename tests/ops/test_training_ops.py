"""Ops that only training needs: gradients of norms, softmax and losses against PyTorch's, steps of optimizers over ten steps, clipping, random numbers."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgewise.autodiff import Gradients
from edgewise.bind import bind
from edgewise.errors import InputError, UnsupportedOp
from edgewise.ir import Graph, Value
from edgewise.ops.dtypes import FLOAT, INT8, INT64, UINT8
from edgewise.plan.builder import lower

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


@pytest.mark.parametrize("shape, axis", [((3, 64), -1), ((2, 5, 37), -1), ((2, 3, 4, 5), 2), ((1, 1), -1), ((200, 300), -1), ((2000, 24), -1)], ids=str)
@pytest.mark.parametrize("fixed", [(), (1,), (1, 2), (0,), (0, 1)], ids=str)
def test_layer_norm(engine, shape, axis, fixed):
    inputs = [f(*shape) * 2 + 1, f(*shape[axis:]), f(*shape[axis:])]
    check(engine, "LayerNormalization", inputs, lambda x, s, b: F.layer_norm(T(x), s.shape, T(s), T(b), 1e-3), fixed=fixed, axis=axis, epsilon=1e-3)


@pytest.mark.parametrize("shape, axis", [((3, 64), -1), ((2, 5, 37), -1), ((2, 3, 4, 5), 2), ((200, 300), -1)], ids=str)
@pytest.mark.parametrize("fixed", [(), (1,), (0,)], ids=str)
@pytest.mark.parametrize("op, opset", [("RMSNormalization", 23), ("SimplifiedLayerNormalization", 21)])
def test_rms_norm(engine, op, opset, shape, axis, fixed):
    inputs = [f(*shape) * 2, f(*shape[axis:])]
    check(engine, op, inputs, lambda x, s: rms_norm(T(x), T(s), 1e-3, s.ndim), fixed=fixed, axis=axis, epsilon=1e-3, opset=opset)


@pytest.mark.parametrize("shape, skip", [((2, 3, 64), (2, 3, 64)), ((2, 3, 37), (3, 37)), ((2, 3, 24), (1, 3, 24))], ids=str)
@pytest.mark.parametrize("rms", [0, 1])
@pytest.mark.parametrize("with_bias", [0, 1])
def test_skip_norm(engine, shape, skip, rms, with_bias):
    width = shape[-1:]
    inputs = [f(*shape), f(*skip), f(*width), *([] if rms else [f(*width)]), *([f(*width)] if with_bias else [])]

    def reference(x, skip, scale, *rest):
        rest = list(rest)
        total = x + skip + (rest.pop() if with_bias else 0)
        return rms_norm(total, scale, 1e-3) if rms else F.layer_norm(total, width, scale, rest[0], 1e-3), total
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
        expected = torch.autograd.grad([{"y0": y, "y3": total}[k] for k in wanted], given, [torch.tensor(d) for d in seeds.values()], retain_graph=True, allow_unused=True)
        for (k, g), e in zip(got.items(), expected):
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
@pytest.mark.parametrize("op, reference", [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)])
def test_softmax(engine, shape, op, reference):
    for axis in range(len(shape)):
        check(engine, op, [f(*shape) * 3], lambda x: reference(x, axis), axis=axis)
    if len(shape) == 3:
        check(engine, op, [f(*shape)], lambda x: reference(x.reshape(shape[0], -1), 1).reshape(shape), axis=1, opset=11)


# ---- losses ----
LOSSES = [((6, 5), {}), ((40, 300), {}), ((3, 4, 5), {}), ((2, 7, 3, 2), {}), ((6, 5), {"weight": True}), ((6, 5, 4), {"weight": True, "ignore_index": 2}), ((30, 11), {"ignore_index": -100}), ((3, 4099), {})]


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
    y, weight = _labels(shape, ignore, dtype), np.abs(f(shape[1])) + 0.1 if options.get("weight") else None
    attrs = {"reduction": reduction} | ({"ignore_index": ignore} if ignore is not None else {})
    torch_attrs = {"weight": None if weight is None else torch.tensor(weight), "reduction": reduction} | ({"ignore_index": ignore} if ignore is not None else {})
    extra, fixed = ([weight], (2,)) if weight is not None else ([], ())
    check(engine, "SoftmaxCrossEntropyLoss", [f(*shape) * 2, y, *extra], lambda x, *_: F.cross_entropy(x, torch.tensor(y).long(), **torch_attrs), fixed=fixed, **attrs)
    check(engine, "NegativeLogLikelihoodLoss", [f(*shape), y, *extra], lambda x, *_: F.nll_loss(x, torch.tensor(y).long(), **torch_attrs), fixed=fixed, **attrs)


def test_log_probabilities(engine):
    """The gradient also flows through SoftmaxCrossEntropyLoss' second output."""
    x, y = f(6, 5, 2), _labels((6, 5, 2), None, "int64")
    model, feeds = node_model("SoftmaxCrossEntropyLoss", [x, y], outputs=2)
    seeds = {"y0": np.float32(2), "y1": f(6, 5, 2)}
    _, got, _, _ = gradients(model, feeds, engine, seeds=seeds)
    t = torch.tensor(x, requires_grad=True)
    close(got["x0"], torch.autograd.grad(2 * F.cross_entropy(t, torch.tensor(y)) + (torch.log_softmax(t, 1) * torch.tensor(seeds["y1"])).sum(), t)[0])


# ---- graphs made by hand ----
def run(engine, build, feeds, states=(), times=1):
    """Runs what build(g, **values) adds `times` times. feeds: {name: array, or list of arrays, one per run}; states: {name: array}, updated in place. Returns [{output: array}]."""
    codes = {"float32": FLOAT, "int64": INT64, "int8": INT8, "uint8": UINT8, "int32": 6}
    bound = bind(Graph("test", opsets={"": 23}), {})
    first = {k: v[0] if isinstance(v, list) else v for k, v in feeds.items()}
    for k, v in first.items():
        bound.inputs[k] = Value(k, codes[v.dtype.name], v.shape, role="input")
    values = {k: bound.state(k, codes[v.dtype.name], v.shape) for k, v in dict(states).items()}
    outs = build(Gradients(bound), **bound.inputs, **values)
    bound.effects += [v for v in outs.pop("effects", [])]
    bound.outputs = outs
    plan = lower(bound.prune())
    loaded, results, memory = engine.load(plan), [], {}
    try:
        for i, s in enumerate(plan.slots):
            memory[s.name] = engine.alloc(s.nbytes)
            loaded.bind(i, memory[s.name])
        for k, v in dict(states).items():
            if k in memory:
                engine.write(memory[k], np.ascontiguousarray(v).tobytes())
        loaded.init()
        for t in range(times):
            for k, v in feeds.items():
                if k in memory:
                    engine.write(memory[k], np.ascontiguousarray(v[t] if isinstance(v, list) else v).tobytes())
            loaded.run()
            results.append({s.name: np.frombuffer(bytes(engine.read(memory[s.name], s.nbytes)), {FLOAT: np.float32, 7: np.int64, 9: bool}[s.dtype]).reshape(s.shape) for s in plan.slots if s.kind == "output"})
        for k, v in dict(states).items():
            if k in memory:
                v[...] = np.frombuffer(bytes(engine.read(memory[k], v.nbytes)), v.dtype).reshape(v.shape)
    finally:
        loaded.free()
        for a in memory.values():
            engine.free(a)
    return results


def optimize(engine, name, p, gradients, states, lr, scale=None, **attrs):
    """Runs one optimizer op over a list of gradients; p and the states are updated in place."""
    feeds = {"gradient": gradients, "lr": np.array([lr], np.float32), "step": [np.array([i + 1], np.int64) for i in range(len(gradients))]}
    if scale is not None:
        feeds["scale"] = np.array([scale], np.float32)

    def build(g, gradient, lr, step, p, scale=None, **kept):
        got = g.op(name, p, gradient, *kept.values(), lr, step, scale, domain="edgewise", outputs=1 + len(kept), **attrs)
        return {"effects": got if kept else [got]}
    run(engine, build, feeds, {"p": p, **states}, len(gradients))


OPTIMIZERS = [("AdamW", torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.8, 0.95)}, {"weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95}, 2),
              ("AdamW", torch.optim.AdamW, {"weight_decay": 0.0, "eps": 1e-3}, {"epsilon": 1e-3, "mode": "torch"}, 2),
              ("AdamW", torch.optim.Adam, {"weight_decay": 0.1}, {"weight_decay": 0.1, "mode": "adam"}, 2),
              ("SGD", torch.optim.SGD, {}, {}, 0),
              ("SGD", torch.optim.SGD, {"weight_decay": 0.1}, {"weight_decay": 0.1}, 0),
              ("SGD", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}, {"momentum": 0.9, "weight_decay": 0.1}, 1),
              ("SGD", torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}, {"momentum": 0.9, "dampening": 0.3}, 1),
              ("SGD", torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "nesterov": 1}, 1),
              ("Adagrad", torch.optim.Adagrad, {"weight_decay": 0.1}, {"weight_decay": 0.1}, 1),
              ("RMSprop", torch.optim.RMSprop, {"alpha": 0.9}, {"alpha": 0.9}, 1),
              ("RMSprop", torch.optim.RMSprop, {"centered": True, "weight_decay": 0.1}, {"centered": 1, "weight_decay": 0.1}, 2),
              ("RMSprop", torch.optim.RMSprop, {"momentum": 0.9}, {"momentum": 0.9}, 2),
              ("RMSprop", torch.optim.RMSprop, {"momentum": 0.9, "centered": True}, {"momentum": 0.9, "centered": 1}, 3)]


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
    optimize(engine, "AdamW", p, grads, {"m": np.zeros(50, np.float32), "v": np.zeros(50, np.float32)}, 0.01, mode="ort", epsilon=1e-3, weight_decay=0.1)
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
        return {"y": g.op("ClipScale", g.op("SumOfSquares", a, g.transpose(b, [1, 0]), c, d, domain="edgewise"), scale, domain="edgewise", max_norm=max_norm)}
    feeds = dict(zip("abcd", grads)) | ({"scale": np.array([scale], np.float32)} if scale else {})
    parameters = [torch.nn.Parameter(torch.zeros(g.shape)) for g in grads]
    for p, g in zip(parameters, grads):
        p.grad = torch.tensor(g * factor)
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    y, = run(engine, build, feeds)[0].values()
    close(grads[1] * y, parameters[1].grad, 1e-5)
