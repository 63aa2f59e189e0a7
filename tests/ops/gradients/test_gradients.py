"""Every gradient rule against finite differences of an implementation that is not ours, on the
cases that the ops declare.

What is compared is the derivative along a direction, of a random linear functional of the outputs:
along each element of small inputs, along a few random directions of larger ones. The functional is
evaluated by ONNX's reference evaluator in float64 where it can, else by onnxruntime in float32 with
wider steps and tolerance, else (ops that neither can run) by our own engine's forward pass. A
direction along which the function has a kink is left out.
"""

import warnings

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.compiler.ops import OPS
from edgewise.errors import MissingGradient, ModelError, UnsupportedOp
from engines import open_engine, quick_engines
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from tiers import slow_unless

from ..harness import MS, Case, Toolbox
from .model import gradients, node_model

MAX, QUICK = 12, 4  # cases per op; those of `make test`
ELEMENTS = 8  # inputs of up to this many elements are differentiated by each of them
DIRECTIONS = 3  # of larger ones
LARGEST = 20000  # elements of a case

# Numerical differences do not show the gradients that training needs of these.
STRAIGHT_THROUGH = {
    "QuantizeLinear": "rounding counts as the identity",
    "DynamicQuantizeLinear": "rounding counts as the identity",
    "FakeQuant": "rounding counts as the identity",
    "DynamicQuantizeMatMul": "it is made of DynamicQuantizeLinear",
}
NOT_DIFFERENTIATED = {
    ("SoftmaxCrossEntropyLoss", "x2"): "class weights, nor does PyTorch",
    ("NegativeLogLikelihoodLoss", "x2"): "class weights, nor does PyTorch",
}


def differentiable(case):
    """A float32 case with finite numbers."""
    arrays = [x for x, _ in case.inputs if x is not None]
    return (
        any(x.dtype == np.float32 and not fixed for x, fixed in case.inputs if x is not None)
        and not any(
            x.dtype.kind == "f" and x.dtype != np.float32 or x.dtype.name in ("bfloat16",)
            for x in arrays
        )
        and all(np.isfinite(x).all() for x in arrays if x.dtype.kind == "f")
        and sum(x.size for x in arrays) <= LARGEST
    )


FLOAT32_INSIDE = ("Erf", "Gelu")  # the reference evaluator's erf; others are found out
BESIDES = {"BatchNormalization": ("y1", "y2")}  # running statistics are not differentiated


def prepared(case):
    """The case with everything that is not a float in the model."""
    case.inputs = [
        (x, fixed or x is not None and x.dtype != np.float32) for x, fixed in case.inputs
    ]
    return case


def gradient_cases():
    out = []
    for (domain, name), op in OPS.items():
        if (
            op.cases_fn is None
            or domain == "edgewise"
            or (op.grad_fn is None and op.decompose_fn is None)
            or name in STRAIGHT_THROUGH
        ):
            continue
        seen, kept = set(), []
        for i, case in enumerate(op.cases_fn(Toolbox(domain, name))):
            key = repr(case)
            if len(kept) < MAX and key not in seen and differentiable(case):
                seen.add(key)
                prepared(case).quick = len(kept) < QUICK
                kept.append((f"{'ms.' if domain else ''}{name}-{i}", case))
        out += kept
    return out


CASES = gradient_cases()


class Function:
    """sum(seed * output) of a case's model as a function of its float inputs; outputs: what our
    engine gave. exact: in float64.
    """

    def __init__(self, case, outputs, seeds):
        self.case, self.seeds, self.outputs = case, seeds, outputs
        self.magnitude = float(
            np.sqrt(sum(np.sum(np.square(np.nan_to_num(outputs[n] * s))) for n, s in seeds.items()))
        )
        for make in (self._float64, self._onnxruntime, self._own):
            try:
                self.run, self.by, self.exact = make()
                break
            except Exception as e:
                self.refused = e
        else:
            raise self.refused

    def __call__(self, feeds):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(
                float(np.sum(np.asarray(y, np.float64) * self.seeds[n]))
                for n, y in self.run(feeds).items()
                if n in self.seeds
            )

    def _float64(self):
        case = self.case
        if (case.same_as or (case.domain,))[0] == MS:
            raise NotImplementedError
        wide = Case(
            case.domain,
            case.name,
            [],
            1,
            case.opset,
            None,
            None,
            None,
            case.same_as,
            False,
            {k: _wide(v) for k, v in case.attrs.items()},
        )
        wide.wanted, wide.inputs = (
            case.wanted,
            [
                (None if x is None else x.astype(np.float64) if x.dtype == np.float32 else x, c)
                for x, c in case.inputs
            ],
        )
        model, fixed = wide.model(reference=True)
        evaluator, names = ReferenceEvaluator(model), [o.name for o in model.graph.output]

        def run(feeds):
            return dict(zip(names, evaluator.run(None, {**fixed, **feeds})))

        self._must_agree(run({}), 2e-5)
        if case.name in FLOAT32_INSIDE or not self._is_exact(run, fixed):
            raise NotImplementedError("it computes in float32")
        return run, "the reference evaluator in float64", True

    def _is_exact(self, run, fixed):
        """Whether nothing inside is float32, which answers a small change with none or with a
        jump.
        """
        random = np.random.default_rng(2)
        ways = {n: random.uniform(0.5, 1.5, x.shape) for n, x in fixed.items()}

        def moved(by):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = run(
                    {
                        n: np.asarray(x * (1 + by * ways[n])) if x.dtype == np.float64 else x
                        for n, x in fixed.items()
                    }
                )
            if any(np.asarray(y).dtype != np.float64 for n, y in out.items() if n in self.seeds):
                raise NotImplementedError("an output is not float64")
            return np.concatenate(
                [np.nan_to_num(np.ravel(y)) for n, y in out.items() if n in self.seeds]
            )

        at = [moved(k * 1e-6) for k in range(4)]
        steps = [y - x for x, y in zip(at, at[1:])]  # what is rounded to 6e-8 cannot be that even
        return bool(
            all(
                (
                    np.abs(s - steps[0])
                    <= 1e-4 * np.abs(steps[0]).max(initial=0) + 1e-13 * np.abs(at[0]).max(initial=0)
                ).all()
                for s in steps
            )
        )

    def _onnxruntime(self):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        model, fixed = self.case.model(reference=True)
        session, names = (
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, ["CPUExecutionProvider"]
            ),
            [o.name for o in model.graph.output],
        )

        def run(feeds):
            return dict(zip(names, session.run(None, {**fixed, **_narrow(feeds)})))

        self._must_agree(run({}), 1e-3)
        return run, "onnxruntime in float32", False

    def _own(self):
        model, fixed = self.case.model()
        session, names = (
            edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native")),
            [o.name for o in model.graph.output],
        )

        def run(feeds):
            return dict(zip(names, session.run(None, {**fixed, **_narrow(feeds)})))

        return run, "our own engine", False

    def _must_agree(self, outputs, tol):
        """Implementations that compute something else are not compared: if the case trusts another
        one, or this one has a known defect.
        """
        for n, y in outputs.items():
            y = np.asarray(y, np.float64)
            if n in self.outputs and not np.allclose(
                y,
                self.outputs[n],
                rtol=tol,
                atol=0.1 * tol * max(1.0, float(np.abs(y).max(initial=0))),
                equal_nan=True,
            ):
                raise NotImplementedError("it gives other outputs")

    def along(self, feeds, name, direction):
        """(derivative, its uncertainty) along a direction of an input; None at a kink, at a jump or
        outside of the function's domain.
        """
        x, h = feeds[name], 1e-5 if self.exact else 4e-3
        at = lambda t: self({**feeds, name: np.asarray(x + t * direction)})
        here, up, down = at(0), at(h), at(-2 * h)  # unequal steps tell a jump from a slope
        forward, back = (up - here) / h, (here - down) / (2 * h)
        if not np.isfinite([up, down, here]).all():
            return None
        size = abs(forward) + abs(back)
        noise = (1e-14 if self.exact else 1e-7) * (abs(here) + self.magnitude) / h
        if abs(forward - back) > (1e-2 if self.exact else 0.1) * size + 1e-3 + 4 * noise:
            return None
        estimate = (2 * forward + back) / 3
        if self.exact:
            return estimate, noise
        near = [
            (at(t) - at(-t)) / (2 * t) for t in (h / 4, h / 2)
        ]  # where they differ there are kinks nearby
        return near[0], 8 * noise + 2 * (max(*near, estimate) - min(*near, estimate))


def _wide(attribute):
    if isinstance(attribute, onnx.TensorProto) and attribute.data_type == TensorProto.FLOAT:
        return numpy_helper.from_array(numpy_helper.to_array(attribute).astype(np.float64))
    return attribute


def _narrow(feeds):
    return {n: x.astype(np.float32) if x.dtype == np.float64 else x for n, x in feeds.items()}


def directions(x, random):
    if x.size <= ELEMENTS:
        return list(np.eye(x.size).reshape(x.size, *x.shape))
    out = [random.standard_normal(x.shape) for _ in range(DIRECTIONS)]
    one = np.zeros(x.size)
    one[random.integers(x.size)] = 1
    return [*(d / np.sqrt(np.mean(d * d)) for d in out), one.reshape(x.shape)]


def check(case, engine):
    model, feeds = case.model()
    outputs, got, seeds, _ = gradients(model, feeds, engine, without=BESIDES.get(case.name, ()))
    function = Function(
        case,
        {n: np.asarray(y, np.float64) for n, y in outputs.items()},
        {n: s.astype(np.float64) for n, s in seeds.items()},
    )
    wide, random, compared, left_out = (
        {n: x.astype(np.float64) for n, x in feeds.items()},
        np.random.default_rng(1),
        0,
        0,
    )
    tol, wrong = 2e-4 if function.exact else 1e-2, []
    for name, dx in got.items():
        x = feeds[name]
        if dx is None and (case.name, name) in NOT_DIFFERENTIATED:
            continue
        assert dx is None or dx.shape == x.shape and dx.dtype == np.float32, (
            f"{case}: the gradient of {name} is {dx.dtype}{dx.shape}"
        )
        g = np.zeros(x.shape) if dx is None else dx.astype(np.float64)
        typical = np.sqrt(np.mean(np.square(g))) if g.size else 0.0
        for d in directions(x, random):
            expected = function.along(wide, name, d)
            if expected is None:
                left_out += 1
                continue
            compared += 1
            mine, size = (
                float(np.sum(g * d)),
                max(float(np.sqrt(np.sum(np.square(g * d)))), typical),
            )
            if (
                not abs(mine - expected[0])
                <= tol * max(size, abs(expected[0])) + expected[1] + 1e-5
            ):
                wrong.append(
                    f"{name}{' (no gradient)' if dx is None else ''}: {mine:.6g} instead of"
                    f" {expected[0]:.6g} ± {expected[1]:.1g}"
                )
    assert not wrong, (
        f"{case} against {function.by}: {len(wrong)} of {compared} directions, first {wrong[:3]}"
    )
    return function, compared, left_out


@pytest.mark.parametrize(
    "case", slow_unless(lambda c: c.quick, [c for _, c in CASES]), ids=[i for i, _ in CASES]
)
def test_gradient(case):
    try:
        check(case, open_engine("native"))
    except MissingGradient as e:
        pytest.skip(str(e).splitlines()[0])
    except (UnsupportedOp, ModelError) as e:
        pytest.skip(f"refused: {e}")


def test_wasm_gives_what_native_gives():
    """The first three cases of each op; in `make test` on one of the two engines in turn."""
    kept, wrong = {}, []
    for i, case in CASES:
        kept.setdefault(i.rsplit("-", 1)[0], []).append((i, case))
    for number, (i, case) in enumerate(pair for pairs in kept.values() for pair in pairs[:3]):
        model, feeds = case.model()
        try:
            _, expected, _, _ = gradients(model, feeds, open_engine("native"))
        except UnsupportedOp:
            continue
        for flavour in quick_engines(number)[1:]:
            _, got, _, _ = gradients(model, feeds, open_engine(flavour))
            for name, e in expected.items():
                if e is None or not e.size or not np.isfinite(e).all():
                    continue
                off = np.abs(got[name] - e).max()
                if not off <= 1e-5 * max(1.0, np.abs(e).max()):
                    wrong.append(f"{i} {name} on {flavour}: off by {off} of {np.abs(e).max()}")
    assert not wrong, wrong


@pytest.mark.parametrize(
    "op, shapes, attrs",
    [
        ("BatchNormalization", [(0, 3, 4), (3,), (3,), (3,), (3,)], {}),
        ("LayerNormalization", [(0, 5, 8), (8,), (8,)], {}),
        ("GroupNormalization", [(0, 4, 5), (4,), (4,)], {"num_groups": 2}),
        ("InstanceNormalization", [(0, 4, 5), (4,), (4,)], {}),
        ("Conv", [(0, 3, 9), (4, 3, 3), (4,)], {}),
        ("MatMul", [(0, 4), (4, 5)], {}),
        ("Gemm", [(0, 4), (4, 5), (5,)], {}),
        ("PRelu", [(0, 4), (4,)], {}),
        ("Mul", [(0, 4), (4,)], {}),
    ],
)
def test_an_empty_batch(op, shapes, attrs):
    """What all items share has a gradient of zeros."""
    random = np.random.default_rng(0)
    model, feeds = node_model(
        op, [random.uniform(0.5, 1, s).astype(np.float32) for s in shapes], **attrs
    )
    _, got, _, _ = gradients(model, feeds, open_engine("native"), wrt=list(feeds)[1:])
    for name, g in got.items():
        assert g is None or g.shape == feeds[name].shape and not g.any(), f"{name}: {g}"


# ---- that nothing is forgotten ----
ORT_HAD = """
    Abs Add Sub Mul Div Pow Neg Exp Log Sqrt Sin Cos Tanh Sigmoid Relu LeakyRelu Erf Reciprocal Clip
    Min Max Where Cast Identity Gelu FastGelu QuickGelu BiasGelu MatMul Gemm Conv ConvTranspose
    MaxPool AveragePool GlobalAveragePool Resize Softmax LogSoftmax LayerNormalization
    SimplifiedLayerNormalization BatchNormalization SoftmaxCrossEntropyLoss Dropout ReduceSum
    ReduceMean ReduceL2 ReduceLogSumExp Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile
    Concat Split Slice Pad Trilu Gather GatherElements GatherND ScatterElements ScatterND TopK LSTM
    GRU FakeQuant
""".split()
ORT_LACKED = """
    Acos Asin Atan Ceil Celu Cosh Elu Floor HardSigmoid HardSwish Mish Round Selu Sign Sinh Softplus
    Softsign Tan ThresholdedRelu LpNormalization MeanVarianceNormalization Sum Mean PRelu Mod Einsum
    CumSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceSumSquare ReduceLogSum GlobalMaxPool LpPool
    InstanceNormalization GroupNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
    LRN DepthToSpace SpaceToDepth GridSample RNN NegativeLogLikelihoodLoss DequantizeLinear
    MatMulNBits MultiHeadAttention Attention GroupQueryAttention RotaryEmbedding FusedMatMul
""".split()
OURS_TOO = "Asinh Acosh Atanh Swish Shrink CastLike".split()


@pytest.mark.parametrize("name", ORT_HAD + ORT_LACKED + OURS_TOO)
def test_declared(name):
    """Each float operator, in all its domains, has a gradient rule or is composed of operators that
    have one.
    """
    found = [op for (_, n), op in OPS.items() if n == name]
    assert found, f"{name} is not there"
    vanishes = name == "Identity"  # at binding: its output is its input
    assert vanishes or all(op.grad_fn is not None or op.decompose_fn is not None for op in found), (
        f"{name} has no gradient"
    )


# ---- where there is a choice ----
def grads_of(op, *inputs, dy=1.0, **attrs):
    domain = attrs.pop("domain", "")
    model, feeds = node_model(
        op, [np.asarray(x, np.float32) for x in inputs], domain=domain, **attrs
    )
    shape = np.broadcast_shapes(*(np.shape(x) for x in inputs))
    return [
        g.tolist()
        for g in gradients(
            model, feeds, open_engine("native"), seeds={"y0": np.full(shape, dy, np.float32)}
        )[1].values()
    ]


def test_at_kinks_and_ties_as_pytorch():
    assert grads_of("Abs", [0, -1, 1]) == [[0, -1, 1]]
    assert grads_of("Relu", [0, -1, 1]) == [[0, 0, 1]]
    assert grads_of("LeakyRelu", [0, -1, 1], alpha=0.5) == [[0.5, 0.5, 1]]
    assert grads_of("Max", [1, 2, 3], [1, 3, 2]) == [[0.5, 0, 1], [0.5, 1, 0]]
    assert grads_of("Min", [1, 2, 3], [1, 3, 2]) == [[0.5, 1, 0], [0.5, 0, 1]]
    assert grads_of("Clip", [-1, 0, 0.5, 1, 2], 0, 1)[0] == [0, 1, 1, 1, 0]
    assert grads_of("Pow", [0, 2], [0, 0])[0] == [0, 0]
    assert grads_of("Pow", [0, 0], [2, 0])[1] == [0, 0]
    assert grads_of("PRelu", [0, -1, 1], [0.5, 0.5, 0.5])[0] == [0.5, 0.5, 1]


@pytest.mark.parametrize(
    "op, attrs",
    [
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("Mish", {}),
        ("Swish", {"opset": 24}),
        ("QuickGelu", {"domain": MS}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Softplus", {}),
        ("Elu", {}),
        ("Selu", {}),
        ("Celu", {}),
        ("Softsign", {}),
        ("HardSwish", {}),
    ],
    ids=str,
)
def test_far_out(op, attrs):
    """Slopes of saturated activations are 0 and 1, not NaN."""
    (got,) = grads_of(op, [-3e38, -1000.0, -90.0, 90.0, 1000.0, 3e38], **attrs)
    assert np.isfinite(got).all() and np.allclose(got[:3], 0, atol=2e-4), got
