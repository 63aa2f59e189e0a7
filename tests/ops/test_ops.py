"""Every case of every op: on each engine, and with its constants fed and its inputs constant,
against onnxruntime and ONNX's reference.
"""

import edgewise
import pytest
from edgewise.errors import ModelError, UnsupportedOp
from edgewise.ops import OPS
from engines import open_engine

from .harness import Toolbox, all_cases

CASES = all_cases()


def run(case, engine, how):
    model, feeds = case.model(how)
    session = edgewise.InferenceSession(model.SerializeToString(), engine=engine)
    try:
        return session.run(None, feeds)
    finally:
        session.free()


@pytest.fixture(params=[c for _, c in CASES], ids=[i for i, _ in CASES])
def case(request):
    return request.param


def check(case, engine, how):
    references = case.references
    assert references, f"{case}: no reference can run it: {case.refusals}"
    got = run(case, engine, how)
    wrong = {
        name: d for name, expected in references.items() if (d := case.differences(got, expected))
    }
    assert not wrong, f"{case} ({how}): {wrong}"


def test_op(case, engine):
    check(case, engine, "declared")


def test_everything_fed(case):
    """Axes, shapes and so on that only a run can tell."""
    check(case, open_engine("native"), "fed")


def test_everything_constant(case):
    """Small ones are computed by Python, others once per session."""
    if case.fold:
        check(case, open_engine("native"), "constant")


@pytest.mark.parametrize("shift", range(3))
def test_strided(case, shift):
    """Inputs that are transposed, inside of a larger tensor, or reversed."""
    if case.opset >= 10:
        check(case, open_engine("native"), shift)


@pytest.mark.parametrize(
    "domain, name",
    [k for k, op in OPS.items() if k[0] != "edgewise" and op.cases_fn is not None],
    ids=lambda x: x or "onnx",
)
def test_other_types(domain, name):
    """The first cases of each op with inputs of every other element type: the references' outputs,
    or a refusal that names the op.
    """
    for case in list(OPS[domain, name].cases_fn(Toolbox(domain, name)))[:6]:
        for dtype in Toolbox.types:
            other = case.of_type(dtype)
            if (
                other is None or name in ("Resize", "Upsample") or not other.references
            ):  # their scales are float32 for every type; see test_types.py
                continue
            try:
                got = run(other, open_engine("native"), "declared")
            except (UnsupportedOp, ModelError) as e:
                assert name in e.where, e
                continue
            wrong = {
                r: d
                for r, expected in other.references.items()
                if (d := other.differences(got, expected))
            }
            assert len(wrong) < len(other.references), f"{other}: {wrong}"


def test_every_op_has_cases():
    """Ops of the domain edgewise are added by passes and tested with them (tests/passes); those
    with inputs or outputs that a case cannot contain are tested with sessions (tests/session).
    """
    missing = [
        f"{domain}.{name}"
        for (domain, name), op in OPS.items()
        if domain != "edgewise" and op.cases_fn is None and op.host_fn is None
    ]
    assert not missing
