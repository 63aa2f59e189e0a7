"""Operators of ai.onnx.ml that scale, fill in and encode features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import DOUBLE, FLOAT, FLOATS, INT64
from ...declare.op import Op, fail, product, unsupported
from ...declare.symbolic import NeedsHost
from ...declare.values import RunTensor, StringTensor
from .attributes import ML, NUMBER, NUMBERS, float_matrix, floats, numbers_attribute

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, HostContext, Value


array_feature_extractor = Op("ArrayFeatureExtractor", ML)


@array_feature_extractor.decompose
def array_feature_extractor_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x, index = node.inputs[:2]
    if not x.rank:
        fail(node, "it takes a tensor of at least one dimension")
    y = graph.op(
        "Gather", x, graph.op("Reshape", index, graph.ints([product(index.shape)])), axis=-1
    )
    return [y if x.rank > 1 else graph.op("Unsqueeze", y, graph.ints([0]))]


binarizer = Op("Binarizer", ML)


@binarizer.decompose
def binarizer_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x = node.inputs[0]
    threshold = node.attr("threshold", 0.0)
    if x.dtype not in NUMBERS:
        fail(node, f"it takes numbers, not {x}")
    return [
        graph.op(
            "Cast",
            (
                graph.op("Greater", x, floats(graph, [threshold], [], x.dtype))
                if x.dtype in FLOATS
                else graph.op(
                    "Greater",
                    graph.op("Cast", x, to=DOUBLE),
                    floats(graph, [threshold], [], DOUBLE),
                )
            ),
            to=x.dtype,
        )
    ]


scaler = Op("Scaler", ML)


@scaler.decompose
def scaler_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x = graph.op("Cast", node.inputs[0], to=FLOAT)
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        values = numbers_attribute(node, name)
        if len(values) not in (0, 1, x.shape[-1] if x.rank else 1):
            fail(node, f"{len(values)} values of '{name}' do not fit {x}")
        if values:
            x = graph.op(op, x, floats(graph, values, [] if len(values) == 1 else None))
    return [x]


normalizer = Op("Normalizer", ML)


@normalizer.decompose
def normalizer_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Each row divided by its maximum (MAX), its sum of absolute values (L1) or its Euclidean norm
    (L2); rows of zeros stay zeros.
    """
    kind, x, axis = node.attr("norm", "MAX"), float_matrix(node, graph), graph.ints([1])
    if kind not in ("MAX", "L1", "L2"):
        unsupported(node, f"norm '{kind}'")
    size = graph.op(
        {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[kind],
        graph.op("Abs", x) if kind == "MAX" else x,
        axis,
    )
    return [
        graph.op(
            "Div",
            x,
            graph.op(
                "Where",
                graph.op("Equal", size, floats(graph, [0], [])),
                floats(graph, [1], []),
                size,
            ),
        )
    ]


imputer = Op("Imputer", ML)


@imputer.decompose
def imputer_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x = node.inputs[0]
    real = x.dtype in FLOATS
    values, replaced = (
        numbers_attribute(node, "imputed_value_floats" if real else "imputed_value_int64s"),
        (node.attr("replaced_value_float", 0.0) if real else node.attr("replaced_value_int64", 0)),
    )
    if (
        x.dtype not in NUMBERS or x.rank not in (1, 2) or len(values) not in (1, x.shape[-1])
    ):  # [N, C] or [C]
        fail(node, f"{len(values)} imputed values do not fit {x}")
    replacement = graph.constant(
        x.dtype,
        [len(values)] if len(values) != 1 else [],
        [float(v) if real else v for v in values],
    )
    missing = (
        graph.op("IsNaN", x)
        if replaced != replaced
        else graph.op("Equal", x, graph.constant(x.dtype, [], [replaced]))
    )
    return [graph.op("Where", missing, replacement, x)]


feature_vectorizer = Op("FeatureVectorizer", ML)


@feature_vectorizer.decompose
def feature_vectorizer_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    sizes = numbers_attribute(node, "inputdimensions", int)
    if len(sizes) != len(node.inputs) or any(s < 0 for s in sizes):
        fail(node, f"inputdimensions {sizes} do not fit {len(node.inputs)} inputs")
    parts = []
    for i, size in enumerate(sizes):
        x = node.inputs[i]
        if x.rank not in (1, 2) or x.dtype not in NUMBERS:
            fail(node, f"it takes matrices of numbers, not {x}")
        x = graph.op("Cast", x, to=FLOAT)
        x = x if x.rank == 2 else graph.op("Unsqueeze", x, graph.ints([1]))
        parts.append(
            graph.op("Pad", x, graph.ints([0, 0, 0, size - x.shape[1]]))
            if size != x.shape[1]
            else x
        )
    return [graph.op("Concat", *parts, axis=1)]


one_hot_encoder = Op("OneHotEncoder", ML)


@one_hot_encoder.decompose
def one_hot_encoder_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Categories as float32 ones and zeros in a new last dimension; other values are all zeros."""
    x, categories = node.inputs[0], numbers_attribute(node, "cats_int64s", int)
    if x.dtype not in NUMBERS or not categories:
        fail(node, f"it takes numbers and categories, not {x} and {categories}")
    if not node.attr("zeros", 1):
        raise NeedsHost  # to check that all values are categories
    x = graph.op("Unsqueeze", graph.op("Cast", x, to=INT64), graph.ints([-1]))
    return [
        graph.op(
            "Cast",
            graph.op("Equal", x, graph.constant(INT64, [len(categories)], categories)),
            to=FLOAT,
        )
    ]


@one_hot_encoder.host
def one_hot_encoder_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Categories that are strings, and with zeros = 0 the check that there are no other values."""
    x, strict = inputs[0], not node.attr("zeros", 1)
    if isinstance(x, StringTensor):
        names = node.attrs.get("cats_strings")
        if type(names) is not list or not names:
            fail(
                node,
                f"it has {x} and no categories that are strings",
                "Check what is fed; if it is right, export the model again.",
            )
        place = {name: i for i, name in reversed(list(enumerate(names)))}
        found, count = [place.get(s, -1) for s in x.strings], len(names)
    elif strict and isinstance(x, RunTensor):
        categories = numbers_attribute(node, "cats_int64s", int)
        place = {c: i for i, c in reversed(list(enumerate(categories)))}
        found, count = [place.get(int(v), -1) for v in x.numbers], len(categories)
    else:
        return None
    run.check_room(NUMBER * len(found) * count)
    if strict and -1 in found:
        fail(
            node,
            "an unknown category was fed, which is an error with zeros = 0",
            "Feed known categories, or export the model with zeros = 1.",
        )
    return [
        RunTensor.of(FLOAT, [*x.shape, count], [float(i == k) for i in found for k in range(count)])
    ]
