"""ai.onnx.preview.training: optimizers and gradients as operators of a graph.

Inputs of an optimizer: learning rate, step, then all tensors, all gradients and all states.
Outputs: the new tensors and states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

DOMAIN = "ai.onnx.preview.training"


class _Arithmetic:
    """Operators on tensors of one type, whose operands may be Python numbers."""

    def __init__(self, graph: Binder, dtype: int) -> None:
        self.graph, self.dtype = graph, dtype

    def __call__(self, op: str, *operands: Value | float) -> Value:
        return self.graph.op(
            op,
            *(
                self.graph.constant(self.dtype, [], [float(v)])
                if isinstance(v, (int, float))
                else v
                for v in operands
            ),
        )


def _declare(name: str, states: int, update: Callable[..., list[Value]]) -> Op:
    """Declares an optimizer.

    Args:
        states: how many states each tensor has.
        update: (node, _Arithmetic, rate, step, x, gradient, *states) -> the new x and states.
    """
    o = Op(name, DOMAIN)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value]:
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
                f"it takes a rate, a step and for each tensor its gradient and {states} states, not"
                f" {len(node.inputs)} inputs",
            )
        takes(node, (FLOAT, DOUBLE), 0, *range(2, len(node.inputs)))
        columns = []
        for i in range(count):
            x, dx, *kept = node.inputs[2 + i :: count]
            if any(v.dtype != x.dtype or v.shape != x.shape for v in (dx, *kept)):
                fail(node, f"{x}, its gradient {dx} and its states {kept} differ in type or shape")
            m = _Arithmetic(graph, x.dtype)
            rate, step = (graph.op("Cast", v, to=x.dtype) for v in node.inputs[:2])
            if node.attr("norm_coefficient", 0.0):
                dx = m("Add", m("Mul", x, node.attr("norm_coefficient", 0.0)), dx)
            columns.append(
                [  # a rate of shape [1] would make vectors of scalars
                    graph.op("Reshape", v, graph.constant(INT64, [x.rank], x.shape), allowzero=1)
                    for v in update(node, m, rate, step, x, dx, *kept)
                ]
            )
        return [c[k] for k in range(1 + states) for c in columns][: len(node.outputs)]

    return o


def _adagrad(
    node: BoundNode, m: _Arithmetic, rate: Value, step: Value, x: Value, dx: Value, h: Value
) -> list[Value]:
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


def _adam(
    node: BoundNode,
    m: _Arithmetic,
    rate: Value,
    step: Value,
    x: Value,
    dx: Value,
    v: Value,
    h: Value,
) -> list[Value]:
    """The bias of the running averages is corrected from step 1 on. At step 0 the correction is
    computed as for step 1 and not used: 0/0 would reach the gradients of this operator.
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


def _momentum(
    node: BoundNode, m: _Arithmetic, rate: Value, step: Value, x: Value, dx: Value, v: Value
) -> list[Value]:
    """At step 0 beta is 1: the gradient is not damped."""
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
def gradient_decompose(node: BoundNode, graph: Binder) -> list[Value | None] | None:
    """The gradients of the sum of `y` with respect to the tensors `xs`.

    The reader of files makes `xs` the first inputs and `y` the last one. `zs`, other tensors that y
    depends on, are not needed.
    """
    y, xs = node.inputs[-1], node.inputs[: len(node.attrs["xs"])]
    if len(node.outputs) > len(xs):
        fail(node, f"it has {len(node.outputs)} outputs for {len(xs)} tensors")
    if any(x.constant for x in xs) or y.dtype != FLOAT or any(x.dtype != FLOAT for x in xs):
        unsupported(
            node,
            f"the gradient of {y} with respect to {xs}, which are constants or not float32",
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
                f"{y} does not depend on {x} in the part of the graph that is compiled at once",
                "Differentiate with respect to tensors that it depends on, without loops between.",
            )
    return found[: len(node.outputs)]
