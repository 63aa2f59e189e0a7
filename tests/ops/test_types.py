"""Every op of ONNX with every element type that its newest definition allows: it gives what a reference gives, or it is on the list of what is refused."""
import ml_dtypes
import numpy as np
import onnx
import pytest
from engines import open_engine
from onnx import helper

import edgewise
from edgewise.errors import ModelError, UnsupportedOp
from edgewise.ops import OPS

from .harness import DTYPES, HALF, Case, Toolbox

ONNX_NAMES = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz",
              "float8e8m0": "float8_e8m0fnu", "float4e2m1": "float4_e2m1fn", "float6e2m3": "float6_e2m3fn", "float6e3m2": "float6_e3m2fn"}
NOT_NUMBERS = ("string", "complex64", "complex128")  # strings: tests/session; ONNX has complex numbers in types only, no op computes on them
CASES = 3  # of an op for each type


def variable(schema):
    """(type variable of an op that stands for most types, names of those types, a function that says whether input i has it)."""
    def types_of(name):
        allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == name), [name])
        names = [a[7:-1] for a in allowed if a.startswith("tensor(")]
        return sorted({ONNX_NAMES.get(a, a) for a in names if a not in NOT_NUMBERS})
    formals = list(schema.inputs)
    if not formals:
        return None, [], None
    main = max((f.type_str for f in formals), key=lambda name: (len(types_of(name)), name == formals[0].type_str))
    return main, types_of(main), lambda i: formals[min(i, len(formals) - 1)].type_str == main


def retyped(case, changes, dtype):
    """A case with the inputs of the type variable as another type; None where the case is not one for that."""
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
    other = Case(case.domain, case.name, [], 1, case.opset, max(case.tol or 0, 4e-3) if to in HALF else case.tol, case.trust, None, None, True, case.attrs)
    other.inputs, other.wanted = inputs, case.wanted
    return other


def of_op(name):
    """[(dtype, case)] of an op."""
    schema = onnx.defs.get_schema(name)
    _, types, changes = variable(schema)
    for dtype in types:
        found = 0
        for case in OPS["", name].cases_fn(Toolbox("", name)):
            other = retyped(case, changes, dtype)
            if other is not None:
                yield dtype, other
                found += 1
            if found == CASES:
                break
