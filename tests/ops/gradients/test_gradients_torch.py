"""Gradients of elementwise functions against PyTorch's, and gradients of gradients."""

import edgewise
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from edgewise.compiler.bind.autodiff import add_gradients
from edgewise.compiler.declare.dtypes import FLOAT
from edgewise.compiler.declare.values import RunTensor
from edgewise.compiler.ops import OPS
from edgewise.compiler.ops.elementwise.binary import declare_binary
from edgewise.compiler.plan import compile_graph
from edgewise.errors import MissingGradient
from edgewise.host.session.compiled import Compiled
from engines import open_engine
from onnx import helper

from ..harness import MS
from .compare import close
from .model import gradients, node_model

R = np.random.default_rng(3)
T = torch
UNARY = {
    "Neg": T.neg,
    "Abs": T.abs,
    "Exp": T.exp,
    "Sin": T.sin,
    "Cos": T.cos,
    "Tan": (T.tan, -1.4, 1.4),
    "Asin": (T.asin, -0.95, 0.95),
    "Acos": (T.acos, -0.95, 0.95),
    "Atan": T.atan,
    "Sinh": T.sinh,
    "Cosh": T.cosh,
    "Tanh": T.tanh,
    "Asinh": T.asinh,
    "Acosh": (T.acosh, 1.1, 9),
    "Atanh": (T.atanh, -0.95, 0.95),
    "Sqrt": (T.sqrt, 0.1, 9),
    "Log": (T.log, 0.1, 9),
    "Reciprocal": (T.reciprocal, 0.2, 5),
    "Erf": T.erf,
    "Sigmoid": T.sigmoid,
    "Relu": F.relu,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "HardSwish": F.hardswish,
    "Mish": F.mish,
    "Elu": F.elu,
    "Celu": F.celu,
    "Selu": F.selu,
    "LeakyRelu": F.leaky_relu,
    "Gelu": F.gelu,
    "Sign": T.sign,
    "Floor": T.floor,
    "Ceil": T.ceil,
    "Round": T.round,
    "Shrink": F.hardshrink,
}
WITH_ATTRIBUTES = [
    ("Gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ("LeakyRelu", {"alpha": 0.3}, lambda x: F.leaky_relu(x, 0.3)),
    ("LeakyRelu", {"alpha": -0.3}, lambda x: F.leaky_relu(x, -0.3)),
    ("Elu", {"alpha": 0.7}, lambda x: F.elu(x, 0.7)),
    ("Celu", {"alpha": 0.7}, lambda x: F.celu(x, 0.7)),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, F.hardsigmoid),
    ("ThresholdedRelu", {"alpha": 0.5}, lambda x: F.threshold(x, 0.5, 0.0)),
    ("ThresholdedRelu", {"alpha": -0.5}, lambda x: F.threshold(x, -0.5, 0.0)),
    ("Shrink", {"lambd": 0.4, "bias": 0.4}, lambda x: F.softshrink(x, 0.4)),
    ("Swish", {"opset": 24}, F.silu),
    ("QuickGelu", {"domain": MS}, lambda x: x * T.sigmoid(1.702 * x)),
    ("FastGelu", {"domain": MS}, lambda x: F.gelu(x, approximate="tanh")),
    ("Clip", {"opset": 6, "min": -0.5, "max": 0.7}, lambda x: x.clamp(-0.5, 0.7)),
]


def check(engine, op, inputs, reference, tol=2e-6, **attrs):
    model, feeds = node_model(op, inputs, **attrs)
    outputs, got, seeds, _ = gradients(model, feeds, engine)
    tensors = [
        torch.tensor(
            x,
            dtype=torch.float64 if x.dtype == np.float32 else None,
            requires_grad=x.dtype == np.float32,
        )
        for x in inputs
    ]
    y = reference(*tensors)
    close(outputs["y0"], y.detach().numpy().astype(np.float32), 1e-5, "output")
    if y.requires_grad:
        (y * torch.tensor(seeds["y0"], dtype=torch.float64)).sum().backward()
    for name, dx in got.items():
        want = tensors[int(name[1:])].grad
        want = np.zeros_like(feeds[name]) if want is None else want.numpy().astype(np.float32)
        close(np.zeros_like(want) if dx is None else dx, want, tol, f"gradient of {name}")


@pytest.mark.parametrize("name", UNARY)
def test_unary(engine, name):
    f, low, high = UNARY[name] if isinstance(UNARY[name], tuple) else (UNARY[name], -6, 6)
    check(engine, name, [R.uniform(low, high, (7, 93)).astype(np.float32)], f)


@pytest.mark.parametrize(
    "name, attrs, f",
    WITH_ATTRIBUTES,
    ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(WITH_ATTRIBUTES)],
)
def test_attributes(engine, name, attrs, f):
    check(engine, name, [R.uniform(-6, 6, (7, 93)).astype(np.float32)], f, **attrs)


BINARY = {
    "Add": T.add,
    "Sub": T.sub,
    "Mul": T.mul,
    "Div": T.div,
    "Min": T.minimum,
    "Max": T.maximum,
    "Mod": T.remainder,
    "FMod": T.fmod,
    "Pow": T.pow,
    "Sum": T.add,
    "Mean": lambda a, b: (a + b) / 2,
    "BiasGelu": lambda a, b: F.gelu(a + b),
    "FastGelu": lambda a, b: F.gelu(a + b, approximate="tanh"),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    "shapes",
    [((3, 37), (3, 37)), ((2, 3, 37), (37,)), ((2, 1, 5), (4, 1)), ((), (3, 2)), ((4, 3), ())],
    ids=str,
)
def test_binary(engine, name, shapes):
    gelu = name in ("BiasGelu", "FastGelu")
    if gelu and len(shapes[1]) != 1:
        pytest.skip("a bias is a vector")
    low = 0.3 if name in ("Div", "Pow", "Mod", "FMod") else -3
    a, b = (R.uniform(low, 3, s).astype(np.float32) for s in shapes)
    attrs = {"fmod": 1} if name == "FMod" else {"domain": MS} if gelu else {}
    op = "Mod" if name == "FMod" else name
    check(engine, op, [a, b], BINARY[name], tol=2e-5, **attrs)


DERIVED = {
    "mul": T.mul,
    "div": T.div,
    "prelu": lambda a, b: T.where(a < 0, a * b, a),
    "silu_mul": lambda a, b: F.silu(a) * b,
    "gelu_mul": lambda a, b: F.gelu(a) * b,
    "gelu_tanh_mul": lambda a, b: F.gelu(a, approximate="tanh") * b,
}


@pytest.mark.parametrize("code", DERIVED)
def test_binary_without_a_rule(engine, code):
    """An operator without a rule of its own has the derivatives of its formula."""
    declare_binary("Derived", code, "example.com")
    try:
        low = 0.3 if code == "div" else -3
        shapes = ((2, 3, 37), (3, 37) if code == "prelu" else (3, 1))
        a, b = (R.uniform(low, 3, s).astype(np.float32) for s in shapes)
        check(engine, "Derived", [a, b], DERIVED[code], tol=2e-5, domain="example.com")
    finally:
        del OPS["example.com", "Derived"]


def test_a_function_without_a_derivative_is_refused(engine):
    declare_binary("Derived", "fmod", "example.com")
    try:
        with pytest.raises(MissingGradient, match="Derived is not known: fmod has no derivative"):
            check(engine, "Derived", [np.ones(3, np.float32)] * 2, T.fmod, domain="example.com")
    finally:
        del OPS["example.com", "Derived"]


def test_prelu(engine):
    check(
        engine,
        "PRelu",
        [
            R.standard_normal((2, 4, 9)).astype(np.float32),
            R.standard_normal((4, 1)).astype(np.float32),
        ],
        lambda x, w: F.prelu(x, w[:, 0]),
        tol=1e-5,
    )


def test_where(engine):
    c = R.random((3, 1, 5)) < 0.5
    check(
        engine,
        "Where",
        [
            c,
            R.standard_normal((4, 5)).astype(np.float32),
            R.standard_normal((3, 1, 1)).astype(np.float32),
        ],
        lambda c, a, b: torch.where(c, a, b),
        tol=1e-5,
    )


SECOND = {
    "Mul": lambda x: x * x,
    "Exp": T.exp,
    "Sin": T.sin,
    "Tanh": T.tanh,
    "Sigmoid": T.sigmoid,
    "Sqrt": T.sqrt,
    "Log": T.log,
    "Reciprocal": T.reciprocal,
    "Softplus": F.softplus,
    "Erf": T.erf,
    "Atan": T.atan,
    "Relu": F.relu,
    "Softsign": F.softsign,
    "HardSwish": F.hardswish,
    "Elu": F.elu,
    "Celu": F.celu,
    "Mish": F.mish,
    "MatMul": lambda x: x @ x,
}


@pytest.mark.parametrize("name", SECOND)
def test_gradient_of_gradient(name):
    """d/dx of the sum of the squares of df/dx."""
    low = 0.2 if name in ("Sqrt", "Log", "Reciprocal") else -2
    x = R.uniform(low, 2, (4, 4)).astype(np.float32)
    two = name in ("Mul", "MatMul")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(name, ["x", "x"] if two else ["x"], ["y"])],
            "twice",
            [helper.make_tensor_value_info("x", FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))

    def differentiate(bound):
        leaf = bound.inputs["x"]
        (first,) = add_gradients(
            bound,
            [(bound.outputs["y"], bound.binder.constant(FLOAT, x.shape, [1.0] * x.size))],
            [leaf],
        )
        (second,) = add_gradients(
            bound,
            [(first, bound.binder.op("Mul", first, bound.binder.constant(FLOAT, [], [2.0])))],
            [leaf],
        )
        if second is not None:
            bound.outputs["second"] = second

    plan, bound = compile_graph(
        session.graph, {"x": list(x.shape)}, {"x": FLOAT}, transform=differentiate
    )
    compiled = Compiled(session, plan, bound)
    got = (
        compiled.run({"x": RunTensor(FLOAT, x.shape, x.tobytes())})["second"].bytes()
        if "second" in bound.outputs
        else b""
    )
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(SECOND[name](t).sum(), t, create_graph=True)
    want = (
        torch.zeros_like(t)
        if first.grad_fn is None
        else torch.autograd.grad(first.square().sum(), t)[0]
    )
    close(
        np.frombuffer(got, np.float32).reshape(x.shape) if got else np.zeros_like(x),
        want.numpy().astype(np.float32),
        1e-5,
        "second derivative",
    )
    compiled.free()
    session.free()


def test_second_derivative_that_is_not_there_is_refused():
    model, feeds = node_model("Gelu", [np.ones(3, np.float32)])
    session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))

    def differentiate(bound):
        leaf = bound.inputs["x0"]
        (first,) = add_gradients(bound, [(bound.outputs["y0"], leaf)], [leaf])
        add_gradients(bound, [(first, leaf)], [leaf])

    with pytest.raises(MissingGradient, match="second derivative of gelu"):
        compile_graph(session.graph, {"x0": [3]}, {"x0": FLOAT}, transform=differentiate)
    session.free()


# ---- what the recognising passes make of spelt-out activations ----
def gated(spelling, a, b):
    """(ModelProto, feeds) of activation(a) * b."""
    nodes, number = (
        {
            "silu": [("Sigmoid", ["a"], "s"), ("Mul", ["a", "s"], "y")],
            "gelu": [
                ("Div", ["a", "root"], "u"),
                ("Erf", ["u"], "e"),
                ("Add", ["e", "one"], "f"),
                ("Mul", ["a", "f"], "h"),
                ("Mul", ["h", "half"], "y"),
            ],
            "gelu_tanh": [
                ("Mul", ["a", "a"], "a2"),
                ("Mul", ["a2", "a"], "a3"),
                ("Mul", ["a3", "cubic"], "c"),
                ("Add", ["a", "c"], "d"),
                ("Mul", ["d", "outer"], "u"),
                ("Tanh", ["u"], "e"),
                ("Add", ["e", "one"], "f"),
                ("Mul", ["a", "half"], "h"),
                ("Mul", ["h", "f"], "y"),
            ],
        }[spelling],
        helper.make_tensor,
    )
    constants = {
        "root": np.sqrt(2),
        "one": 1,
        "half": 0.5,
        "cubic": 0.044715,
        "outer": np.sqrt(2 / np.pi),
    }
    graph = helper.make_graph(
        [
            helper.make_node(op, i, [o])
            for op, i, o in [*nodes, *([("Mul", ["y", "b"], "z")] if b is not None else [])]
        ],
        spelling,
        [
            helper.make_tensor_value_info(n, FLOAT, a.shape)
            for n in ("a", "b")[: 1 + (b is not None)]
        ],
        [helper.make_tensor_value_info("y" if b is None else "z", FLOAT, a.shape)],
        [number(n, FLOAT, [], [float(v)]) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), (
        {"a": a} if b is None else {"a": a, "b": b}
    )


@pytest.mark.parametrize(
    "spelling, f",
    [("silu", F.silu), ("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))],
)
@pytest.mark.parametrize("with_gate", (False, True))
def test_recognised(engine, spelling, f, with_gate):
    a, b = (R.uniform(-6, 6, (5, 67)).astype(np.float32) for _ in range(2))
    model, feeds = gated(spelling, a, b if with_gate else None)
    _, got, seeds, plan = gradients(model, feeds, engine)
    (seed,) = seeds.values()
    tensors = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in feeds.values()]
    (f(tensors[0]) * (tensors[1] if with_gate else 1) * torch.tensor(seed)).sum().backward()
    for (name, dx), t in zip(got.items(), tensors):
        close(dx, t.grad.numpy().astype(np.float32), 5e-7, name)
    assert len(plan.kernels) == 2, plan.kernels  # y, and all gradients at once
