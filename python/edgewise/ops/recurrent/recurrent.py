"""LSTM, GRU and RNN, onnxruntime's training forms of them, and the kernels under them.

Each is one product of all steps with W and the walk over the steps, `Recurrent`, whose tensors are
[steps, batch, directions, ...]: so the transposes that exporters write around them, and ONNX's
layouts 0 and 1, are views. Gates lie in ONNX's order: i o f c; z r h. (Hochreiter and Schmidhuber
1997, with Gers' peepholes; Cho et al. 2014; ONNX operators LSTM-22, GRU-22, RNN-22.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64, pack
from ...declare.op import MS, Op, fail, takes, unsupported
from ..product.product_gradients import gradient_product
from .contracts import GATE_ACTIVATION

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Graph,
        Inferred,
        InputGradients,
        Value,
    )

PANEL = 32  # columns of R that lie together, where it does in panels


# name: numbers of its own that the attributes give, with their defaults
_ACTIVATIONS = {
    "Sigmoid": [],
    "Tanh": [],
    "Relu": [],
    "LeakyRelu": [0.01],
    "HardSigmoid": [0.2, 0.5],
    "Affine": [1.0, 0.0],
    "ScaledTanh": [1.0, 1.0],
}
_USUAL = {4: ["Sigmoid", "Tanh", "Tanh"], 3: ["Sigmoid", "Tanh"], 1: ["Tanh"]}


def _sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _activation(node: BoundNode, name, numbers, clip):
    """[kind, a, b, shift, low, high] of one activation after `clip`."""
    a, b = (numbers + [0.0, 0.0])[:2]
    inf = math.inf
    if name == "Sigmoid":
        kind, row, f = "sigmoid", [1.0, 1.0, 0.0, -inf, inf], _sigmoid
    elif name in ("Tanh", "ScaledTanh"):
        a, b = (a, b) if numbers else (1.0, 1.0)
        kind, row, f = "tanh", [a, b, 0.0, -inf, inf], lambda x: a * math.tanh(b * x)
    elif name == "LeakyRelu":
        kind, row, f = "linear", [a, 1.0, 0.0, -inf, inf], lambda x: x if x > 0 else a * x
    else:
        a, b, low, high = {
            "Relu": (1.0, 0.0, 0.0, inf),
            "HardSigmoid": (a, b, 0.0, 1.0),
            "Affine": (a, b, -inf, inf),
        }[name]
        kind, row, f = "linear", [a, a, b, low, high], lambda x: a * x + b
    if row[0] < 0 or row[1] <= 0 or kind == "tanh" and row[0] == 0:
        unsupported(node, f"{name} that does not rise, with {numbers}")
    if clip:
        row[3], row[4] = max(row[3], f(-clip)), min(row[4], f(clip))
    return [float(GATE_ACTIVATION[kind]), *row]


def _table(node: BoundNode, gates, directions):
    """Numbers of the kernels' operand `table`.

    Alphas and betas are given in the order of the activations that have them, as onnxruntime reads
    them.
    """
    names = node.attr("activations") or _USUAL[gates] * directions
    each = len(_USUAL[gates])
    known = {k.lower(): k for k in _ACTIVATIONS}
    if len(names) != each * directions or not all(
        isinstance(x, str) and x.lower() in known for x in names
    ):
        unsupported(
            node,
            f"the activations {names}",
            f"{', '.join(_ACTIVATIONS)} can be computed, {each} for each direction.",
        )
    given = [list(node.attr(k) or []) for k in ("activation_alpha", "activation_beta")]
    clip, out = float(node.attr("clip", 0.0)), []
    for i, name in enumerate(known[x.lower()] for x in names):
        numbers = [
            float(given[k].pop(0)) if given[k] else default
            for k, default in enumerate(_ACTIVATIONS[name])
        ]
        out += _activation(
            node, name, numbers, clip if i % each < 2 else 0.0
        )  # what a cell's output activation is given is not clipped
        if i % each == each - 1:
            out += [0.0] * (18 - 6 * each)
    return out


def recurrent_parts(
    node: BoundNode, graph: Graph, gates, weight_types=(FLOAT,), columns_last=False, product=None
):
    """(products with W [steps, batch, directions * gates * hidden], R, bias of GRU's last gate,
    first h, first c, lengths, peepholes) and the attributes of Recurrent.

    columns_last: whether W and R are [directions, rows, gates * hidden], else [directions, gates *
    hidden, rows]. product(rows, bias or None): x [steps * batch, width] times W, [steps * batch,
    directions * gates * hidden], where that is no product of floats.
    """
    takes(node, (FLOAT,), 0, 3, 5, 6, 7)
    takes(node, weight_types, 1, 2)
    takes(node, (INT32,), 4)
    x, w, r = node.inputs[:3]
    direction, layout = node.attr("direction", "forward"), node.attr("layout", 0)
    if direction not in ("forward", "reverse", "bidirectional") or layout not in (0, 1):
        fail(node, f"its direction is {direction!r}, its layout {layout}")
    d, hidden = (
        2 if direction == "bidirectional" else 1,
        ((r.shape[1] if columns_last else r.shape[2]) if r.rank == 3 else 0),
    )

    def weights(rows):
        return [d, rows, gates * hidden] if columns_last else [d, gates * hidden, rows]

    if (
        x.rank != 3
        or list(r.shape) != weights(hidden)
        or list(w.shape) != weights(x.shape[2])
        or node.attr("hidden_size", hidden) != hidden
        or not hidden
    ):
        fail(
            node,
            f"X {x}, W {w}, R {r} and a hidden size of {node.attr('hidden_size', hidden)} do"
            " not fit",
        )
    batch, steps = (x.shape[0], x.shape[1]) if layout else (x.shape[1], x.shape[0])
    if not isinstance(steps, int) or not steps:
        unsupported(node, f"{steps} steps")
    h_at, c_at, p_at = (5, 6, 7) if gates == 4 else (5, 99, 99)
    for i, shape in (
        (3, [d, 2 * gates * hidden]),
        (4, [batch]),
        *((k, [batch, d, hidden] if layout else [d, batch, hidden]) for k in (h_at, c_at)),
        (p_at, [d, 3 * hidden]),
    ):
        if node.has(i) and list(node.inputs[i].shape) != shape:
            fail(node, f"its input {i} is {node.inputs[i]} instead of {shape}")

    def part(v, start, end, axis=1):
        return graph.op("Slice", v, graph.ints([start]), graph.ints([end]), graph.ints([axis]))

    size, lbr = gates * hidden, int(bool(node.attr("linear_before_reset", 0))) if gates == 3 else 0
    inner = bias = None
    if node.has(3):
        both = graph.op(
            "Reshape", node.inputs[3], graph.ints([d, 2, size])
        )  # with what comes from x, and from h
        bias = graph.op(
            "ReduceSum", part(both, 0, 2 * hidden, 2) if lbr else both, graph.ints([1]), keepdims=0
        )
        if lbr:
            last, inner = (
                graph.op(
                    "Reshape",
                    part(part(both, 2 * hidden, size, 2), k, k + 1),
                    graph.ints([d, hidden]),
                )
                for k in (0, 1)
            )
            bias = graph.op("Concat", bias, last, axis=1)
        bias = graph.op("Reshape", bias, graph.ints([d * size]))
    rows = graph.op("Reshape", x, graph.ints([x.shape[0] * x.shape[1], x.shape[2]]), allowzero=1)
    if product is not None:
        p = product(rows, bias)
    else:
        p = graph.op(
            "Gemm",
            rows,
            graph.op("Reshape", w, graph.ints([d * size, x.shape[2]]), allowzero=1),
            *([bias] if bias is not None else []),
            transB=1,
        )
    p = graph.op("Reshape", p, graph.ints([x.shape[0], x.shape[1], d * size]), allowzero=1)
    first = [node.input(h_at), node.input(c_at)]
    if layout:
        p = graph.op("Transpose", p, perm=[1, 0, 2])
        first = [graph.op("Transpose", v, perm=[1, 0, 2]) if v is not None else None for v in first]
    attrs = {
        "gates": gates,
        "lbr": lbr,
        "reverse": int(direction == "reverse"),
        "coupled": int(bool(node.attr("input_forget", 0))) if gates == 4 else 0,
        "table": _table(node, gates, d),
    }
    return [p, r, inner, *first, node.input(4), node.input(p_at)], attrs


def _declare(name, gates, training=False):
    learned = (1, 2, 3, 7) if name == "LSTM" else (1, 2, 3)  # W, R, bias, peepholes
    o = Op(name, MS if training else "", parameters=learned)
    states = 2 if gates == 4 else 1

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
        inputs, attrs = recurrent_parts(node, graph, gates)
        y, h, c, saved, cells = graph.op(
            "Recurrent", *inputs, domain="edgewise", outputs=5, **attrs
        )
        by_batch = node.attr("layout", 0)
        steps = [1, 0, 2, 3] if by_batch else [0, 2, 1, 3]
        out = [
            graph.op("Transpose", y, perm=steps),
            *(
                graph.op("Transpose", v, perm=[1, 0, 2] if by_batch else [0, 1, 2])
                for v in (h, c)[:states]
            ),
        ]
        if training:  # onnxruntime's gradient ops want what Recurrent keeps
            return out + [
                graph.op("Transpose", v, perm=steps)
                for v in (
                    (cells, saved)
                    if gates == 4
                    else (
                        graph.op(
                            "Slice",
                            saved,
                            *(graph.constant(INT64, [1], [k]) for k in (0, 3 * h.shape[2], 3)),
                        ),
                    )
                )
            ]
        return out

    return o


_declare("LSTM", 4)
_declare("GRU", 3)
_declare("RNN", 1)
_declare("LSTMTraining", 4, training=True)
_declare("GRUTraining", 3, training=True)


# (x [steps, batch, directions * gates * hidden], R, bias of the last gate, first h, first c,
# lengths, peepholes) -> (y [steps, batch, directions, hidden], last h, last c [directions, batch,
# hidden], gates [steps, batch, directions, (gates + lbr) * hidden], cells [steps, batch,
# directions, hidden])
recurrent = Op("Recurrent", "edgewise")


def _sizes(n, x, r):
    """steps, batch, directions, hidden"""
    return x.shape[0], x.shape[1], r.shape[0], r.shape[2]


@recurrent.infer
def recurrent_infer(node: BoundNode) -> Inferred:
    t, b, d, h = _sizes(node, *node.inputs[:2])
    return [
        (FLOAT, [t, b, d, h]),
        (FLOAT, [d, b, h]),
        (FLOAT, [d, b, h]),
        (FLOAT, [t, b, d, (node.attrs["gates"] + node.attrs["lbr"]) * h]),
        (FLOAT, [t, b, d, h]),
    ]


def _shared(node: BoundNode, builder: Builder, r, first):
    """Parameters and operands of both kernels. first: where first h, first c, lengths and peepholes
    stand among the inputs.
    """
    d, h = r.shape[0], r.shape[2]
    params = {"d": d, "h": h, **{k: node.attrs[k] for k in ("gates", "lbr", "reverse", "coupled")}}
    operands = {
        k: builder.contiguous(builder.view(node.inputs[first + i]))
        for i, k in enumerate(("h_first", "c_first", "lengths", "peepholes"))
        if node.has(first + i)
    }
    return params, {
        **operands,
        "table": builder.const_bytes(
            pack(FLOAT, node.attrs["table"]), FLOAT, [len(node.attrs["table"])]
        ),
    }


@recurrent.lower
def recurrent_lower(node: BoundNode, builder: Builder) -> None:
    x, r = (
        builder.inner_contiguous(builder.view(node.inputs[0])),
        builder.contiguous(builder.view(node.inputs[1])),
    )
    t, batch, d, h = _sizes(node, x, r)
    params, operands = _shared(node, builder, r, 3)
    outs = [builder.out(v) if v is not None else None for v in node.outputs] + [None] * (
        5 - len(node.outputs)
    )
    y, h_last, c_last, g, cells = outs
    panels = h % PANEL == 0 and builder.constant_name(r.buffer) is not None  # turned once
    if panels:
        r = builder.contiguous(
            r.reshape([d, params["gates"] * h // PANEL, PANEL, h]).transpose([0, 1, 3, 2])
        )
    slots = (params["gates"] + params["lbr"]) * h
    builder.emit(
        "recurrent",
        {
            "x": x,
            "r": r,
            "bias": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            **operands,
            "y": y if y is not None else builder.temp(FLOAT, [t, batch, d, h]),
            "h_last": h_last if h_last is not None else builder.temp(FLOAT, [d, batch, h]),
            "c_last": c_last if c_last is not None else builder.temp(FLOAT, [d, batch, h]),
            "g": g if g is not None else builder.temp(FLOAT, [batch, d, slots]),
            "cells": cells,
        },
        t=t,
        b=batch,
        x_t=x.strides[0] if t > 1 else 0,
        x_b=x.strides[1] if batch > 1 else 0,
        g_t=batch * d * slots if g is not None else 0,
        panels=int(panels),
        **params,
    )


class _Walk:
    """What gradients of weights are made of: tensors of one direction, [steps, batch, ...]."""

    def __init__(self, g, steps, batch, directions, hidden, reverse):
        self.g, self.steps, self.batch, self.directions, self.hidden, self.reverse = (
            g,
            steps,
            batch,
            directions,
            hidden,
            reverse,
        )

    def part(self, v, start, end, axis):
        g = self.g
        return (
            v
            if start == 0 and end == v.shape[axis]
            else g.op("Slice", v, g.ints([start]), g.ints([end]), g.ints([axis]))
        )

    def of(self, v, d, start=0, end=None):
        """Direction d of [steps, batch, directions, width], columns start to end."""
        v = self.part(self.part(v, d, d + 1, 2), start, v.shape[3] if end is None else end, 3)
        return self.g.reshape(v, [self.steps, self.batch, v.shape[3]])

    def before(self, v, first, d):
        """Direction d of states after each step, as they were before it; first [directions, batch,
        hidden] or None.
        """
        g, t = self.g, self.steps
        start = (
            self.part(first, d, d + 1, 0)
            if first is not None
            else g.zeros([1, self.batch, self.hidden])
        )
        if t == 1:
            return start
        v = self.of(v, d)
        return (
            g.op("Concat", self.part(v, 1, t, 0), start, axis=0)
            if self.backwards(d)
            else g.op("Concat", start, self.part(v, 0, t - 1, 0), axis=0)
        )

    def backwards(self, d):
        return bool(d or self.reverse)

    def hidden_before(self, y, first, lengths, d):
        """h before each step. y is 0 behind a row's end; what goes backwards from there began with
        the first h.
        """
        g, v = self.g, self.before(y, first, d)
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
        last = g.op(
            "Reshape",
            g.op("Cast", g.op("Less", at, g.constant(INT32, [], [self.steps])), to=FLOAT),
            g.ints([self.steps, 1, 1]),
        )  # the last step has it already
        return g.add(v, g.mul(g.mul(begins, last), self.part(first, d, d + 1, 0)))

    def outer(self, a, c):
        """Sum over steps and batch of a^T c."""
        a, c = (self.g.reshape(v, [self.steps * self.batch, v.shape[2]]) for v in (a, c))
        return gradient_product(self.g, a, c, turn_a=True)

    def join(self, parts, axis=0):
        return parts[0] if len(parts) == 1 else self.g.op("Concat", *parts, axis=axis)


def _weight_gradients(
    graph: Graph,
    walk,
    attrs,
    dx,
    y,
    first_h,
    first_c,
    lengths,
    gates,
    cells,
    wants_r,
    wants_bias,
    wants_peepholes,
):
    """Gradients of R, of GRU's inner bias and of the peepholes, from the gradient of x [steps,
    batch, directions, gates * hidden].
    """
    h, d_r, d_bias, d_peep = walk.hidden, [], [], []
    for d in range(walk.directions):
        dg = walk.of(dx, d)
        if attrs["gates"] == 3:
            last, reset = walk.of(dx, d, 2 * h), walk.of(gates, d, h, 2 * h)
            if attrs["lbr"]:
                last = graph.mul(last, reset)
        if wants_bias:
            d_bias.append(graph.op("ReduceSum", last, graph.ints([0, 1]), keepdims=0))
        if wants_r:
            before = walk.hidden_before(y, first_h, lengths, d)
            if attrs["gates"] == 3:
                parts = [
                    walk.outer(walk.of(dx, d, 0, 2 * h), before),
                    walk.outer(last, before if attrs["lbr"] else graph.mul(before, reset)),
                ]
                d_r.append(walk.join(parts))
            else:
                d_r.append(walk.outer(dg, before))
        if wants_peepholes:
            before = walk.before(cells, first_c, d)
            pairs = [(0, before), (h, walk.of(cells, d)), (2 * h, before)]
            d_peep.append(
                walk.join(
                    [
                        graph.op(
                            "ReduceSum",
                            graph.mul(walk.of(dx, d, k, k + h), c),
                            graph.ints([0, 1]),
                            keepdims=0,
                        )
                        for k, c in pairs
                    ]
                )
            )
    return [
        graph.reshape(walk.join(v), [walk.directions, *shape]) if v else None
        for v, shape in ((d_r, [attrs["gates"] * h, h]), (d_bias, [h]), (d_peep, [3 * h]))
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
    x, r, _, first_h, first_c, lengths, peepholes = (node.input(i) for i in range(7))
    t, b, d, h = _sizes(node, x, r)
    slots = (node.attrs["gates"] + node.attrs["lbr"]) * h
    y, saved = (
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
        saved,
        r,
        first_h,
        first_c,
        lengths,
        peepholes,
        domain="edgewise",
        outputs=3,
        **node.attrs,
    )
    walk = _Walk(gradients, t, b, d, h, node.attrs["reverse"])
    d_r, d_bias, d_peep = _weight_gradients(
        gradients,
        walk,
        node.attrs,
        dx,
        y,
        first_h,
        first_c,
        lengths,
        saved,
        cells,
        gradients.wants(1),
        gradients.wants(2),
        gradients.wants(6),
    )
    return [
        gradients.reshape(dx, x.shape) if gradients.wants(0) else None,
        d_r,
        d_bias,
        dh if gradients.wants(3) else None,
        dc if gradients.wants(4) else None,
        None,
        d_peep,
    ]


recurrent_grad = Op(
    "RecurrentGrad",
    "edgewise",
    # (dy, d last h, d last c, y, cells, gates, R, first h, first c, lengths, peepholes) -> (dx
    # [steps, batch, directions, gates * hidden], d first h, d first c)
)


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
    params, operands = _shared(node, builder, r, 7)
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
