"""Inputs of another shape with as many elements, such as a scale [3, 1] in place of [3]: what comes
out is what a reference gives, or a refusal.
"""

import copy
import math

import edgewise
import numpy as np
import pytest
from edgewise.compiler.ops import OPS
from edgewise.errors import EdgewiseError
from tiers import ALL

from .harness import Toolbox

CASES = 6 if ALL else 3  # of an op, for each input


def other_shapes(shape):
    """Shapes of as many elements: turned, as a row, as a column, merged, with more dimensions."""
    n = math.prod(shape)
    found = {shape[::-1], (n,), (n, 1), (1, n), (*shape, 1), (1, *shape), (*shape[1:], shape[0])}
    if len(shape) > 1:
        found.add((shape[0] * shape[1], *shape[2:]))
    if len(shape) > 2:
        found.add((shape[0], shape[2], shape[1], *shape[3:]))
    return sorted(found - {shape})


def reshaped(case, i, shape):
    """The case with its input i in another shape."""
    other = copy.copy(case)
    for computed in ("references", "output_types"):
        other.__dict__.pop(computed, None)
    x, fixed = case.inputs[i]
    other.inputs = [*case.inputs[:i], (x.reshape(shape), fixed), *case.inputs[i + 1 :]]
    return other


def run(case):
    """The outputs; None where the case is refused."""
    model, feeds = case.model()
    try:
        session = edgewise.InferenceSession(model.SerializeToString())
    except EdgewiseError:
        return None
    try:
        return session.run(None, feeds)
    except EdgewiseError:
        return None
    finally:
        session.free()


def difference(case, got, original):
    """How outputs differ from those of every reference that runs the case; where none does, from
    those of the original shape, whose numbers are the only ones that it may have. "": they do not.
    """
    wrong = ""
    for name, expected in case.each_reference():
        wrong = case.differences(got, expected)
        if not wrong:
            return ""
        wrong = f"{name}: {wrong}"
    if wrong or original is None:
        return wrong
    flat = [[np.ravel(y) for y in outputs] for outputs in (got, original)]
    return case.differences(*flat)


@pytest.mark.parametrize(
    "domain, name",
    [k for k, op in OPS.items() if k[0] != "edgewise" and op.cases_fn is not None],
    ids=lambda x: x or "onnx",
)
def test_as_many_elements(domain, name):
    tried, wrong = {}, []
    for case in OPS[domain, name].cases_fn(Toolbox(domain, name)):
        if case.expect is not None:
            continue
        for i, (x, _) in enumerate(case.inputs):
            if i == 0 or x is None or x.size < 2 or tried.get(i, 0) >= CASES:
                continue
            tried[i] = tried.get(i, 0) + 1
            original = run(case)
            for shape in other_shapes(x.shape):
                other = reshaped(case, i, shape)
                got = run(other)
                if got is not None and (how := difference(other, got, original)):
                    wrong.append(f"{case}, input {i} as {list(shape)}: {how}")
    assert not wrong, wrong
