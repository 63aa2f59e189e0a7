"""Every operator, at each of its versions since opset 7 (ai.onnx.ml and the preview domains: 1),
gives the result of onnxruntime or of ONNX's reference.
"""

import edgewise
import pytest
from engines import open_engine
from tiers import ALL

from .test_suite import reason
from .versions import FIRST, RANDOM, cases, difference, history, in_models, versions

VERSIONS = {
    f"{s.domain + '.' if s.domain else ''}{s.name}-{s.since_version}": (s, opset)
    for s, opset in versions()
}

QUICK = 12  # converted cases of a version in `make test`, if another implementation runs one


def run(model, feeds):
    session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))
    try:
        return session.run(None, feeds)
    finally:
        session.free()


@pytest.mark.parametrize("version", VERSIONS)
def test_version(version):
    """Each case, converted to the version; tests/ops/test_ops.py and test_suite.py run it as it is.

    A version that no case can express, or that no other implementation runs, needs its own case
    in the folder `cases` of the op (with opset=).
    """
    schema, opset = VERSIONS[version]
    key = schema.domain, schema.name
    later = next(
        (s.since_version for s in history()[key] if s.since_version > schema.since_version), 1 << 30
    )
    count = sum(
        reason(name) is None
        for at, names in in_models()[key].items()
        if opset <= at < later
        for name in names
    )
    wrong, unknown, left = {}, [], []
    for case in cases()[key]:
        at = case.at(schema, opset) if reason(case.name) is None else None
        if at is None:
            continue
        if at[0] is case.model and case.runs_elsewhere:
            count += 1
            continue
        left.append((case, at))
    step = 1 if ALL else -(-len(left) // QUICK) or 1
    for some in [left[i::step] for i in range(step)]:
        for case, at in some:
            known, d = differs(*at, case.references(*at))
            if not known:
                unknown.append((case, at))
            count += known
            if d:
                wrong[case.name] = d
        if count:
            break
    # No other implementation runs this version yet: compare with the previous one if only types
    # were added.
    if not count:
        before = [s for s in history()[key] if s.since_version < schema.since_version]
        for case, at in unknown if before else ():
            old = case.at(before[-1], max(before[-1].since_version, FIRST[schema.domain]))
            if old is None:
                continue
            known, d = differs(*at, case.references(*old))
            count += known
            if d:
                wrong[case.name] = d
    assert not wrong
    assert count, "nothing tests it"


def differs(model, feeds, references):
    """(whether there is a reference, the difference between the model's result and the closest one
    as text; "" if there is none). A reference is computed only if the ones before it differ: ONNX's
    takes long.
    """
    got, said = None, []
    for want in references:
        try:
            got = got or run(model, feeds)
        except edgewise.EdgewiseError as e:
            return True, str(e)
        random = model.graph.node[0].op_type in RANDOM
        d = next((d for g, w in zip(got, want) if (d := difference(g, w, random))), "")
        if not d:
            return True, ""
        said.append(d)
    return bool(said), min(said, default="")


def test_every_supported_opset_is_tested():
    """The versions cover opsets 7 to the newest one of the onnx package."""
    numbers = {schema.since_version for schema, _ in VERSIONS.values() if not schema.domain}
    assert min(numbers) <= 7 and max(numbers) >= 25 and len(VERSIONS) > 400
