"""Recognises LayerNormalization and RMSNormalization, spelled out in elementary ops, and the
residual sum before a norm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..declare.dtypes import FLOAT
from ..ir import BoundNode, Value
from .rewrite import Rewriter, number, op_of, other

if TYPE_CHECKING:
    from ..bind import BoundGraph


def fuse_normalization(bound: BoundGraph) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias becomes LayerNormalization, x /
    sqrt(mean(x^2) + epsilon) * scale RMSNormalization; both over the last axis.
    """
    r = Rewriter(bound)
    for sqrt in r.nodes("Sqrt"):
        _match(r, sqrt)
    r.done()


def _match(r: Rewriter, sqrt: BoundNode) -> None:
    add = sqrt.inputs[0].producer
    if add is None or add.op != "Add":
        return
    epsilon = next((number(v) for v in add.inputs if number(v) is not None), None)
    mean = next((v for v in add.inputs if op_of(v) == "ReduceMean"), None)
    if epsilon is None or mean is None or not _last_axis(mean.producer):
        return
    square = mean.producer.inputs[0].producer
    if square is None or square.op != "Mul" or square.inputs[0] is not square.inputs[1]:
        return
    x = square.inputs[0]  # of RMSNorm, or the centred values of LayerNorm
    if x.dtype != FLOAT:
        return  # the kernel takes float32 alone
    user = r.only_user(sqrt.outputs[0])
    if user is None:
        return
    if user.op == "Div" and user.inputs[0] is x:
        last = user
    elif user.op == "Reciprocal" or user.op == "Div" and number(user.inputs[0]) == 1.0:
        product = r.only_user(user.outputs[0])
        if product is None or product.op != "Mul" or x not in product.inputs:
            return
        last = product
    else:
        return
    centred = x.producer
    source, rms = x, 1
    if (
        centred is not None
        and centred.op == "Sub"
        and op_of(centred.inputs[1]) == "ReduceMean"
        and _last_axis(centred.inputs[1].producer)
        and centred.inputs[1].producer.inputs[0] is centred.inputs[0]
    ):
        source, rms = centred.inputs[0], 0
    scale, last = _vector_user(r, last, "Mul", x.shape[-1])
    bias = None
    if not rms and scale is not None:
        bias, last = _vector_user(r, last, "Add", x.shape[-1])
    inputs = [source, scale] + ([bias] if bias is not None else [])
    if scale is None:
        inputs = [source]
    r.become(
        last,
        "RMSNormalization" if rms else "LayerNormalization",
        "",
        inputs,
        axis=-1,
        epsilon=epsilon,
    )


def _last_axis(node: BoundNode) -> bool:
    axes = (
        node.inputs[1].numbers
        if len(node.inputs) > 1 and node.inputs[1] is not None
        else node.attr("axes")
    )
    rank = node.inputs[0].rank
    return (
        axes is not None
        and len(axes) == 1
        and axes[0] % rank == rank - 1
        and node.attr("keepdims", 1)
    )


def _vector_user(
    r: Rewriter, node: BoundNode, op: str, width: int
) -> tuple[Value | None, BoundNode]:
    """(vector, user), where the only user of a node is such an op with a constant vector of this
    width; else (None, node).
    """
    user = r.only_user(node.outputs[0])
    if user is not None and user.op == op:
        v = other(user, node.outputs[0])
        if v.fixed and list(v.shape) == [width] and r.before(v, node):
            return v, user
    return None, node


def fuse_residual_norm(bound: BoundGraph) -> None:
    """Add followed by a norm becomes one node that gives the sum and its norm."""
    r = Rewriter(bound)
    for norm in r.nodes("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        add = norm.inputs[0].producer
        if (
            add is None
            or add.op != "Add"
            or not r.has(add)
            or list(add.inputs[0].shape) != list(add.inputs[1].shape)
            or norm.attr("axis", -1) not in (-1, norm.inputs[0].rank - 1)
            or len(norm.inputs) < 2
        ):
            continue
        if not all(
            v is None or v.producer is None or r.before(v, add) for v in norm.inputs[1:]
        ) or any(v is None for v in norm.inputs[1:]):
            continue
        if (
            list(add.outputs[0].shape) != list(add.inputs[0].shape)
            or add.inputs[0].constant
            or add.inputs[1].constant
        ):
            continue
        rms = norm.op != "LayerNormalization"
        total, y = add.outputs[0], norm.outputs[0]
        r.become(
            add,
            "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization",
            "com.microsoft",
            [add.inputs[0], add.inputs[1], *norm.inputs[1:]],
            epsilon=norm.attr("epsilon", 1e-5),
        )
        r.users[id(total)].remove(norm)
        add.outputs = [y, None, None, total if r.users.get(id(total)) else None]
        y.producer = add
        norm.outputs, norm.inputs = [], []
    for n in r.nodes("NormGrad"):
        _take_more(r, n)
    r.done()


def _take_more(r: Rewriter, grad: BoundNode) -> None:
    """Lets the gradient of a norm add what flows past the norm."""
    dx = grad.outputs[0]
    add = r.only_user(dx)
    if add is None or add.op != "Add" or add.domain or grad.input(3) is not None:
        return
    past = other(add, dx)
    if past is dx or past.constant or list(past.shape) != list(dx.shape):
        return
    if past.dtype != dx.dtype or not r.before(past, grad) or not grad.attr("of_x", 1):
        return
    while len(grad.inputs) <= 3:
        grad.inputs.append(None)
    grad.inputs[3] = past
    r.users[id(past)].remove(add)
    r.users[id(past)].append(grad)
    grad.outputs[0] = add.outputs[0]
    add.outputs[0].producer = grad
    add.outputs, add.inputs = [], []
