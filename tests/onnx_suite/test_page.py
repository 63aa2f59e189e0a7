"""ONNX's backend tests for operators that a page's session runs between plans: sequences,
optionals, strings, loops, branches, data-dependent shapes.
"""

import edgewise.backend
import pytest
from engines.page_session import PageSession

from .suite import suite
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


def between_plans(model):
    """Whether a model has operators that are run between plans."""
    strings = any(
        i.type.tensor_type.elem_type == 8 or not i.type.HasField("tensor_type")
        for i in (*model.graph.input, *model.graph.output)
    )
    return strings or bool({n.op_type for n in model.graph.node} & HOST)


@pytest.mark.parametrize(
    "name", [n for n, t in suite().items() if reason(n) is None and between_plans(t.model)]
)
def test_onnx(name, monkeypatch):
    monkeypatch.setattr(
        edgewise.backend,
        "InferenceSession",
        lambda graph, engine=None: PageSession(suite()[name].model.SerializeToString()),
    )
    suite()[name].run(None)
