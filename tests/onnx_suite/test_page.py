"""ONNX's backend tests for operators that a page's session runs between plans: sequences,
optionals, strings, loops, branches, data-dependent shapes.
"""

from engines.page_session import PageSession

from . import backend
from .suite import contents, suite
from .test_suite import reason

HOST = {
    "If",
    "Loop",
    "Scan",
    "NonZero",
    "Compress",
    "Unique",
    "NonMaxSuppression",
    "StringConcat",
    "StringSplit",
    "StringNormalizer",
    "RegexFullMatch",
    "TfIdfVectorizer",
    "LabelEncoder",
    "SequenceEmpty",
    "SequenceConstruct",
    "SequenceAt",
    "SequenceInsert",
    "SequenceErase",
    "SequenceLength",
    "SequenceMap",
    "SplitToSequence",
    "ConcatFromSequence",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
}


def pytest_generate_tests(metafunc):
    """Tests whose graphs have such operators, or values other than numeric tensors."""
    names = [
        name
        for name, (operators, other) in contents(metafunc.config.cache).items()
        if reason(name) is None and (other or not HOST.isdisjoint(operators))
    ]
    metafunc.parametrize("name", names)


def test_onnx(name, monkeypatch):
    monkeypatch.setattr(
        backend,
        "InferenceSession",
        lambda graph, engine=None: PageSession(suite()[name].model.SerializeToString()),
    )
    suite()[name].run(None)
