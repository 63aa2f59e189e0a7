"""Operators on tensors of strings, which exist on the host only.

Operators that only move elements run on the strings' indices, by the same code as for numbers.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ....errors import OutOfMemory
from ...declare.dtypes import BOOL, DOUBLE, FLOAT, FLOATS, INT64, RANGE, STRING
from ...declare.op import (
    OPS,
    Op,
    broadcast,
    broadcast_strides,
    fail,
    indices,
    product,
    strides_of,
    unsupported,
)
from ...declare.values import RunTensor, StringTensor
from ..elementwise.cast import cast
from ..shape.shape import constant_of_shape
from .regular import Expression

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext

# Operators that only move elements, by domain, and their inputs that hold these elements (None:
# all).
MOVES: dict[str, dict[str, tuple[int, ...] | None]] = {
    "": {
        "Reshape": (0,),
        "Squeeze": (0,),
        "Unsqueeze": (0,),
        "Flatten": (0,),
        "Transpose": (0,),
        "Slice": (0,),
        "Gather": (0,),
        "GatherElements": (0,),
        "GatherND": (0,),
        "Split": (0,),
        "Expand": (0,),
        "Tile": (0,),
        "Compress": (0,),
        "ReverseSequence": (0,),
        "SpaceToDepth": (0,),
        "DepthToSpace": (0,),
        "Trilu": (0,),
        "Where": (1, 2),
        "ScatterElements": (0, 2),
        "ScatterND": (0, 2),
        "Concat": None,
    },
    "ai.onnx.ml": {"ArrayFeatureExtractor": (0,)},
}
# Bytes of an element in a list, in a list under construction and in an array for the caller.
REFERENCES = 24
NUMBER = 40  # bytes of a number in a list
PAIR = 160  # bytes of a pair of strings and their indices
TEXT = 60  # bytes of a short str
WORD = re.compile(r"\S+")
SHAPE_ONLY = ("Shape", "Size")  # operators that read the shape alone


def moved(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any]:
    """Outputs of a node with strings among its inputs that moves elements, or reads their shape.

    Raises:
        UnsupportedOp: it does something else with strings.
    """
    which: Iterable[int] | None = (0,)
    if node.op not in SHAPE_ONLY:
        which = MOVES.get(node.domain, {}).get(node.op, ())
    which = range(len(inputs)) if which is None else which
    for i, v in enumerate(inputs):
        if v is not None and (
            v.dtype == -1
            or v.dtype == STRING
            and i not in which
            or i in which
            and v.dtype != STRING
        ):
            unsupported(
                node,
                f"its input {i} is {v}",
                "Check what is fed; if it is right, export the model with another exporter or"
                " optimization level.",
            )
    strings: list[str] = []
    places = list(inputs)
    for i in which:
        if i < len(inputs) and inputs[i] is not None:
            places[i] = RunTensor.of(
                INT64, inputs[i].shape, list(range(len(strings), len(strings) + inputs[i].count))
            )
            strings += inputs[i].strings
    outs = run.plain(
        node.op, node.domain, places, [o is not None for o in node.outputs], node.attrs, node.opset
    )
    if node.op not in SHAPE_ONLY:
        run.check_room((REFERENCES + NUMBER) * sum(v.count for v in outs if v is not None))
    return (
        outs
        if node.op in SHAPE_ONLY
        else [
            v if v is None else StringTensor(v.shape, [strings[i] for i in v.numbers]) for v in outs
        ]
    )


def _strings(node: BoundNode, *indices: int) -> list[StringTensor]:
    """These inputs. Raises ModelError where one is not a tensor of strings."""
    for i in indices:
        if not isinstance(node.input(i), StringTensor):
            fail(
                node,
                f"its input {i} is {node.input(i)}; strings are expected",
                "Check what is fed; if it is right, export the model again.",
            )
    return [node.inputs[i] for i in indices]


def _pairs(
    node: BoundNode, run: HostContext, a: StringTensor, b: StringTensor
) -> tuple[list[int], list[tuple[str, str]]]:
    """(shape, pairs of elements) of two tensors of strings, broadcast."""
    shape: Any = broadcast(node, a.shape, b.shape)  # numbers: runs have no registers
    if product(shape) >= 1 << 31:
        fail(node, f"its output would have {product(shape)} strings; the limit is 2^31 - 1")
    run.check_room(PAIR * product(shape))
    at = [indices(shape, broadcast_strides(v.shape, strides_of(v.shape), shape)) for v in (a, b)]
    return shape, [(a.strings[i], b.strings[j]) for i, j in zip(*at)]


@OPS["", "Equal"].host
def equal_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    if not any(isinstance(v, StringTensor) for v in inputs):
        return None
    shape, pairs = _pairs(node, run, *_strings(node, 0, 1))
    return [RunTensor.of(BOOL, shape, [a == b for a, b in pairs])]


string_concat = Op("StringConcat")


@string_concat.host
def string_concat_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    shape, pairs = _pairs(node, run, *_strings(node, 0, 1))
    ascii_only = all(all(map(str.isascii, v.strings)) for v in node.inputs)
    width = 1 if ascii_only else 4  # bytes of a character
    run.check_room(width * sum(len(a) + len(b) for a, b in pairs))
    return [StringTensor(shape, [a + b for a, b in pairs])]


string_split = Op("StringSplit")


def _count_pieces(text: str, delimiter: str | None, most: int | None, exact: bool = True) -> int:
    """The number of pieces of a text, which are not created.

    Args:
        delimiter: between pieces; None: white space.
        most: splits at most; None or negative: any number.
        exact: False: an upper bound, which takes less time.
    """
    count = (
        text.count(delimiter) + 1
        if delimiter is not None
        else sum(1 for _ in WORD.finditer(text))
        if exact
        else (len(text) + 1) // 2
    )
    return count if most is None or most < 0 else min(count, most + 1)


@string_split.host
def string_split_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    """Pieces along a new last dimension, padded with "", and the number of pieces."""
    (x,) = _strings(node, 0)
    delimiter, most = node.attr("delimiter", "") or None, node.attrs.get("maxsplit")
    if most is not None and type(most) is not int:
        fail(node, f"its attribute 'maxsplit' is {most}")
    try:
        run.check_room(
            TEXT * sum(_count_pieces(s, delimiter, most, exact=False) for s in x.strings)
        )
    except OutOfMemory:
        run.check_room(TEXT * sum(_count_pieces(s, delimiter, most) for s in x.strings))
    pieces = [
        ([] if not s and delimiter is None else s.split(delimiter, -1 if most is None else most))
        for s in x.strings
    ]
    if delimiter is None and most is not None:  # the last piece keeps its inner spaces only
        pieces = [[*p[:-1], p[-1].rstrip()] if p else p for p in pieces]
    pieces = [[] if not s else p for s, p in zip(x.strings, pieces)]
    width = max(map(len, pieces), default=0)
    run.check_room(REFERENCES * width * len(pieces))
    return [
        StringTensor([*x.shape, width], [s for p in pieces for s in p + [""] * (width - len(p))]),
        RunTensor.of(INT64, x.shape, [len(p) for p in pieces]),
    ]


string_normalizer = Op("StringNormalizer")


@string_normalizer.host
def string_normalizer_host(
    node: BoundNode, run: HostContext, inputs: list[Any]
) -> list[Any] | None:
    (x,) = _strings(node, 0)
    if x.rank not in (1, 2) or x.rank == 2 and x.shape[0] != 1:
        fail(node, f"its input has the shape {x.shape}; [C] or [1, C] is expected")
    change, cased, stop = (
        node.attr("case_change_action", "NONE"),
        node.attr("is_case_sensitive", 0),
        node.attrs.get("stopwords", []),
    )
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    convert = changes.get(change)
    if convert is None or type(stop) is not list or not all(isinstance(s, str) for s in stop):
        fail(node, f"its case_change_action is '{change}' and its stopwords are {str(stop)[:100]}")
    run.check_room(TEXT * len(x.strings) + sum(map(len, x.strings)))
    words = {s if cased else s.lower() for s in stop}
    out = [convert(s) for s in x.strings if (s if cased else s.lower()) not in words] or [""]
    return [StringTensor([len(out)] if x.rank == 1 else [1, len(out)], out)]


regex_full_match = Op("RegexFullMatch")


@regex_full_match.host
def regex_full_match_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    (x,) = _strings(node, 0)
    pattern = node.attrs.get("pattern")
    try:
        e = Expression(pattern if isinstance(pattern, str) else "")
    except ValueError as error:
        fail(
            node,
            f"its pattern is not a regular expression that can be matched in linear time ({error})",
            "Write it in RE2's syntax.",
        )
    return [RunTensor.of(BOOL, x.shape, [e.matches(s) for s in x.strings])]


# ---- to and from strings ----
def _text(dtype: int, x: Any) -> str:
    """A number as text, in onnxruntime's format: 1 instead of 1.0, exponents from 1e+08 on; but
    with as few digits as distinguish it from its neighbours.
    """
    if dtype not in FLOATS:
        return str(int(x))
    if math.isnan(x) or math.isinf(x):
        return "NaN" if x != x else "INF" if x > 0 else "-INF"
    for digits in range(1, 18):
        short = float(f"{x:.{digits}g}")
        try:
            if (
                short == x
                or dtype != DOUBLE
                and struct.unpack("<f", struct.pack("<f", short))[0] == x
            ):
                return f"{short:.{max(digits, 8)}g}"
        except OverflowError:
            continue
    return repr(x)


def _number(node: BoundNode, dtype: int, text: str) -> Any:
    """The number that a string holds. Raises ModelError."""
    try:
        if dtype in FLOATS:
            return float(text.strip())
        if dtype == BOOL:
            return (
                bool(float(text))
                if text.strip().lower() not in ("true", "false")
                else text.strip().lower() == "true"
            )
        x = int(text) if not any(c in text.lower() for c in ".en") else int(float(text))
    except (ValueError, OverflowError):
        fail(node, f"the string '{text[:50]}' is not a number", "Check what is fed.")
    low, high = RANGE[dtype]
    if not low <= x <= high:
        fail(node, f"{x} does not fit its type", "Check what is fed.")
    return x


@cast.host
def cast_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
    x, to = inputs[0], node.attr("to", FLOAT)
    if isinstance(x, StringTensor) or to == STRING:
        run.check_room((REFERENCES + NUMBER + TEXT * (to == STRING)) * x.count)
    if isinstance(x, StringTensor):
        return [
            (
                x
                if to == STRING
                else RunTensor.of(to, x.shape, [_number(node, to, s) for s in x.strings])
            )
        ]
    return [StringTensor(x.shape, [_text(x.dtype, v) for v in x.numbers])] if to == STRING else None


@constant_of_shape.host
def constant_of_shape_host(
    node: BoundNode, run: HostContext, inputs: list[Any]
) -> list[Any] | None:
    value, dims = node.attr("value"), node.need(0)
    if value is None or value.strings is None:
        return None
    if any(d < 0 for d in dims) or product(dims) >= 1 << 24:
        fail(node, f"its input has the shape {dims}")
    run.check_room(REFERENCES * product(dims))
    return [StringTensor(dims, value.strings * product(dims))]
