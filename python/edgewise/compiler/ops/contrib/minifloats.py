"""Products with weights of eight and four bits that are floats, with a scale for each block
(float8 E4M3 and NVFP4 checkpoints).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import E4M3FN, FLOAT, INT32, UINT8
from ...declare.op import MS, Op, fail, one_number, takes, unsupported
from ...declare.packing import unpacked
from ..attention.attention_kernel import shaped

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

# The numbers of float4 E2M1, by their codes, doubled: then all are integers.
E2M1_DOUBLED = [0, 1, 2, 3, 4, 6, 8, 12]


def _block(node: BoundNode, default: int, k: int) -> int:
    block, a = node.attr("block_size", default), node.inputs[0]
    if block < 1:
        fail(node, f"its block_size is {block}", "Export the model again.")
    if not a.rank or a.shape[-1] != k:
        fail(node, f"A {a} and B {node.inputs[1]} have different numbers of columns")
    return block


fp8 = Op("MatMulBlockQuantizedFp8Weight", MS, parameters=(4,))


@fp8.decompose
def fp8_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """A, rounded to float8 where it has a scale, times the transpose of B in float32."""
    a, b, scale, a_scale, bias = [*node.inputs, *[None] * 2][:5]
    takes(node, (FLOAT,), 0, 2, 3, 4)
    takes(node, (E4M3FN,), 1)
    if b.rank != 2:
        fail(node, f"its B is {b}; [N, K] is expected")
    columns, k = b.shape
    block = _block(node, 128, k)
    shaped(node, 2, "b_scale", columns, -(-k // block))
    shaped(node, 4, "bias", columns)
    if a_scale is not None:
        if not one_number(a_scale.shape):
            fail(node, f"its a_scale is {a_scale}; one number is expected")
        a_scale = graph.reshape(a_scale, [])
        rounded = graph.op("Cast", graph.op("Div", a, a_scale), to=E4M3FN)
        a = graph.op("Mul", graph.op("Cast", rounded, to=FLOAT), a_scale)
    w = graph.op("DequantizeLinear", b, scale, axis=1, block_size=block)
    y = graph.op("MatMul", a, graph.op("Transpose", w, perm=[1, 0]))
    return [graph.op("Add", y, bias) if bias is not None else y]


fp4 = Op("MatMulBlockQuantizedFp4Weight", MS, parameters=(5,))


@fp4.decompose
def fp4_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """MatMulNBits of 8 bits: twice a number of float4 is an integer from -12 to 12."""
    a, b, scale, factor, _, bias = [*node.inputs, *[None] * 2][:6]
    takes(node, (FLOAT,), 0, 3, 4, 5)
    takes(node, (UINT8,), 1, 2)
    if b.rank != 2:
        fail(node, f"its B is {b}; [N, K / 2] is expected")
    columns, k = b.shape[0], 2 * b.shape[1]
    block = _block(node, 16, k)
    if block < 16 or block & (block - 1):
        unsupported(node, f"blocks of {block}", "Quantize with blocks of 16, 32, 64, ... weights.")
    blocks = -(-k // block)
    shaped(node, 2, "weight_scale", columns, blocks)
    shaped(node, 5, "bias", columns)
    if not one_number(factor.shape):
        fail(node, f"its weight_scale_2 is {factor}; one number is expected")
    numbers = [128 + sign * n for sign in (1, -1) for n in E2M1_DOUBLED]
    codes = graph.op("Cast", unpacked(graph, b, 4, k), to=INT32)
    w = graph.op("Gather", graph.constant(UINT8, [16], numbers), codes, axis=0)
    if k % block:
        zero = graph.constant(UINT8, [], [128])
        w = graph.op("Pad", w, graph.ints([0, 0, 0, blocks * block - k]), zero)
    scale = graph.op("Cast", graph.op("BitCast", scale, to=E4M3FN), to=FLOAT)
    factor = graph.op("Mul", graph.reshape(factor, []), graph.constant(FLOAT, [], [0.5]))
    return [
        graph.op(
            "MatMulNBits",
            *(a, graph.reshape(w, [columns, blocks, block]), graph.op("Mul", scale, factor)),
            *(None, None, bias),
            domain=MS,
            K=k,
            N=columns,
            bits=8,
            block_size=block,
        )
    ]
