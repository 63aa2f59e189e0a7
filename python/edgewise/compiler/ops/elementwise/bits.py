"""BitCast, and the operators by which elements of less than a byte are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BFLOAT16,
    BITS,
    FLOAT,
    FLOAT16,
    NAME,
    STRING,
    UINT8,
    bits_of,
    pack,
    pack_codes,
    unpack,
    unpack_codes,
)
from ...declare.op import Op, fail, like, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Folded,
        Inferred,
        Shape,
        Value,
    )

# Elements of less than a byte are moved as codes of a byte each (bind/): Codes converts packed
# elements to uint8, OfCodes back to the type of the attribute `to`.
codes, of_codes = Op("Codes", "edgewise"), Op("OfCodes", "edgewise")


@codes.infer
def codes_infer(node: BoundNode) -> Inferred:
    return [like(node, 0, UINT8)]


@codes.fold
def codes_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    v = node.inputs[0]
    return [unpack_codes(BITS[v.dtype], pack(v.dtype, v.numbers), len(v.numbers))]


@codes.lower
def codes_lower(node: BoundNode, builder: Builder) -> None:
    builder.unpack_into(builder.view(node.inputs[0]), builder.out(node.outputs[0]))


@of_codes.infer
def of_codes_infer(node: BoundNode) -> Inferred:
    return [like(node, 0, node.attr("to"))]


@of_codes.fold
def of_codes_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    numbers, to = node.inputs[0].numbers, outs[0][0]
    return [unpack(to, pack_codes(BITS[to], numbers), len(numbers))]


@of_codes.lower
def of_codes_lower(node: BoundNode, builder: Builder) -> None:
    builder.pack_into(builder.view(node.inputs[0]), builder.out(node.outputs[0]))


bit_cast = Op("BitCast", half=[0])


def _half_type(graph: Binder, v: Value) -> int | None:
    """The half type that a float32 value has in the file, or None where it is not known.

    Operators that only move elements do not change the type.
    """
    while True:
        declared = graph.graph.value_info.get(v.name)
        if declared is not None and declared.dtype in (FLOAT16, BFLOAT16):
            return declared.dtype
        n = v.producer
        if n is None or n.domain not in ("", "edgewise"):
            return None
        if n.op == "Cast":
            return next(
                (t for t in (n.inputs[0].dtype, n.attrs.get("to")) if t in (FLOAT16, BFLOAT16)),
                None,
            )
        if not n.decl.moves and n.op not in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
            return None
        v = n.inputs[0]


@bit_cast.decompose
def bit_cast_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Half precision is float32 within a graph: it is converted back for its bits."""
    x, to = node.inputs[0], node.attr("to")
    if to not in NAME or to == STRING:
        fail(node, f"it cannot convert {x} to {NAME.get(to, to)}", "Check the attribute `to`.")
    if x.dtype == FLOAT and bits_of(to) == 16:
        half = _half_type(graph, x)
        if half is None:
            unsupported(
                node,
                f"whether {x} is float16 or bfloat16 is not stored in the file",
                "Store the shapes and types of inner values in the file (onnx.shape_inference).",
            )
        x = graph.narrow(x, half)
    if bits_of(x.dtype) != bits_of(to):
        fail(
            node,
            f"elements of {x} do not have as many bits as {NAME[to]}",
            "Export the model again.",
        )
    return [graph.op("SameBits", x, domain="edgewise", to=to)]


same_bits = Op("SameBits", "edgewise", half=[0])


@same_bits.infer
def same_bits_infer(node: BoundNode) -> Inferred:
    return [like(node, 0, node.attr("to"))]


@same_bits.fold
def same_bits_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    v = node.inputs[0]
    return [unpack(outs[0][0], pack(v.dtype, v.numbers), len(v.numbers))]


@same_bits.lower
def same_bits_lower(node: BoundNode, builder: Builder) -> None:
    v = builder.view(node.inputs[0])
    builder.alias(node.outputs[0], v.as_type(node.outputs[0].dtype))
