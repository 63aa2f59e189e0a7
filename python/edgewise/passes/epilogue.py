"""Bias, activation and residual into the matrix product or convolution before them."""
from __future__ import annotations

from ..ops.dtypes import FLOAT
from ..ops.integer import depthwise
from .rewrite import Rewriter, constants_first, number, other

PRODUCTS = {"MatMul": (2, 3), "FusedMatMul": (2, 3), "Gemm": (2, 3), "MatMulNBits": (5, 6), "Conv": (2, 3), "QuantizedMatMul": (7, 8), "IntegerMatMul": (8, 9), "IntegerConv": (8, 9)}  # where bias and residual stand among the inputs
_OPERANDS = {"QuantizedMatMul": (1, 4), "IntegerMatMul": (0, 2), "IntegerConv": (0, 2)}  # what is multiplied, where that is not inputs 0 and 1
_ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "SiLU": "silu"}


def fuse_epilogues(bound):
    """MatMul, Gemm, Conv and their quantized kin followed by Add of a vector, an activation, Add of a tensor of the same shape become one node: a bias input, `activation`, a residual input."""
    constants_first(bound)
    r = Rewriter(bound)
    for n in filter(_has_epilogue, r.nodes(*PRODUCTS)):
        _bias(r, n)
        _activation(r, n)
    r.done()
    r = Rewriter(bound)
    for n in filter(_has_epilogue, r.nodes(*PRODUCTS)):
        _residual(r, n)
    r.done()


def _has_epilogue(n):
    """Whether its kernel can do more: integer products where they give float32, and not channel by channel."""
    return n.outputs[0].dtype == FLOAT and (n.op != "IntegerConv" or not depthwise(n)) or n.op not in _OPERANDS


def _ranks(n):
    return [n.inputs[i].rank for i in _OPERANDS.get(n.op, (0, 1))]


def _input(n, i):
    return n.inputs[i] if len(n.inputs) > i else None


def _take(r, n, user, i, v):
    """Node n computes what its user did, with v as its input i."""
    while len(n.inputs) <= i:
        n.inputs.append(None)
    n.inputs[i] = v
    r.users.setdefault(id(v), []).append(n)
    take_output(r, n, user)


def take_output(r, n, user):
    """Node n computes what its user did."""
    out = user.outputs[0]
    for v in user.inputs:
        if v is not None and user in r.users.get(id(v), ()):
            r.users[id(v)].remove(user)
    n.outputs = [out]
    out.producer = n
    user.outputs, user.inputs = [], []


def _bias(r, n):
    i, _ = PRODUCTS[n.op]
    y = n.outputs[0]
    user = r.only_user(y)
    if user is None or user.op != "Add" or _input(n, i) is not None or min(_ranks(n)) < 2 and n.op != "MatMulNBits" or n.op in ("Conv", "IntegerConv"):
        return  # a convolution's bias is not along its last dimension, and exporters give it one
    b = other(user, y)
    if b.fixed and list(b.shape) == [y.shape[-1]] and list(user.outputs[0].shape) == list(y.shape) and r.before(b, n):
        if n.op == "Gemm":
            n.attrs = {**n.attrs, "beta": 1.0}
        _take(r, n, user, i, b)


def _activation(r, n):
    y = n.outputs[0]
    user = r.only_user(y)
    if user is None or "activation" in n.attrs or _input(n, PRODUCTS[n.op][1]) is not None:
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
    n.attrs = {**n.attrs, "activation": name}
    take_output(r, n, user)
    user = r.only_user(n.outputs[0])
    if name == "relu" and user is not None and user.op == "MinOf2" and number(other(user, n.outputs[0])) == 6.0:
        n.attrs["activation"] = "relu6"
        take_output(r, n, user)


def _residual(r, n):
    """Add of another tensor of the same shape, possibly behind a Reshape that is only a view."""
    _, i = PRODUCTS[n.op]
    y = n.outputs[0]
    user = r.only_user(y)
    view = None
    if user is not None and user.op == "Reshape" and y.rank == 2:
        view, user = user, r.only_user(user.outputs[0])
    if user is None or user.op != "Add" or _input(n, i) is not None or min(_ranks(n)) < 2 and n.op != "MatMulNBits":
        return
    shown = view.outputs[0] if view is not None else y
    x = other(user, shown)
    if x is shown or x.constant or list(x.shape) != list(shown.shape) or not r.before(x, n) or x.dtype != y.dtype:
        return
    if view is None:
        _take(r, n, user, i, x)
        return
    while len(n.inputs) <= i:
        n.inputs.append(None)
    n.inputs[i] = x
    r.users.setdefault(id(x), []).append(n)
    take_output(r, view, user)
    view.inputs = [y, view.inputs[1]] if view.inputs else view.inputs
