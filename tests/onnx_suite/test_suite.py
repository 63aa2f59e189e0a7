"""ONNX's backend tests on every engine (in `make test` on the native one and one in Node): all
tests of onnx.backend.test that need no download, compared by its own runner with its own
tolerances.
"""

import re
import zlib

import pytest
from edgewise.inspect import every_node
from engines import open_engine, quick_engines
from zoo.zoo import models

from .suite import contents, suite

# Tests that cannot pass: {pattern of names: (operators that prevent it, reason)}. At most 3 % of
# the tests; no model of the zoo has one of these operators.
EXCEPT = {
    r"node/test_image_decoder_.*": (
        ["ImageDecoder"],
        (
            "files of seven image formats are decoded by whoever has them: a page's browser, or a"
            " library on a desktop"
        ),
    ),
    r"node/test_bernoulli.*": (
        ["Bernoulli", "RandomUniformLike"],
        (
            "wants the numbers that NumPy's generator draws; what ONNX asks of them is in"
            " tests/ops/test_random.py"
        ),
    ),
    r"node/test_training_dropout(_default)?(_mask)?": (
        ["Dropout"],
        "wants the elements dropped that NumPy's generator draws, as above",
    ),
    r"node/test_dft_inverse(_opset19)?": (
        ["DFT"],
        (
            "wants the rounding errors of NumPy's FFT where the result is zero: 1.9e-7 instead of"
            " 3e-15, with an absolute tolerance of 1e-7"
        ),
    ),
    r"node/test_loop16_seq_none": (
        ["Loop"],
        (
            "the suite's runner takes len() of what it compares, and this sequence begins with a"
            " number"
        ),
    ),
}


def reason(name):
    """The reason why a test is excepted, or None."""
    return next((why for pattern, (_, why) in EXCEPT.items() if re.fullmatch(pattern, name)), None)


def passes(test, engine):
    try:
        test.run(engine)
    except Exception:  # any exception of an excepted test
        return False
    return True


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        names = contents(metafunc.config.cache)
        metafunc.parametrize("name", [n for n in names if reason(n) is None])


# One test per name, not one per engine: pytest needs as long for a test as a small model takes.
def test_onnx(name):
    for engine in quick_engines(zlib.crc32(name.encode())):
        try:
            suite()[name].run(open_engine(engine))
        except Exception as e:
            e.add_note(f"{name} on {engine}")
            raise


def test_number_of_tests():
    """The number of tests in onnx 1.23.2."""
    counts = {}
    for name in suite():
        kind = name.split("/")[0]
        counts[kind] = counts.get(kind, 0) + 1
    assert counts == {
        "node": 1884,
        "simple": 23,
        "pytorch-converted": 82,
        "pytorch-operator": 35,
        "real": 9,
    }


def test_exceptions_are_few():
    assert sum(reason(n) is not None for n in suite()) <= 0.03 * len(suite())


@pytest.mark.parametrize("pattern", EXCEPT)
def test_exceptions_still_fail(pattern):
    """Each excepted test has the operator that prevents it, no model of the zoo has that operator,
    and the test still fails (tests with random numbers: at least once in five runs).
    """
    operators, _ = EXCEPT[pattern]
    tests = [t for n, t in suite().items() if re.fullmatch(pattern, n)]
    assert tests
    for t in tests:
        assert {n.op_type for n in t.model.graph.node} & set(operators), t.name
        assert not all(passes(t, open_engine("native")) for _ in range(5)), (
            f"{t.name} passes: take it from the list"
        )
    in_zoo = {n.op for m in models() for n in every_node(m.graph) if n.domain == ""}
    assert not in_zoo & set(operators)
