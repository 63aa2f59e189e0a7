"""Every operator, at each of its versions since opset 7 (ai.onnx.ml and the preview domains: 1),
gives the result of onnxruntime or of ONNX's reference.
"""

import edgewise
import pytest
from engines import open_engine

from .test_suite import reason
from .versions import FIRST, RANDOM, cases, difference, history, in_models, versions

VERSIONS = {
    f"{s.domain + '.' if s.domain else ''}{s.name}-{s.since_version}": (s, opset)
    for s, opset in versions()
}


def run(model, feeds):
    session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))
    try:
        return session.run(None, feeds)
    finally:
        session.free()


@pytest.mark.parametrize("version", VERSIONS)
def test_version(version):
    """A version that no case can express, or that no other implementation runs, needs its own case
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
    wrong, unknown = {}, []
    for case in cases()[key]:
        at = case.at(schema, opset) if reason(case.name) is None else None
        references = case.references(*at) if at is not None else []
        if at is not None and not references:
            unknown.append((case, at))
        count += bool(references)
        if d := differs(*at, references) if references else "":
            wrong[case.name] = d
    # No other implementation runs this version yet: compare with the previous one if only types
    # were added.
    if not count:
        before = [s for s in history()[key] if s.since_version < schema.since_version]
        for case, at in unknown if before else ():
            old = case.at(before[-1], max(before[-1].since_version, FIRST[schema.domain]))
            references = case.references(*old) if old is not None else []
            count += bool(references)
            if d := differs(*at, references) if references else "":
                wrong[case.name] = d
    assert not wrong
    assert count, "nothing tests it"


def differs(model, feeds, references):
    """The difference between the model's result and the closest reference as text; "" if there is
    none.
    """
    try:
        got = run(model, feeds)
    except edgewise.EdgewiseError as e:
        return str(e)
    said = [
        next(
            (
                d
                for g, w in zip(got, want)
                if (d := difference(g, w, model.graph.node[0].op_type in RANDOM))
            ),
            "",
        )
        for want in references
    ]
    return min(said)


def test_every_supported_opset_is_tested():
    """The versions cover opsets 7 to the newest one of the onnx package."""
    numbers = {schema.since_version for schema, _ in VERSIONS.values() if not schema.domain}
    assert min(numbers) <= 7 and max(numbers) >= 25 and len(VERSIONS) > 400
