"""Every case of every op: on each engine, with its constants fed, its inputs constant and its
inputs strided, against onnxruntime and ONNX's reference.
"""

import edgewise
import pytest
from edgewise.compiler.ops import OPS
from edgewise.errors import ModelError, UnsupportedOp
from engines import open_engine, quick_engines
from tiers import ALL

from .harness import Toolbox, all_cases

CASES = all_cases()


def run(case, engine, how):
    model, feeds = case.model(how)
    session = edgewise.InferenceSession(model.SerializeToString(), engine=engine)
    try:
        return session.run(None, feeds)
    finally:
        session.free()


def runs(case, number):
    """[(engine, how)]: how a case, which is the op's case of this number, is run.

    Each engine runs it as declared; in `make test` the native one and a WebAssembly one. The native
    engine also runs it with everything fed (axes, shapes and so on are known to a run only), with
    everything constant (small ones are computed by Python, others once per session), and with
    inputs that are transposed, inside of a larger tensor, or reversed: an op's first cases in each
    of these ways, the others in one of them. In `make test`, the others leave out one in turn: fed,
    constant or strided.
    """
    yield from ((engine, "declared") for engine in quick_engines(number + len(case.name)))
    without = None if ALL or number < 4 else number % 3
    if without != 0:
        yield "native", "fed"
    if case.fold and without != 1:
        yield "native", "constant"
    if case.opset >= 10 and without != 2:
        shifts = range(3) if number < 4 else [number // 3 % 3]
        yield from (("native", shift) for shift in shifts)


# How many cases of an op are run with each other type.
OF_OTHER_TYPES = 6 if ALL else 3


# One test per case, not one per run: pytest needs as long for a test as a small run takes.
@pytest.mark.parametrize(
    "case, number", [(c, int(i.rpartition("-")[2])) for i, c in CASES], ids=[i for i, _ in CASES]
)
def test_op(case, number):
    references = case.references
    assert references, f"{case}: no reference can run it: {case.refusals}"
    wrong = {}
    for engine, how in runs(case, number):
        try:
            got = run(case, open_engine(engine), how)
        except Exception as e:
            e.add_note(f"{case} on {engine}, {how}")
            raise
        for name, expected in references.items():
            if difference := case.differences(got, expected):
                wrong[engine, how, name] = difference
    assert not wrong, f"{case}: {wrong}"


@pytest.mark.parametrize(
    "domain, name",
    [k for k, op in OPS.items() if k[0] != "edgewise" and op.cases_fn is not None],
    ids=lambda x: x or "onnx",
)
def test_other_types(domain, name):
    """The first cases of each op with inputs of every other element type: the references' outputs,
    or a refusal that names the op.
    """
    for case in list(OPS[domain, name].cases_fn(Toolbox(domain, name)))[:OF_OTHER_TYPES]:
        for dtype in Toolbox.types:
            other = case.of_type(dtype)
            # their scales are float32 for every type; see test_types.py
            if other is None or name in ("Resize", "Upsample"):
                continue
            try:
                got = run(other, open_engine("native"), "declared")
            except (UnsupportedOp, ModelError) as e:
                assert name in e.where or not other.references, e
                continue
            except Exception:
                if not other.references:
                    continue
                raise
            wrong = {}
            for reference, expected in other.each_reference():
                wrong[reference] = other.differences(got, expected)
                if not wrong[reference]:
                    break  # one is enough, and ONNX's takes long
            assert not wrong or not all(wrong.values()), f"{other}: {wrong}"


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
