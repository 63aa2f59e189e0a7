"""GatherBlockQuantized: rows of a quantized embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT4, INT32, INT64, UINT4, UINT8
from ...declare.op import MS, Op, Weight, axis_of, fail, product, stored_alike, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Inferred, Value


gather_quantized = Op(
    "GatherBlockQuantized", MS, half=[2], weight=Weight(0, "embedding", quantized=True)
)


def _packed(node: BoundNode) -> tuple[int, int]:
    """(bits of a weight, columns). A uint8 holds several weights, a 4-bit type one."""
    x = node.inputs[0]
    if x.dtype in (UINT4, INT4):
        return 4, x.shape[-1]
    bits = node.attr("bits", 4)
    return bits, x.shape[-1] * (8 // bits)


@gather_quantized.decompose
def gather_quantized_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """A table of more than two dimensions as a matrix: the blocks of its last dimension do not
    cross its end.
    """
    x, i, scale = node.inputs[:3]
    if (
        x.rank < 3
        or x.dtype not in (UINT4, INT4, UINT8)
        or axis_of(node, node.attr("gather_axis", 0), x.rank) != 0
        or axis_of(node, node.attr("quantize_axis", 1), x.rank) != x.rank - 1
    ):
        return None
    (bits, cols), block = _packed(node), node.attr("block_size", 128)
    if block < 16 or cols % block or node.has(3) and x.dtype == UINT8 and cols // block * bits % 8:
        return None
    tables = [
        (
            graph.op("Reshape", v, graph.constant(INT64, [2], [v.shape[0], product(v.shape[1:])]))
            if v is not None
            else None
        )
        for v in (x, scale, node.input(3))
    ]
    y = graph.op(
        "GatherBlockQuantized",
        tables[0],
        i,
        *tables[1:],
        domain=MS,
        **{**node.attrs, "quantize_axis": 1, "gather_axis": 0},
    )
    shape = [*i.shape, *x.shape[1:-1], cols]
    return [graph.reshape(y, shape)]


@gather_quantized.infer
def gather_quantized_infer(node: BoundNode) -> Inferred:
    x, i, scale = node.inputs[:3]
    rank = x.rank
    if (
        x.dtype not in (UINT4, INT4, UINT8)
        or rank != 2
        or axis_of(node, node.attr("gather_axis", 0), rank) != 0
        or axis_of(node, node.attr("quantize_axis", 1), rank) != 1
    ):
        unsupported(node, f"gathering from {x} with these axes")
    bits, cols = _packed(node)
    block = node.attr("block_size", 128)
    if (
        i.dtype not in (INT32, INT64)
        or block < 16
        or bits not in (2, 4, 8)
        or not stored_alike(scale.shape, [x.shape[0], -(-cols // block)])
    ):
        fail(node, f"scales {scale} do not fit {x} in blocks of {block}")
    if cols * bits % 8:
        unsupported(node, f"rows of {cols} {bits}-bit weights, which do not end at a whole byte")
    if node.has(3):
        z, blocks = node.inputs[3], -(-cols // block)
        stored = -(-blocks * bits // 8) if x.dtype == UINT8 else blocks
        if z.dtype != x.dtype or not stored_alike(z.shape, [x.shape[0], stored]):
            fail(node, f"zero points {z} do not fit {x} in blocks of {block}")
    return [(FLOAT, list(i.shape) + [cols])]


@gather_quantized.lower
def gather_quantized_lower(node: BoundNode, builder: Builder) -> None:
    x, i, scale = node.inputs[:3]
    bits, cols = _packed(node)
    builder.emit(
        "gather_quantized",
        {
            "x": builder.contiguous(builder.view(x)),
            "index": builder.flat(builder.view(i)),
            "scales": builder.contiguous(builder.view(scale)),
            "zeros_": builder.contiguous(builder.view(node.inputs[3])) if node.has(3) else None,
            "y": builder.out(node.outputs[0]),
        },
        bits=bits,
        count=product(i.shape),
        rows=x.shape[0],
        cols=cols,
        block=node.attr("block_size", 128),
        index_type=i.dtype,
        scale_type=scale.dtype,
        signed=int(x.dtype == INT4),
        zeros=(1 if x.dtype == UINT8 else 2) if node.has(3) else -1 if x.dtype == UINT4 else 0,
    )
