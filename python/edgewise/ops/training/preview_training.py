"""ai.onnx.preview.training: optimizers as operators of a graph.

Compositions of (rate, step, *tensors, *gradients, *states), whose outputs are the new tensors and
states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

DOMAIN = "ai.onnx.preview.training"


class _Arithmetic:
    """Numbers and tensors of one type, written as one would."""

    def __init__(self, g, dtype: int):
        self.g, self.dtype = g, dtype

    def __call__(self, op, *operands):
        return self.g.op(
            op,
            *(
                self.g.constant(self.dtype, [], [float(v)]) if isinstance(v, (int, float)) else v
                for v in operands
            ),
        )

    def add(self, a, b):
        return b if a == 0 else self("Add", a, b)

    def mul(self, a, b):
        return b if a == 1 else self("Mul", a, b)


def _declare(name, states, update):
    """update(n, m, rate, step, x, gradient, *states): the new x and states; m: _Arithmetic;
    gradient: with the regularization's.
    """
    o = Op(name, DOMAIN)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
        count, rest = divmod(len(node.inputs) - 2, 2 + states)
        if (
            rest
            or count < 1
            or len(node.outputs) > count * (1 + states)
            or any(v is None for v in node.inputs)
            or node.inputs[1].dtype != INT64
        ):
            fail(
                node,
                f"it wants a rate, a step and for each tensor its gradient and {states} states, and"
                f" has {len(node.inputs)} inputs",
            )
        takes(node, (FLOAT, DOUBLE), 0, *range(2, len(node.inputs)))
        columns = []
        for i in range(count):
            x, dx, *kept = node.inputs[2 + i :: count]
            if any(v.dtype != x.dtype or v.shape != x.shape for v in (dx, *kept)):
                fail(node, f"{x}, its gradient {dx} and its states {kept} are not alike")
            m = _Arithmetic(graph, x.dtype)
            rate, step = (graph.op("Cast", v, to=x.dtype) for v in node.inputs[:2])
            dx = (
                m.add(m("Mul", x, node.attr("norm_coefficient", 0.0)), dx)
                if node.attr("norm_coefficient", 0.0)
                else dx
            )
            columns.append(
                [
                    graph.op("Reshape", v, graph.constant(INT64, [x.rank], x.shape), allowzero=1)
                    for v in update(node, m, rate, step, x, dx, *kept)
                ]
            )  # a rate [1] would give scalars a dimension
        return [c[k] for k in range(1 + states) for c in columns][: len(node.outputs)]

    return o


def _adagrad(node: BoundNode, m, rate, step, x, dx, h):
    rate = m("Div", rate, m("Add", m("Mul", step, node.attr("decay_factor", 0.0)), 1))
    h = m("Add", h, m("Mul", dx, dx))
    return [
        m(
            "Sub",
            x,
            m("Div", m("Mul", dx, rate), m("Add", m("Sqrt", h), node.attr("epsilon", 1e-6))),
        ),
        h,
    ]


def _adam(node: BoundNode, m, rate, step, x, dx, v, h):
    """The bias of the running averages is corrected from the first step on; at step 0 it is not,
    and its rule is kept from 0/0, which a gradient would see.
    """
    alpha, beta, epsilon, shrink = (
        node.attr("alpha", 0.9),
        node.attr("beta", 0.999),
        node.attr("epsilon", 1e-6),
        node.attr("norm_coefficient_post", 0.0),
    )
    v = m("Add", m("Mul", v, alpha), m("Mul", dx, 1 - alpha))
    h = m("Add", m("Mul", h, beta), m("Mul", m("Mul", dx, dx), 1 - beta))
    at = m("Max", step, 1)
    corrected = m(
        "Div", m("Sqrt", m("Sub", 1, m("Pow", beta, at))), m("Sub", 1, m("Pow", alpha, at))
    )
    rate = m("Where", m("Greater", step, 0), m("Mul", rate, corrected), rate)
    x = m("Sub", x, m("Mul", m("Div", v, m("Add", m("Sqrt", h), epsilon)), rate))
    return [m("Mul", x, 1 - shrink) if shrink else x, v, h]


def _momentum(node: BoundNode, m, rate, step, x, dx, v):
    """At step 0 the gradient counts fully."""
    alpha, mode = node.attr("alpha", 0.0), node.attr("mode", "standard")
    if mode not in ("standard", "nesterov"):
        fail(node, f"its mode is '{mode}'", "It is standard or nesterov.")
    share = m("Where", m("Greater", step, 0), m("Add", node.attr("beta", 1.0), 0), m("Add", 1, 0))
    v = m("Add", m("Mul", v, alpha), m("Mul", dx, share))
    return [
        m("Sub", x, m("Mul", v if mode == "standard" else m("Add", dx, m("Mul", v, alpha)), rate)),
        v,
    ]


_declare("Adagrad", 1, _adagrad)
_declare("Adam", 2, _adam)
_declare("Momentum", 1, _momentum)


gradient = Op("Gradient", DOMAIN)


@gradient.decompose
def gradient_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Of the sum of tensor `y` by tensors `xs` (autodiff.py), which are its last and first inputs
    (onnx/reader.py); `zs`, which it also follows from, say nothing new.
    """
    y, xs = node.inputs[-1], node.inputs[: len(node.attrs["xs"])]
    if len(node.outputs) > len(xs):
        fail(node, f"it has {len(node.outputs)} outputs for {len(xs)} tensors")
    if any(x.constant for x in xs) or y.dtype != FLOAT or any(x.dtype != FLOAT for x in xs):
        unsupported(
            node,
            f"the gradient of {y} by {xs}, which are constants or not float32",
            "Make them inputs of float32.",
        )
    found = graph.differentiate(
        [
            (
                y,
                graph.op(
                    "Expand",
                    graph.constant(FLOAT, [], [1.0]),
                    graph.constant(INT64, [y.rank], y.shape),
                ),
            )
        ],
        xs,
    )
    for x, d, out in zip(xs, found, node.outputs):
        if d is None and out is not None:
            unsupported(
                node,
                f"{y} does not follow from {x} in the part of the graph that is compiled at once",
                "Differentiate by what it follows from, without loops in between.",
            )
    return found[: len(node.outputs)]
