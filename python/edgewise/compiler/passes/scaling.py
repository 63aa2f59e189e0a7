"""Folds what scales and shifts the channels of a convolution into its weights and bias:
BatchNormalization with fixed statistics, and Mul and Add by a number per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT
from ..ir import BoundNode, Value
from ..ops.norm.batch_normalization import is_training
from .epilogue import take_output
from .rewrite import Rewriter, constants_first, other

if TYPE_CHECKING:
    from ..bind import BoundGraph


def fold_scaling(bound: BoundGraph) -> None:
    """Folds scales and shifts into constant weights, which init steps of the plan multiply once.

    Weights that are trained stay as they are.
    """
    constants_first(bound)
    r = Rewriter(bound)
    for n in r.nodes("Conv", "ConvTranspose"):
        while _fold(r, n):
            pass
    r.done()


def _fold(r: Rewriter, node: BoundNode) -> bool:
    """Folds the only user of a convolution into it, where it scales or shifts channels."""
    y = node.outputs[0]
    user = r.only_user(y)
    if user is None or user.domain or not _can_take(node):
        return False
    found = _scale_and_shift(r, node, user)
    if found is None:
        return False
    scale, shift = found
    channels = [y.shape[1]]
    x, w, bias = (*node.inputs, None)[:3]
    if scale is not None:
        if w.dtype != FLOAT:  # products of halves are no halves
            w = r.insert(node, "Cast", "", [w], FLOAT, w.shape, to=FLOAT)
        ones = [1] * (w.rank - 1)
        along = channels + ones if node.op == "Conv" else [1, *channels, *ones[1:]]
        w = _insert(r, node, "Mul", w, r.reshape(node, scale, along), shape=w.shape)
        bias = _insert(r, node, "Mul", bias, scale, shape=channels) if bias is not None else None
    if shift is not None:
        bias = _insert(r, node, "Add", bias, shift, shape=channels) if bias is not None else shift
    r.become(node, node.op, "", [x, w] + ([bias] if bias is not None else []), **node.attrs)
    take_output(r, node, user)
    return True


def _can_take(node: BoundNode) -> bool:
    """Whether a convolution has constant weights and bias, and no residual."""
    bias = node.input(2)
    return (
        len(node.inputs) <= 3
        and not node.domain
        and node.inputs[1].constant
        and (bias is None or bias.constant)
        and node.outputs[0].dtype == FLOAT
        and (node.op != "ConvTranspose" or node.attr("group", 1) == 1)
    )


def _scale_and_shift(
    r: Rewriter, node: BoundNode, user: BoundNode
) -> tuple[Value | None, Value | None] | None:
    """(scale, shift) by which a convolution's user changes its channels, each [channels] or None;
    None where the user does something else.
    """
    y = node.outputs[0]
    channels = y.shape[1]
    if (
        user.op == "BatchNormalization"
        and user.inputs[0] is y
        and all(v.constant for v in user.inputs[1:])
        and not is_training(user)
    ):
        gain, shift, mean, variance = user.inputs[1:]
        epsilon = Value("epsilon", FLOAT, [], numbers=[user.attr("epsilon", 1e-5)])
        shape = [channels]
        moved = _insert(r, node, "Add", variance, epsilon, shape=shape)
        deviation = _insert(r, node, "Sqrt", moved, shape=shape)
        scale = _insert(r, node, "Div", gain, deviation, shape=shape)
        scaled_mean = _insert(r, node, "Mul", mean, scale, shape=shape)
        return scale, _insert(r, node, "Sub", shift, scaled_mean, shape=shape)
    if user.op not in ("Mul", "Add"):
        return None
    v = other(user, y)
    shape = [1] * (y.rank - v.rank) + list(v.shape)
    if v is y or not v.constant or shape != [1, channels] + [1] * (y.rank - 2):
        return None
    v = r.reshape(node, v, [channels])
    return (v, None) if user.op == "Mul" else (None, v)


def _insert(r: Rewriter, node: BoundNode, op: str, *inputs: Value, shape: Sequence[int]) -> Value:
    return r.insert(node, op, "", inputs, FLOAT, shape)
