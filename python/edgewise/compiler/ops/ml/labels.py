"""LabelEncoder and CategoryMapper, which exchange strings and numbers, and operators of maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import DOUBLE, FLOAT, INT64, NAME, STRING
from ...declare.op import Op, fail
from ...declare.values import Map, RunTensor, Sequence, StringTensor
from .attributes import ML, NUMBER

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext

ENTRY = 128  # bytes of an entry of a map
KINDS = {"strings": STRING, "int64s": INT64, "floats": FLOAT}


def elements_of(node: BoundNode, v: Any) -> list[Any]:
    """Flat list of a tensor's strings or numbers."""
    if not isinstance(v, (RunTensor, StringTensor)):
        fail(
            node,
            f"its input is {v}; a tensor is expected",
            "Check what is fed; if it is right, export the model again.",
        )
    return v.strings if isinstance(v, StringTensor) else v.numbers


def _tensor(dtype: int, shape: list[int], values: list[Any]) -> RunTensor | StringTensor:
    return StringTensor(shape, values) if dtype == STRING else RunTensor.of(dtype, shape, values)


def _table(node: BoundNode, what: str) -> tuple[int, list[Any]]:
    """(dtype, elements) of the attributes keys_* or values_*. what: "keys" or "values"."""
    t = node.attrs.get(what + "_tensor")
    if t is not None:
        return t.dtype, list(t.strings) if t.dtype == STRING else t.numbers()
    for kind, dtype in KINDS.items():
        if node.attrs.get(f"{what}_{kind}"):
            return dtype, list(node.attrs[f"{what}_{kind}"])
    fail(node, f"it has no {what}", "Export the model again.")


label_encoder = Op("LabelEncoder", ML)


@label_encoder.host
def label_encoder_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Each element, a key, becomes the value of the same index. NaN equals NaN."""
    x, classes = inputs[0], node.attrs.get("classes_strings")
    if node.opset < 2:
        if not isinstance(classes, list):
            fail(node, "it has no classes_strings", "Export the model again.")
        numbers = range(len(classes))
        kind, keys, dtype, values = (
            (STRING, classes, INT64, numbers)
            if x.dtype == STRING
            else (x.dtype, numbers, STRING, classes)
        )
    else:
        (kind, keys), (dtype, values) = _table(node, "keys"), _table(node, "values")
    if len(keys) != len(values) or kind != x.dtype:
        fail(
            node,
            f"{len(keys)} keys of type {NAME.get(kind, kind)} and {len(values)} values, for {x}",
        )
    other = node.attrs.get("default_tensor")
    if other is not None:
        other = (other.strings or other.numbers())[0]
    elif dtype == STRING:
        other = node.attr("default_string", "_Unused")
    elif dtype in (FLOAT, DOUBLE):
        other = node.attr("default_float", -0.0)
    else:
        other = node.attr("default_int64", -1)
    table = {"NaN" if k != k else k: v for k, v in reversed(list(zip(keys, values)))}
    return [
        _tensor(
            dtype, x.shape, [table.get("NaN" if k != k else k, other) for k in elements_of(node, x)]
        )
    ]


zip_map = Op("ZipMap", ML)


@zip_map.host
def zip_map_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Each row of a float tensor as a map from the labels to its elements, as scikit-learn's
    classifiers return it.
    """
    x = inputs[0]
    names, kind = node.attrs.get("classlabels_strings"), STRING
    if not names:
        names, kind = node.attrs.get("classlabels_int64s") or [], INT64
    width = x.shape[-1] if x.rank else 0
    if x.rank not in (1, 2) or width != len(names):
        fail(node, f"{len(names)} labels for {x}")
    run.check_room(ENTRY * x.count)
    numbers = elements_of(node, x)
    return [
        Sequence(
            Map(dict(zip(names, numbers[i : i + width])), kind, FLOAT)
            for i in range(0, len(numbers), width or 1)
        )
    ]


dict_vectorizer = Op("DictVectorizer", ML)


@dict_vectorizer.host
def dict_vectorizer_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """A map's values in the order of a vocabulary, 0 for a missing key."""
    x, words = (
        inputs[0],
        node.attrs.get("string_vocabulary") or node.attrs.get("int64_vocabulary") or [],
    )
    if not isinstance(x, Map):
        fail(
            node,
            f"its input is {x}; a map is expected",
            "Check what is fed; if it is right, export the model again.",
        )
    zero = "" if x.value_type == STRING else 0
    return [_tensor(x.value_type, [1, len(words)], [x.get(w, zero) for w in words])]


cast_map = Op("CastMap", ML)


@cast_map.host
def cast_map_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """A map's values in the order of its keys, or, with map_form SPARSE, a vector of max_map
    elements with each value at the index that is its key.
    """
    x, to = (
        inputs[0],
        {"TO_FLOAT": FLOAT, "TO_INT64": INT64, "TO_STRING": STRING}.get(
            node.attr("cast_to", "TO_FLOAT")
        ),
    )
    if not isinstance(x, Map) or x.key_type != INT64 or to is None:
        fail(
            node,
            f"its input is {x}; a map with integer keys is expected; it casts to"
            f" {node.attr('cast_to', 'TO_FLOAT')}",
            "Check what is fed; if it is right, export the model again.",
        )
    conversions: dict[int, Callable[[Any], Any]] = {
        FLOAT: float,
        INT64: lambda v: int(float(v)),
        STRING: str,
    }
    convert = conversions[to]
    if node.attr("map_form", "DENSE") == "DENSE":
        values = [convert(x[k]) for k in sorted(x)]
    else:
        size = node.attr("max_map", 1)
        if not 0 < size <= 1 << 24 or any(not 0 <= k < size for k in x):
            fail(node, f"its keys are not below max_map = {size}")
        run.check_room(NUMBER * size)
        values = [
            convert(x[k]) if k in x else convert(0) if to != STRING else "0.f" for k in range(size)
        ]
    return [_tensor(to, [1, len(values)], values)]


category_mapper = Op("CategoryMapper", ML)


@category_mapper.host
def category_mapper_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Strings become their numbers, or numbers their strings, by two lists of one length."""
    x, numbers, names = inputs[0], node.attrs.get("cats_int64s"), node.attrs.get("cats_strings")
    if (
        not isinstance(numbers, list)
        or not isinstance(names, list)
        or len(numbers) != len(names)
        or x.dtype not in (STRING, INT64)
    ):
        fail(
            node,
            f"its categories do not match {x}",
            "Check what is fed; if it is right, export the model again.",
        )
    if x.dtype == STRING:
        table, other = dict(zip(names, numbers)), node.attr("default_int64", -1)
        return [RunTensor.of(INT64, x.shape, [table.get(s, other) for s in x.strings])]
    table, other = dict(zip(numbers, names)), node.attr("default_string", "_Unused")
    return [StringTensor(x.shape, [table.get(i, other) for i in x.numbers])]
