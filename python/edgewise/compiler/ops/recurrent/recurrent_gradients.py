"""Gradients of Recurrent: the walk back through the steps is a kernel; the gradients of the weights
are products over all steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, INT32
from ...declare.op import Op, unsupported
from ...declare.symbolic import Sym
from ..product.product_gradients import gradient_product
from .recurrent import recurrent, shared_operands, sizes_of

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )


class _Steps:
    """Tensors [steps, batch, directions, width] of a layer, taken apart by direction.

    Args:
        graph: adds nodes.
        sizes: steps, batch, directions, hidden.
        reverse: whether direction 0 goes from the last step to the first.
    """

    def __init__(self, graph: Gradients, sizes: tuple[int, int, int, int], reverse: bool) -> None:
        self.graph, self.reverse = graph, reverse
        self.steps, self.batch, self.directions, self.hidden = sizes

    def part(self, v: Value, start: int, end: int, axis: int) -> Value:
        """v[start:end] along an axis."""
        g = self.graph
        if start == 0 and end == v.shape[axis]:
            return v
        return g.op("Slice", v, g.ints([start]), g.ints([end]), g.ints([axis]))

    def direction(self, v: Value, d: int, start: int = 0, end: int | None = None) -> Value:
        """[steps, batch, ...] of direction d, columns start to end."""
        v = self.part(self.part(v, d, d + 1, 2), start, v.shape[3] if end is None else end, 3)
        return self.graph.reshape(v, [self.steps, self.batch, v.shape[3]])

    def backwards(self, d: int) -> bool:
        """Whether direction d goes from the last step to the first."""
        return bool(d or self.reverse)

    def before(self, v: Value, first: Value | None, d: int) -> Value:
        """States of direction d before each step.

        Args:
            v: states after each step.
            first: initial states [directions, batch, hidden]; None: zeros.
        """
        g, t = self.graph, self.steps
        start = (
            self.part(first, d, d + 1, 0)
            if first is not None
            else g.zeros([1, self.batch, self.hidden])
        )
        if t == 1:
            return start
        v = self.direction(v, d)
        if self.backwards(d):
            return g.op("Concat", self.part(v, 1, t, 0), start, axis=0)
        return g.op("Concat", start, self.part(v, 0, t - 1, 0), axis=0)

    def hidden_before(self, y: Value, first: Value | None, lengths: Value | None, d: int) -> Value:
        """h of direction d before each step.

        y is 0 after the end of a row; a backward direction begins there, with the initial h.
        """
        g, v = self.graph, self.before(y, first, d)
        if lengths is None or first is None or not self.backwards(d):
            return v
        at = g.op(
            "Reshape",
            g.op("Range", *(g.constant(INT32, [], [k]) for k in (1, self.steps + 1, 1))),
            g.ints([self.steps, 1]),
        )
        begins = g.op(
            "Cast", g.op("Equal", at, g.op("Reshape", lengths, g.ints([1, self.batch]))), to=FLOAT
        )
        begins = self.part(
            g.op("Reshape", begins, g.ints([self.steps, self.batch, 1])), 0, self.steps, 0
        )
        # `before` has put the initial h before the last step already.
        not_last = g.op(
            "Reshape",
            g.op("Cast", g.op("Less", at, g.constant(INT32, [], [self.steps])), to=FLOAT),
            g.ints([self.steps, 1, 1]),
        )
        return g.add(v, g.mul(g.mul(begins, not_last), self.part(first, d, d + 1, 0)))

    def outer(self, a: Value, c: Value) -> Value:
        """The sum over steps and batch of a^T c."""
        a, c = (self.graph.reshape(v, [self.steps * self.batch, v.shape[2]]) for v in (a, c))
        return gradient_product(self.graph, a, c, transpose_a=True)

    def summed(self, v: Value) -> Value:
        """The sum over steps and batch."""
        return self.graph.op("ReduceSum", v, self.graph.ints([0, 1]), keepdims=0)

    def join(self, parts: list[Value]) -> Value:
        """Tensors one after the other, along dimension 0."""
        return parts[0] if len(parts) == 1 else self.graph.op("Concat", *parts, axis=0)


@dataclass(frozen=True)
class _GradientInputs:
    """What the gradients of weights are computed from.

    Attributes:
        dx: gradient of the products with W, [steps, batch, directions, gates * hidden].
        y: hidden states after each step. cells: an LSTM's cell states. gates: activated gates.
        first_h, first_c: initial states. lengths: of rows.
    """

    dx: Value
    y: Value
    cells: Value
    gates: Value
    first_h: Value | None
    first_c: Value | None
    lengths: Value | None


def _gradient_of_r(
    steps: _Steps, saved: _GradientInputs, d: int, attrs: dict[str, Any], last: Value | None
) -> Value:
    """The gradient of direction d's R, [gates * hidden, hidden]. last: as in _weight_gradients."""
    h, before = steps.hidden, steps.hidden_before(saved.y, saved.first_h, saved.lengths, d)
    if last is None:
        return steps.outer(steps.direction(saved.dx, d), before)
    others = steps.outer(steps.direction(saved.dx, d, 0, 2 * h), before)
    if not attrs["lbr"]:  # the reset gate multiplies h, not the product
        before = steps.graph.mul(before, steps.direction(saved.gates, d, h, 2 * h))
    return steps.join([others, steps.outer(last, before)])


def _gradient_of_peepholes(steps: _Steps, saved: _GradientInputs, d: int) -> Value:
    """The gradient of direction d's peepholes, [3 * hidden]."""
    h, before = steps.hidden, steps.before(saved.cells, saved.first_c, d)
    pairs = [(0, before), (h, steps.direction(saved.cells, d)), (2 * h, before)]
    return steps.join(
        [steps.summed(steps.graph.mul(steps.direction(saved.dx, d, k, k + h), c)) for k, c in pairs]
    )


def _weight_gradients(
    graph: Gradients, steps: _Steps, attrs: dict[str, Any], saved: _GradientInputs
) -> list[Value | None]:
    """Gradients of R, of the bias of GRU's last gate, and of the peepholes; None where not needed.
    attrs: Recurrent's.
    """
    h = steps.hidden
    d_r: list[Value] = []
    d_bias: list[Value] = []
    d_peepholes: list[Value] = []
    for d in range(steps.directions):
        last = None  # gradient of what GRU's last gate adds of R's product
        if attrs["gates"] == 3:
            last = steps.direction(saved.dx, d, 2 * h)
            if attrs["lbr"]:
                last = graph.mul(last, steps.direction(saved.gates, d, h, 2 * h))
        if graph.wants(2) and last is not None:
            d_bias.append(steps.summed(last))
        if graph.wants(1):
            d_r.append(_gradient_of_r(steps, saved, d, attrs, last))
        if graph.wants(6):
            d_peepholes.append(_gradient_of_peepholes(steps, saved, d))
    return [
        graph.reshape(steps.join(v), [steps.directions, *shape]) if v else None
        for v, shape in ((d_r, [attrs["gates"] * h, h]), (d_bias, [h]), (d_peepholes, [3 * h]))
    ]


@recurrent.grad
def recurrent_grad_rule(
    node: BoundNode,
    gradients: Gradients,
    dy: Value | None,
    dh_last: Value | None = None,
    dc_last: Value | None = None,
    *_: Value | None,
) -> InputGradients:
    x, r = node.inputs[:2]
    first_h, first_c, lengths, peepholes = (node.input(i) for i in range(3, 7))
    t, b, d, h = sizes_of(x, r)
    if not isinstance(t, Sym) and not t:
        unsupported(node, "the gradient of a layer of 0 steps", "Train on longer sequences.")
    slots = (node.attrs["gates"] + node.attrs["lbr"]) * h
    y, gates = (
        gradients.output(0, FLOAT, [t, b, d, h]),
        gradients.output(3, FLOAT, [t, b, d, slots]),
    )
    cells = gradients.output(4, FLOAT, [t, b, d, h]) if node.attrs["gates"] == 4 else y
    dx, dh, dc = gradients.op(
        "RecurrentGrad",
        dy,
        dh_last,
        dc_last,
        y,
        cells,
        gates,
        r,
        first_h,
        first_c,
        lengths,
        peepholes,
        domain="edgewise",
        outputs=3,
        **node.attrs,
    )
    steps = _Steps(gradients, (t, b, d, h), node.attrs["reverse"])
    saved = _GradientInputs(dx, y, cells, gates, first_h, first_c, lengths)
    d_r, d_bias, d_peepholes = _weight_gradients(gradients, steps, node.attrs, saved)
    return [
        gradients.reshape(dx, x.shape) if gradients.wants(0) else None,
        d_r,
        d_bias,
        dh if gradients.wants(3) else None,
        dc if gradients.wants(4) else None,
        None,
        d_peepholes,
    ]


# Inputs: dy, d last h, d last c, y, cells, gates, R, initial h, initial c, lengths, peepholes.
# Outputs: dx [steps, batch, directions, gates * hidden], d initial h, d initial c.
recurrent_grad = Op("RecurrentGrad", "edgewise")


@recurrent_grad.infer
def recurrent_grad_infer(node: BoundNode) -> Inferred:
    t, b, d, h = node.inputs[3].shape
    return [(FLOAT, [t, b, d, node.attrs["gates"] * h]), (FLOAT, [d, b, h]), (FLOAT, [d, b, h])]


@recurrent_grad.lower
def recurrent_grad_lower(node: BoundNode, builder: Builder) -> None:
    given = {
        k: builder.contiguous(builder.view(node.inputs[i]))
        for i, k in enumerate(("dy", "dh_last", "dc_last", "y", "cells", "g"))
        if node.has(i)
    }
    r = builder.view(node.inputs[6])
    params, operands = shared_operands(node, builder, r, 7)
    t, batch = node.inputs[3].shape[:2]
    outs = [
        builder.out(v) if v is not None else builder.temp(FLOAT, s)
        for v, s in zip(
            node.outputs + [None] * (3 - len(node.outputs)),
            [[t, batch, r.shape[0], r.shape[1]]] + [[r.shape[0], batch, r.shape[2]]] * 2,
        )
    ]
    builder.emit(
        "recurrent_grad",
        {
            **given,
            "rt": builder.contiguous(r.transpose([0, 2, 1])),
            **operands,
            **dict(zip(("dx", "dh", "dc"), outs)),
        },
        t=t,
        b=batch,
        **params,
    )
