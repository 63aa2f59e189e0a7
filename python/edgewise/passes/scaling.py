"""What scales and shifts the channels of a convolution, into its weights and bias:
BatchNormalization with fixed statistics, and Mul and Add by a number per channel.
"""

from __future__ import annotations

from ..declare.dtypes import FLOAT
from ..ir import Value
from ..ops.norm.batch_normalization import is_training
from .epilogue import take_output
from .rewrite import Rewriter, constants_first, other


def fold_scaling(bound):
    """Weights that are trained stay as they are; those of the file are multiplied once, in the
    plan's init steps.
    """
    constants_first(bound)
    r = Rewriter(bound)
    for n in r.nodes("Conv", "ConvTranspose"):
        while _fold(r, n):
            pass
    r.done()


def _fold(r, node):
    y = node.outputs[0]
    user = r.only_user(y)
    x, w, bias = (*node.inputs, None)[:3]
    if (
        user is None
        or len(node.inputs) > 3
        or node.domain
        or user.domain
        or not w.constant
        or bias is not None
        and not bias.constant
        or y.dtype != FLOAT
        or node.op == "ConvTranspose"
        and node.attr("group", 1) != 1
    ):
        return False
    channels = y.shape[1]

    def op(kind, *inputs, shape=(channels,)):
        return r.insert(node, kind, "", inputs, FLOAT, shape)

    scale = shift = None
    if (
        user.op == "BatchNormalization"
        and user.inputs[0] is y
        and all(v.constant for v in user.inputs[1:])
        and not is_training(user)
    ):
        gain, shift, mean, variance = user.inputs[1:]
        scale = op(
            "Div",
            gain,
            op(
                "Sqrt",
                op(
                    "Add",
                    variance,
                    Value("epsilon", FLOAT, [], numbers=[user.attr("epsilon", 1e-5)]),
                ),
            ),
        )
        shift = op("Sub", shift, op("Mul", mean, scale))
    elif user.op in ("Mul", "Add"):
        v = other(user, y)
        shape = [1] * (y.rank - v.rank) + list(v.shape)
        if v is y or not v.constant or shape != [1, channels] + [1] * (y.rank - 2):
            return False
        v = r.reshape(node, v, [channels])
        scale, shift = (v, None) if user.op == "Mul" else (None, v)
    else:
        return False
    if scale is not None:
        along = (
            [channels] + [1] * (w.rank - 1)
            if node.op == "Conv"
            else [1, channels] + [1] * (w.rank - 2)
        )
        w = op("Mul", w, r.reshape(node, scale, along), shape=w.shape)
        bias = op("Mul", bias, scale) if bias is not None else None
    if shift is not None:
        bias = op("Add", bias, shift) if bias is not None else shift
    r.become(node, node.op, "", [x, w] + ([bias] if bias is not None else []), **node.attrs)
    take_output(r, node, user)
    return True
