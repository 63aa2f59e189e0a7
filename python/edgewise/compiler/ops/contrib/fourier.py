"""Fourier transforms of real signals and products of complex numbers, which are pairs in the last
dimension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import MS, Op, fail, takes, unsupported
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _signal(node: BoundNode, rank: int) -> list[int]:
    """The dimensions of the signal, the last ones of `rank`."""
    count = node.attr("signal_ndim", 1)
    if node.attr("normalized", 0) or not node.attr("onesided", 1):
        unsupported(node, "a normalized transform, or one of both sides")
    if not 1 <= count <= rank:
        fail(node, f"a signal of {count} dimensions in {node.inputs[0]}")
    return list(range(rank - count, rank))


rfft = Op("Rfft", MS)


@rfft.decompose
def rfft_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """[..., n] as [..., n // 2 + 1, 2]."""
    x = node.inputs[0]
    takes(node, (FLOAT,), 0)
    *others, last = _signal(node, x.rank)
    y = graph.reshape(x, [*x.shape, 1])
    y = graph.op("DFT", y, None, graph.ints([last]), onesided=1)
    for axis in others:
        y = graph.op("DFT", y, None, graph.ints([axis]))
    return [y]


irfft = Op("Irfft", MS)


@irfft.decompose
def irfft_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """[..., n // 2 + 1, 2] as [..., n], n being even."""
    x = node.inputs[0]
    takes(node, (FLOAT,), 0)
    if x.rank < 2 or x.shape[-1] != 2:
        fail(node, f"its input {x}; [..., n // 2 + 1, 2] is expected")
    *others, last = _signal(node, x.rank - 1)
    for axis in others:
        x = graph.op("DFT", x, None, graph.ints([axis]), inverse=1)
    count = 2 * (x.shape[last] - 1)
    y = graph.op("DFT", x, graph.ints([count]), graph.ints([last]), inverse=1, onesided=1)
    return [graph.reshape(y, [*x.shape[:last], count])]


def _declare_product(name: str, sign: int) -> None:
    o = Op(name, MS)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value]:
        """a * b; sign -1: a times the conjugate of b."""
        a, b = node.inputs
        takes(node, (FLOAT,), 0, 1)
        if not a.rank or not b.rank or a.shape[-1] != 2 or b.shape[-1] != 2:
            fail(node, f"its inputs {a} and {b}; [..., 2] is expected")
        (ar, ai), (br, bi) = ([cut(graph, v, v.rank - 1, i, i + 1) for i in (0, 1)] for v in (a, b))
        if sign < 0:
            bi = graph.op("Neg", bi)
        real = graph.op("Sub", graph.op("Mul", ar, br), graph.op("Mul", ai, bi))
        imaginary = graph.op("Add", graph.op("Mul", ar, bi), graph.op("Mul", ai, br))
        return [graph.op("Concat", real, imaginary, axis=-1)]


_declare_product("ComplexMul", 1)
_declare_product("ComplexMulConj", -1)
