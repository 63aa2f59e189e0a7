"""The op table harness: a case is one node with its inputs; this makes the model, the references'
answers, and the comparison.

The cases of an op stand in the folder `cases` beside its module (edgewise/compiler/declare/op.py):
a function that is given `t`, a Toolbox, and yields what `t(...)` makes.
"""

from __future__ import annotations

import importlib
import warnings
import zlib
from functools import cache, cached_property
from pathlib import Path

import edgewise.compiler.ops
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from edgewise.compiler.ops import OPS
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .strides import strided

MS = "com.microsoft"
OPSET = 21  # default opset of a case
RTOL = 1e-5
HALF = (np.float16, ml_dtypes.bfloat16)
SMALL = (
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
)
DTYPES = {name: getattr(ml_dtypes, name) for name in ("bfloat16", *SMALL)}
INT4 = tuple(np.dtype(DTYPES[name]) for name in ("int4", "uint4", "int2", "uint2"))
PACKED = (
    *INT4,
    *(np.dtype(DTYPES[name]) for name in ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")),
)  # onnxruntime is not fed these
MINIFLOATS = tuple(np.dtype(DTYPES[name]) for name in SMALL[:8])


for _cases in sorted(Path(edgewise.compiler.ops.__file__).parent.glob("*/cases/*.py")):
    importlib.import_module(f"edgewise.compiler.ops.{_cases.parts[-3]}.cases.{_cases.stem}")


class Constant:
    """An input that stands in the model."""

    def __init__(self, array):
        self.array = array


class Toolbox:
    """Makes inputs and cases of one op; what it draws depends on the op's name alone. types: the
    names of all element types; small: those of 8 bits and fewer that NumPy does not have.
    """

    types = (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "bool",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "uint32",
        "int32",
        "uint64",
        "int64",
    )
    small = SMALL

    def __init__(self, domain, name):
        self.domain, self.name = domain, name
        self.random = np.random.default_rng(zlib.crc32(f"{domain}.{name}".encode()))

    def f(self, *shape, low=None, high=None, dtype="float32"):
        """Floats: normally distributed, or uniform in [low, high)."""
        x = (
            self.random.standard_normal(shape)
            if low is None
            else self.random.uniform(low, high, shape)
        )
        return np.asarray(x).astype(DTYPES.get(dtype, dtype))

    def n(self, dtype, *shape, low=None, high=None):
        """Integers in [low, high]; by default the type's range or -100..100, whichever is
        smaller.
        """
        bits = {"4": 4, "2": 2}.get(dtype[-1]) if dtype in SMALL else None
        low = (
            low if low is not None else 0 if dtype[0] == "u" else -(1 << bits - 1) if bits else -100
        )
        high = (
            high
            if high is not None
            else (1 << (bits if dtype[0] == "u" else bits - 1)) - 1
            if bits
            else 100
        )
        return np.asarray(self.random.integers(low, high + 1, shape)).astype(
            DTYPES.get(dtype, dtype)
        )

    def any(self, dtype, *shape):
        """Numbers or bools of any type."""
        return (
            self.b(*shape)
            if dtype == "bool"
            else self.f(*shape, dtype=dtype)
            if "float" in dtype
            else self.n(dtype, *shape)
        )

    def b(self, *shape):
        return np.asarray(self.random.random(shape) < 0.5)

    def of(self, dtype, values):
        return np.array(values, DTYPES.get(dtype, dtype))

    def const(self, array):
        return Constant(array)

    def attr(self, array):
        """A tensor as an attribute."""
        return numpy_helper.from_array(np.asarray(array))

    def graph(self, name, nodes, *constants):
        """A graph as an attribute, of a float32 tensor "s" of four dimensions to such a tensor
        "out". nodes: [(operator, names of inputs, name of the output)]; constants are "c0", "c1",
        ...
        """
        info = [
            helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, [None] * 4)
            for x in ("s", "out")
        ]
        return helper.make_graph(
            [helper.make_node(op, list(ins), [out]) for op, ins, out in nodes],
            name,
            info[:1],
            info[1:],
            [numpy_helper.from_array(np.asarray(x), f"c{i}") for i, x in enumerate(constants)],
        )

    def __call__(
        self,
        *inputs,
        outputs=1,
        opset=OPSET,
        tol=None,
        trust=None,
        why="",
        expect=None,
        same_as=None,
        fold=True,
        version=1,
        attributes=None,
        **attrs,
    ):
        """One case.

        Args:
            inputs: arrays are fed; constants, numbers (float32 or int64 scalars) and lists (int64
            or float32 vectors) stand in the model; None is absent. outputs: how many, or a list of
            booleans where some are not asked for. opset: of the default domain.
            tol: relative tolerance, default 1e-5; for sums 1e-4.
            trust: "ort" or "onnx" where the references disagree or one of them is less exact; why:
            says why. expect: the outputs, where neither reference can tell. same_as: (domain, op),
            or (domain, op, attributes), that the references run instead where they do not have this
            one. version: of the op's domain, where that is not the default one. fold: whether it is
            also run with all inputs constant. attributes: those whose names are taken here, as a
            dict.
        """
        assert bool(why) == bool(trust or expect is not None), "what is unusual says why"
        return Case(
            self.domain,
            self.name,
            list(inputs),
            outputs,
            opset,
            tol,
            trust,
            expect,
            same_as,
            fold,
            {**attrs, **(attributes or {})},
            version,
        )


class Case:
    def __init__(
        self,
        domain,
        name,
        inputs,
        outputs,
        opset,
        tol,
        trust,
        expect,
        same_as,
        fold,
        attrs,
        version=1,
    ):
        self.same_as, self.version = same_as, version
        (
            self.domain,
            self.name,
            self.opset,
            self.tol,
            self.trust,
            self.expect,
            self.fold,
            self.attrs,
        ) = (domain, name, opset, tol, trust, expect, fold, attrs)
        self.wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        self.inputs = []
        for x in inputs:
            fixed = isinstance(x, (Constant, int, float, list))
            x = x.array if isinstance(x, Constant) else x
            if isinstance(x, (int, float, list)):
                x = np.array(x)
                x = x.astype(np.int64 if x.dtype.kind == "i" or not x.size else np.float32)
            self.inputs.append(
                (None if x is None else np.asarray(x), fixed or x is not None and x.dtype in PACKED)
            )

    def __repr__(self):
        attrs = ", ".join(
            f"{k}={v if not isinstance(v, onnx.TensorProto) else '...'}"
            for k, v in self.attrs.items()
        )
        inputs = [
            "-" if x is None else f"{x.dtype}{list(x.shape)}{'!' if constant else ''}"
            for x, constant in self.inputs
        ]
        return f"{self.name}-{self.opset}({', '.join(inputs)}; {attrs})"

    def of_type(self, dtype):
        """The same node with all inputs of the first one's type as another type; None where that
        makes no sense. Small whole numbers, which every type holds.
        """
        first = next((x.dtype for x, _ in self.inputs if x is not None), None)
        to = np.dtype(DTYPES.get(dtype, dtype))
        if first is None or first == to or self.expect is not None or first in PACKED:
            return None
        change = [
            x is not None and x.dtype == first and (not c or x.dtype.kind in "fV")
            for x, c in self.inputs
        ]
        inputs = [
            (
                (np.clip(np.nan_to_num(x.astype(np.float64)), 1, 9).round().astype(to), c)
                if w
                else (x, c)
            )
            for (x, c), w in zip(self.inputs, change)
        ]
        other = Case(
            self.domain,
            self.name,
            [],
            1,
            self.opset,
            max(self.tol or 0, 4e-3) if to in HALF else self.tol,
            self.trust,
            None,
            self.same_as,
            True,
            self.attrs,
            self.version,
        )
        other.inputs, other.wanted = inputs, self.wanted
        return other

    def model(self, how="declared", reference=False, widened=False):
        """(ModelProto, feeds). reference: of the op it is the same as; widened: half types as
        float32. how:

        "declared"; "fed", "constant": all inputs; 0, 1, 2: as declared, and what is fed comes
        through a Transpose or Slice, so that the op sees it with strides.
        """
        names = ["" if x is None else f"x{i}" for i, (x, _) in enumerate(self.inputs)]
        constants, fed, feeds, before = [], [], {}, []
        for name, (x, fixed) in zip(names, self.inputs):
            if x is not None:
                x = x.astype(np.float32) if widened and x.dtype in HALF else x
                if fixed if how == "declared" else how == "constant" or x.dtype in PACKED:
                    constants.append(numpy_helper.from_array(x, name))
                else:
                    if isinstance(how, int) and x.ndim:
                        x = strided(x, name, (how + int(name[1:])) % 3, before, constants)
                        name += "_before"
                    fed.append(
                        helper.make_tensor_value_info(
                            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
                        )
                    )
                    feeds[name] = x
        outs = [f"y{i}" if w else "" for i, w in enumerate(self.wanted)]
        domain, op, attrs = (
            ((*self.same_as, self.attrs)[:3])
            if reference and self.same_as
            else (self.domain, self.name, self.attrs)
        )
        types = [0 if widened and t in (10, 16) else t for t in self.output_types]
        outputs = [
            (
                helper.make_tensor_value_info(o, t, None)
                if t
                else helper.make_empty_tensor_value_info(o)
            )
            for o, t in zip(outs, types)
            if o
        ]
        node = helper.make_node(op, names, outs, name="the_node", domain=domain, **attrs)
        graph = helper.make_graph([*before, node], "case", fed, outputs, constants)
        imports = [helper.make_opsetid("", self.opset)] + (
            [helper.make_opsetid(domain, self.version)] if domain else []
        )
        return (
            helper.make_model(
                graph, opset_imports=imports, ir_version=10 if self.opset < 22 else 11
            ),
            feeds,
        )

    @cached_property
    def output_types(self):
        """Element types of the outputs as a model would declare them; 0 where only the runtime can
        tell, and the shapes are always left to it.
        """
        half = next(
            (
                helper.np_dtype_to_tensor_dtype(x.dtype)
                for x, _ in self.inputs
                if x is not None and x.dtype in HALF
            ),
            0,
        )
        self.output_types = [0] * len(self.wanted)
        model, _ = self.model()
        known = {
            v.name: v.type.tensor_type.elem_type
            for v in onnx.shape_inference.infer_shapes(model).graph.output
        }
        own = (
            half
            if self.name
            in (
                "GroupQueryAttention",
                "LSTMTraining",
                "GRUTraining",
                "CausalConvWithState",
                "LinearAttention",
                "EngramGate",
            )
            else (
                half or 1
                if self.name in ("MultiHeadAttention", "DecoderMaskedMultiHeadAttention")
                else 0
            )
        )
        return [
            known.get(f"y{i}", 0) or own or (half if i in (0, 3) else 0)
            for i in range(len(self.wanted))
        ]

    @cached_property
    def references(self):
        """{name: outputs} of those that can run it; {name: exception} in `refusals`."""
        return dict(self.each_reference())

    def each_reference(self):
        """The same one by one, each computed when it is asked for."""
        self.refusals = {}
        if self.expect is not None:
            yield "expected", [np.asarray(x) for x in self.expect]
            return
        for name, run in (("ort", self._ort), ("onnx", self._onnx)):
            if self.trust in (None, name):
                try:
                    with np.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        outputs = [np.asarray(y) for y in run()]
                except Exception as e:
                    self.refusals[name] = e
                else:
                    yield name, outputs

    def _ort(self):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        model, feeds = self.model(reference=True)
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        ).run(None, feeds)

    def _onnx(self):
        """Half types are compared in float32, since the reference would round after every step."""
        if (self.same_as or (self.domain,))[0] == MS:
            raise NotImplementedError("not an op of ONNX")
        widened = "Cast" not in self.name
        model, feeds = self.model(reference=True, widened=widened)
        types = [t for t, w in zip(self.output_types, self.wanted) if w]
        out = [
            (
                np.asarray(y).astype(helper.tensor_dtype_to_np_dtype(t))
                if widened and t in (10, 16)
                else np.asarray(y)
            )
            for y, t in zip(ReferenceEvaluator(model).run(None, feeds), types)
        ]
        if any(
            t and y.dtype.kind in "iu" and y.dtype != helper.tensor_dtype_to_np_dtype(t)
            for y, t in zip(out, types)
        ):
            raise TypeError("the reference evaluator gives another type than the definition")
        return out

    @property
    def tolerance(self):
        half = any(x is not None and x.dtype in HALF for x, _ in self.inputs)
        return self.tol or (2e-3 if half else RTOL)

    def differences(self, got, expected):
        """The difference as text; "" if there is none."""
        if len(got) != len(expected):
            return f"{len(got)} outputs instead of {len(expected)}"
        for i, (g, e) in enumerate(zip(got, expected)):
            g = np.asarray(g)
            if g.dtype != e.dtype or g.shape != e.shape:
                return f"output {i} is {g.dtype}{list(g.shape)} instead of {e.dtype}{list(e.shape)}"
            if e.dtype.kind not in "fV" or e.dtype in INT4:
                if (g != e).any():
                    return f"output {i}: {_where(g, e, g != e)}"
                continue
            a, b = g.astype(np.float64), e.astype(np.float64)
            tol = self.tolerance
            small = (
                tol * 0.1
                # for elements near zero; of sums, in terms of how large they usually are: their
                # terms cancel
            )
            if self.tol and np.isfinite(b).any():
                small *= max(1.0, float(np.sqrt(np.mean(np.square(b[np.isfinite(b)])))))
            with np.errstate(invalid="ignore"):
                wrong = ~(
                    (np.abs(a - b) <= tol * np.abs(b) + small)
                    | (a == b)
                    | (np.isnan(a) & np.isnan(b))
                )
            if wrong.any():
                return f"output {i}: {_where(a, b, wrong)}"
        return ""


def _where(g, e, wrong):
    wrong = np.asarray(wrong)
    at = np.argwhere(wrong)[:3]
    return f"{int(wrong.sum())} of {wrong.size} differ, first " + "; ".join(
        f"{list(map(int, p))}: {g[tuple(p)]!r} instead of {e[tuple(p)]!r}" for p in at
    )


@cache
def all_cases():
    """[(id, Case)] of every op that a model can name; made once, so nobody may change them."""
    out = []
    for (domain, name), op in OPS.items():
        if op.cases_fn is not None and domain != "edgewise":
            for i, case in enumerate(op.cases_fn(Toolbox(domain, name))):
                out.append(
                    (f"{'ms.' if domain == MS else domain + '.' if domain else ''}{name}-{i}", case)
                )
    return out
