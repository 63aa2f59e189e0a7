"""Merges bias, activation and residual into the matrix product or convolution before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import BoundNode, Value
from ..ops import declared
from .rewrite import Rewriter, constants_first, number, other

if TYPE_CHECKING:
    from ..bind import BoundGraph

EPILOGUES = declared("epilogue")
_ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu"}


def fuse_epilogues(bound: BoundGraph) -> None:
    """A product or convolution followed by Add of a vector, an activation and Add of a tensor of
    the same shape becomes one node: with a bias, the attribute `activation` and a residual.
    """
    constants_first(bound)
    r = Rewriter(bound)
    for n in filter(_has_epilogue, r.nodes(*EPILOGUES)):
        _bias(r, n)
        _activation(r, n)
    r.done()
    r = Rewriter(bound)
    for n in filter(_has_epilogue, r.nodes(*EPILOGUES)):
        _residual(r, n)
    r.done()


def _has_epilogue(node: BoundNode) -> bool:
    fits = EPILOGUES[node.op].fits
    return fits is None or fits(node)


def _has_rows(node: BoundNode) -> bool:
    """Whether its factors have two dimensions or more."""
    epilogue = EPILOGUES[node.op]
    return epilogue.any_rank or min(node.inputs[i].rank for i in epilogue.factors) >= 2


def _input(node: BoundNode, i: int) -> Value | None:
    return node.inputs[i] if len(node.inputs) > i else None


def _take(r: Rewriter, node: BoundNode, user: BoundNode, i: int, v: Value) -> None:
    """Lets a node compute the output of its user, with v as its input i."""
    while len(node.inputs) <= i:
        node.inputs.append(None)
    node.inputs[i] = v
    r.users.setdefault(id(v), []).append(node)
    take_output(r, node, user)


def take_output(r: Rewriter, node: BoundNode, user: BoundNode) -> None:
    """Lets a node compute the output of its user."""
    out = user.outputs[0]
    for v in user.inputs:
        if v is not None and user in r.users.get(id(v), ()):
            r.users[id(v)].remove(user)
    node.outputs = [out]
    out.producer = node
    user.outputs, user.inputs = [], []


def _bias(r: Rewriter, node: BoundNode) -> None:
    i = EPILOGUES[node.op].bias
    y = node.outputs[0]
    user = r.only_user(y)
    if (
        user is None
        or user.op != "Add"
        or _input(node, i) is not None
        or not _has_rows(node)
        or EPILOGUES[node.op].bias_along_channels
    ):
        return
    b = other(user, y)
    if (
        b.fixed
        and list(b.shape) == [y.shape[-1]]
        and list(user.outputs[0].shape) == list(y.shape)
        and r.before(b, node)
    ):
        if "beta" in node.attrs:
            node.attrs = {**node.attrs, "beta": 1.0}
        _take(r, node, user, i, b)


def _activation(r: Rewriter, node: BoundNode) -> None:
    y = node.outputs[0]
    user = r.only_user(y)
    if (
        user is None
        or "activation" in node.attrs
        or _input(node, EPILOGUES[node.op].residual) is not None
    ):
        return
    name = _ACTIVATIONS.get(user.op)
    if user.op == "MaxOf2" and number(other(user, y)) == 0.0:  # Clip is a maximum and a minimum
        name = "relu"
    if user.op == "Gelu":
        name = "gelu_tanh" if user.attr("approximate", "none") == "tanh" else "gelu"
    if user.op == "QuickGelu":
        name = {1.0: "silu", 1.702: "quick_gelu"}.get(round(user.attr("alpha", 1.702), 6))
    if user.op == "SiLU" and user.domain != "edgewise" or name is None:
        return
    node.attrs = {**node.attrs, "activation": name}
    take_output(r, node, user)
    user = r.only_user(node.outputs[0])
    if (
        name == "relu"
        and user is not None
        and user.op == "MinOf2"
        and number(other(user, node.outputs[0])) == 6.0
    ):
        node.attrs["activation"] = "relu6"
        take_output(r, node, user)


def _residual(r: Rewriter, node: BoundNode) -> None:
    """Add of another tensor of the same shape, perhaps after a Reshape."""
    i = EPILOGUES[node.op].residual
    y = node.outputs[0]
    user = r.only_user(y)
    view = None
    if user is not None and user.op == "Reshape" and y.rank == 2:
        view, user = user, r.only_user(user.outputs[0])
    if user is None or user.op != "Add" or _input(node, i) is not None or not _has_rows(node):
        return
    shown = view.outputs[0] if view is not None else y
    x = other(user, shown)
    if (
        x is shown
        or x.constant
        or list(x.shape) != list(shown.shape)
        or not r.before(x, node)
        or x.dtype != y.dtype
    ):
        return
    if view is None:
        _take(r, node, user, i, x)
        return
    while len(node.inputs) <= i:
        node.inputs.append(None)
    node.inputs[i] = x
    r.users.setdefault(id(x), []).append(node)
    take_output(r, view, user)
    view.inputs = [y, view.inputs[1]] if view.inputs else view.inputs
