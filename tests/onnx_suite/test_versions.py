"""Every operator at every version that it has had since opset 7 (ai.onnx.ml and the preview domains: 1) gives what onnxruntime or ONNX's reference gives."""
import pytest
from engines import open_engine

import edgewise

from .test_suite import NOT_YET, reason
from .versions import cases, difference, versions

VERSIONS = {f"{s.domain + '.' if s.domain else ''}{s.name}-{s.since_version}": (s, opset) for s, opset in versions()}


def run(model, feeds):
    session = edgewise.InferenceSession(model.SerializeToString(), engine=open_engine("native"))
    try:
        return session.run(None, feeds)
    finally:
        session.free()


@pytest.mark.parametrize("version", VERSIONS)
def test_version(version):
    """A version that no case can express, or that no other implementation runs, wants a case of its own beside the op (`cases`, with opset=)."""
    schema, opset = VERSIONS[version]
    wrong, count = {}, 0
    for case in cases()[schema.domain, schema.name]:
        at = case.at(schema, opset) if reason(case.name) is None else None
        want = case.reference(*at) if at is not None else None
        if want is None:
            continue
        count += 1
        try:
            d = difference(run(*at), want)
        except edgewise.EdgewiseError as e:
            d = str(e)
        if d:
            wrong[case.name] = d
    if NOT_YET and (wrong or not count):
        pytest.xfail(f"not yet: {list(wrong.items())[:2]}"[:300])
    assert not wrong
    assert count, "nothing tests it"


def test_every_promised_opset_is_there():
    """Versions are of opsets 7 to the newest that the onnx package knows."""
    numbers = {schema.since_version for schema, _ in VERSIONS.values() if not schema.domain}
    assert min(numbers) <= 7 and max(numbers) >= 25 and len(VERSIONS) > 400
