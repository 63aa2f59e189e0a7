"""Every op with every element type that its newest definition allows: it gives the result of a
reference, or it is in the list of unsupported types.
"""

import edgewise
import ml_dtypes
import numpy as np
import onnx
import pytest
from edgewise.compiler.ops import OPS
from edgewise.errors import ModelError, UnsupportedOp
from engines import open_engine
from onnx import helper
from tiers import ALL

from .harness import DTYPES, HALF, Case, Toolbox

ONNX_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
}
NOT_NUMBERS = (
    "string",
    "complex64",
    "complex128",
)  # strings: tests/session; ONNX has complex numbers in types only, no op computes on them
CASES = 3 if ALL else 2  # of an op for each type
INTEGERS = ("int32", "int64", "uint32", "uint64")
MINIFLOATS = (
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
)
REFUSED = {  # op: (types, why, words of the error)
    "Gemm": (
        INTEGERS,
        "alpha and beta are floats: integers are multiplied by whole ones only",
        "integers times",
    ),
    "BitCast": (None, "its cases name types of one size", "as many bits"),
}
NOT_COMPARED = {  # (op, type): why
    **{
        ("QuantizeLinear", t): (
            "the references drop a zero point that is not an integer, against ONNX's formula;"
            " without"
            " one: the op's cases"
        )
        for t in MINIFLOATS
    },
    **{("DequantizeLinear", t): "as QuantizeLinear" for t in MINIFLOATS},
    **{("QLinearMatMul", t): "as QuantizeLinear" for t in MINIFLOATS},
    ("Pad", "float8_e8m0fnu"): (
        "the reference pads with NaN: this type has no 0, ours is its smallest number, whose bits"
        " are 0"
    ),
}


def variable(schema):
    """(the type variable of an op with the most types, names of those types, a function from i to
    whether input i has it).
    """

    def types_of(name):
        allowed = next(
            (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == name),
            [name],
        )
        names = [a[7:-1] for a in allowed if a.startswith("tensor(")]
        return sorted({ONNX_NAMES.get(a, a) for a in names if a not in NOT_NUMBERS})

    formals = list(schema.inputs)
    if not formals:
        return None, [], None
    main = max(
        (f.type_str for f in formals),
        key=lambda name: (len(types_of(name)), name == formals[0].type_str),
    )
    return main, types_of(main), lambda i: formals[min(i, len(formals) - 1)].type_str == main


def retyped(case, changes, dtype):
    """A case with the inputs of the type variable as another type; None where the case is not one
    for that.
    """
    to = np.dtype(DTYPES.get(dtype, dtype))
    which = [x is not None and changes(i) for i, (x, _) in enumerate(case.inputs)]
    mine = {x.dtype for (x, _), w in zip(case.inputs, which) if w}
    if len(mine) != 1 or case.expect is not None or case.same_as:
        return None
    if to.kind in "iub" or to in [np.dtype(DTYPES[n]) for n in Toolbox.small if "int" in n]:
        top = 1 if to.kind == "b" else min(9, int(ml_dtypes.iinfo(to).max))
    else:
        top = min(9, float(ml_dtypes.finfo(to).max))

    def convert(x):
        x = np.clip(np.nan_to_num(x.astype(np.float64)), min(1, top), top).round()
        return x.astype(to)

    inputs = [(convert(x) if w else x, c) for (x, c), w in zip(case.inputs, which)]
    other = Case(
        case.domain,
        case.name,
        [],
        1,
        case.opset,
        max(case.tol or 0, 4e-3) if to in HALF else case.tol,
        case.trust,
        None,
        None,
        True,
        case.attrs,
    )
    other.inputs, other.wanted = inputs, case.wanted
    return other


def cases(name):
    """[(dtype, case, the same in float32)] of an op."""
    _, types, changes = variable(onnx.defs.get_schema(name))
    for dtype in types:
        found = 0
        for case in OPS["", name].cases_fn(Toolbox("", name)):
            other = retyped(case, changes, dtype)
            if other is not None:
                yield dtype, other, retyped(case, changes, "float32")
                found += 1
            if found == CASES:
                break


def expected(case, plain, dtype):
    """Outputs by name of a reference. Where none has this type: those of float32, as the type."""
    references = case.references
    if references or dtype == "bool":
        return references
    to = np.dtype(DTYPES.get(dtype, dtype))
    return {
        name: [y.astype(to) if y.dtype == np.float32 else y for y in ys]
        for name, ys in plain.references.items()
    }


NAMES = sorted(
    name
    for domain, name in OPS
    if domain == "" and OPS[domain, name].cases_fn is not None and onnx.defs.has(name)
)


@pytest.mark.parametrize("name", NAMES)
def test_types_of_the_standard(name):
    types, _, words = REFUSED.get(name, ((), "", ""))
    wrong = []
    for dtype, case, plain in cases(name):
        model, feeds = case.model()
        try:
            session = edgewise.InferenceSession(
                model.SerializeToString(), engine=open_engine("native")
            )
            got = session.run(None, feeds)
        except (UnsupportedOp, ModelError) as e:
            if not (words and words in e.what and (types is None or dtype in types)):
                wrong.append(f"{case}: {e}")
            continue
        if (name, dtype) in NOT_COMPARED:
            continue
        references = expected(case, plain, dtype)
        different = {r: d for r, y in references.items() if (d := case.differences(got, y))}
        if different and len(different) == len(references):
            wrong.append(f"{case}: {different}")
    assert not wrong, "\n".join(wrong)


# long: a table of cases
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_upper_half_of_unsigned(dtype):
    """Numbers that would be negative if their bits were read as signed."""
    top = np.iinfo(dtype).max
    a, b = (
        np.array([[1, top, 3], [top - 1, 0, top // 2 + 1]], dtype),
        np.array([[top, 2, 3], [top // 2, 1, top]], dtype),
    )
    axes = np.array([1])
    expect = {
        "Max": np.maximum(a, b),
        "Min": np.minimum(a, b),
        "Less": a < b,
        "Greater": a > b,
        "LessOrEqual": a <= b,
        "GreaterOrEqual": a >= b,
        "Equal": a == b,
        "Div": a // np.maximum(b, 1),
        "Mod": a % np.maximum(b, 1),
        "ArgMax": a.argmax(1)[:, None],
        "ArgMin": a.argmin(1)[:, None],
        "ReduceMax": a.max(1, keepdims=True),
        "ReduceMin": a.min(1, keepdims=True),
        "Sign": np.sign(a),
        "Abs": a,
        "Add": a + b,
        "Mul": a * b,
        "Cast": a.astype(np.float64),
    }
    for name, y in expect.items():
        if dtype == "uint16" and name.startswith("Reduce"):
            continue  # not in ONNX
        inputs = (
            ["a", "b"]
            if name
            in (
                "Max",
                "Min",
                "Less",
                "Greater",
                "LessOrEqual",
                "GreaterOrEqual",
                "Equal",
                "Div",
                "Mod",
                "Add",
                "Mul",
            )
            else ["a", "axes"]
            if name.startswith("Reduce")
            else ["a"]
        )
        attrs = {"axis": 1} if name.startswith("Arg") else {"to": 11} if name == "Cast" else {}
        node = helper.make_node(name, inputs, ["y"], **attrs)
        kind = helper.np_dtype_to_tensor_dtype(a.dtype)
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info(n, kind, [2, 3]) for n in inputs if n != "axes"],
            [helper.make_empty_tensor_value_info("y")],
            [onnx.numpy_helper.from_array(axes, "axes")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        (got,) = edgewise.InferenceSession(
            model.SerializeToString(), engine=open_engine("native")
        ).run(
            None,
            {
                n: v
                for n, v in (("a", a), ("b", np.maximum(b, 1) if name in ("Div", "Mod") else b))
                if n in inputs
            },
        )
        assert got.dtype == y.dtype, name
        np.testing.assert_array_equal(got, y, name)
