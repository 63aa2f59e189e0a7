"""Quantization as ops that keep the float input beside its integers, so that it has a gradient:
products of dynamically quantized activations as onnxruntime's quantizer spells them, and pairs of
QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT
from ..ir import BoundNode
from .rewrite import Rewriter

if TYPE_CHECKING:
    from ..bind import BoundGraph


def fuse_quantized_products(bound: BoundGraph) -> None:
    """DynamicQuantizeLinear, MatMulInteger, Cast and Mul by both scales become QuantizedMatMul,
    which keeps the float input beside its bytes.
    """
    r = Rewriter(bound)
    for n in r.nodes("MatMulInteger"):
        _match(r, n)
    r.done()


def pair_quantization(bound: BoundGraph) -> None:
    """DequantizeLinear directly after QuantizeLinear (of the same axis and blocks) or
    DynamicQuantizeLinear becomes QuantizeDequantize, which keeps the float input beside its bytes.
    """
    r = Rewriter(bound)
    for n in r.nodes("DequantizeLinear"):
        source = n.inputs[0].producer
        q, scale, zero = [*n.inputs, None][:3]
        if (
            source is None
            or source.outputs[0] is not q
            or source.op not in ("QuantizeLinear", "DynamicQuantizeLinear")
        ):
            continue
        dynamic = source.op == "DynamicQuantizeLinear"
        theirs = [None, None] if dynamic else [source.inputs[1], source.input(2)]
        if not dynamic and (
            source.inputs[0].dtype != FLOAT
            or list(source.inputs[1].shape) != list(scale.shape)
            or any(source.attr(a, d) != n.attr(a, d) for a, d in (("axis", 1), ("block_size", 0)))
        ):
            continue
        r.become(
            n,
            "QuantizeDequantize",
            "edgewise",
            [q, scale, zero, source.inputs[0], *theirs],
            axis=n.attr("axis", 1),
            block_size=n.attr("block_size", 0),
            dynamic=int(dynamic),
        )
    r.done()


def _match(r: Rewriter, node: BoundNode) -> None:
    """Mul(Cast(MatMulInteger(a, B, a_zero, b_zero)), Mul(a_scale, b_scale)) after a, a_scale,
    a_zero = DynamicQuantizeLinear(x).
    """
    a, w = node.inputs[:2]
    source = a.producer
    if (
        source is None
        or source.op != "DynamicQuantizeLinear"
        or source.outputs[0] is not a
        or w.rank != 2
        or a.rank < 2
        or not node.has(2)
        or node.inputs[2] is not source.outputs[2]
    ):
        return
    cast = r.only_user(node.outputs[0])
    if cast is None or cast.op != "Cast" or cast.outputs[0].dtype != FLOAT:
        return
    last = r.only_user(cast.outputs[0])
    if last is None or last.op != "Mul":
        return
    scales = last.inputs[1] if last.inputs[0] is cast.outputs[0] else last.inputs[0]
    both = scales.producer
    if both is None or both.op != "Mul" or source.outputs[1] not in both.inputs:
        return
    w_scale = both.inputs[1] if both.inputs[0] is source.outputs[1] else both.inputs[0]
    zero = node.input(3)
    if (
        any(v is not None and list(v.shape) not in ([], [1], [w.shape[1]]) for v in (w_scale, zero))
        or list(last.outputs[0].shape) != list(node.outputs[0].shape)
        or w_scale.dtype != FLOAT
    ):
        return
    r.become(
        last,
        "QuantizedMatMul",
        "edgewise",
        [
            source.inputs[0],
            a,
            source.outputs[1],
            source.outputs[2],
            w,
            w_scale,
            *([zero] if zero is not None else []),
        ],
    )
