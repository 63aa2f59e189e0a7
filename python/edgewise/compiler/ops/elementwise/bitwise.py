"""Operators on the bits of integers, and IsInf."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOATS, INTEGERS, RANGE, wrap
from ...declare.op import Op, broadcast, fail, like, unsupported
from .binary import INTEGER_FOLDS, emit_binary, fold_binary
from .unary import emit_unary

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Folded,
        Inferred,
        Shape,
    )

INTEGER_FOLDS.update(
    {"bit_and": lambda a, c: a & c, "bit_or": lambda a, c: a | c, "bit_xor": lambda a, c: a ^ c}
)
_TYPES = set(RANGE) & INTEGERS


def _declare(name: str, kind: Callable[[BoundNode], str]) -> Op:
    """Declares a binary operator of integers; kind(node): the kernel's operation."""
    o = Op(name)

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        a, c = node.inputs
        if a.dtype not in _TYPES or c.dtype != a.dtype:
            fail(node, f"its inputs are {a} and {c}; two tensors of one integer type are expected")
        return [(a.dtype, broadcast(node, a.shape, c.shape))]

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        emit_binary(
            builder,
            kind(node),
            builder.view(node.inputs[0]),
            builder.view(node.inputs[1]),
            builder.out(node.outputs[0]),
            node.inputs[0].dtype,
        )

    @o.fold
    def op_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
        return fold_binary(kind(node), node, outs)

    return o


def _always(op: str) -> Callable[[BoundNode], str]:
    return lambda node: op


for _name, _op in {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}.items():
    _declare(_name, _always(_op))


def _shift(left: bool) -> Callable[[int, int], int]:
    """The shift of two numbers, as the kernel computes it."""

    def shift(a: int, c: int) -> int:
        if not 0 <= c < 64:
            return -1 if a < 0 and not left else 0
        return a << c if left else a >> c

    return shift


INTEGER_FOLDS.update({"shift_left": _shift(True), "shift_right": _shift(False)})


def _direction(node: BoundNode) -> str:
    direction = node.attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        fail(node, f"its direction is '{direction}'", "It is LEFT or RIGHT.")
    return "shift_left" if direction == "LEFT" else "shift_right"


# The right shift of signed integers is arithmetic. A shift by a negative number, or by more bits
# than there are, leaves only the sign.
bit_shift = _declare("BitShift", _direction)


bitwise_not = Op("BitwiseNot")


@bitwise_not.infer
def bitwise_not_infer(node: BoundNode) -> Inferred:
    if node.inputs[0].dtype not in _TYPES:
        fail(node, f"its input is {node.inputs[0]}; integers are expected")
    return [like(node, 0)]


@bitwise_not.lower
def bitwise_not_lower(node: BoundNode, builder: Builder) -> None:
    emit_unary(builder, node, "bit_not")


@bitwise_not.fold
def bitwise_not_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    return [[wrap(outs[0][0], ~x) for x in node.inputs[0].numbers]]


is_inf = Op("IsInf")
any_inf = Op("IsInf", "edgewise")  # of either sign


@any_inf.infer
def any_inf_infer(node: BoundNode) -> Inferred:
    return [like(node, 0, BOOL)]


@any_inf.lower
def any_inf_lower(node: BoundNode, builder: Builder) -> None:
    emit_unary(builder, node, "is_inf")


@is_inf.decompose
def is_inf_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, positive, negative = (
        node.inputs[0],
        node.attr("detect_positive", 1),
        node.attr("detect_negative", 1),
    )
    if x.dtype not in FLOATS:
        unsupported(node, f"its input {x} is of a type without infinities")
    if positive and negative:
        return [graph.op("IsInf", x, domain="edgewise")]
    if not positive and not negative:
        return [
            graph.op(
                "And", graph.op("IsInf", x, domain="edgewise"), graph.constant(BOOL, [], [False])
            )
        ]
    return [
        graph.op("Equal", x, graph.constant(x.dtype, [], [float("inf" if positive else "-inf")]))
    ]
