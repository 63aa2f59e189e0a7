"""Steps of optimizers, which update a parameter and its states in place, and gradient clipping by
norm.

Inputs of an optimizer: parameter, gradient, states, learning_rate float32 [1], step int64 [1],
scale float32 [1] or absent. Outputs: the parameter and the states with their new values. `step` is
the number of this update, counted from 1. The gradient is first multiplied by `scale` (clipping,
the mean over accumulated gradients). All states are zeros at first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, INT8, INT64, UINT8
from ...declare.op import Op, fail, product, takes
from ..reduce.contracts import REDUCE
from .contracts import FORM, RULE
from .state import in_place

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Inferred, Value

BLOCK = 256  # elements that share a scale in 8-bit states


def _declare(
    name: str,
    rule: str,
    form: Callable[[BoundNode], str],
    states: tuple[int, int],
    params: Callable[[BoundNode], dict[str, Any]],
) -> None:
    """Declares an optimizer.

    Args:
        rule: a name of the enumeration RULE.
        form: the form of a node's weight decay, a name of the enumeration FORM.
        states: the least and the largest number of states.
        params: the kernel's other parameters for a node.
    """
    o = Op(name, "edgewise")

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        return _updated(node, states)

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        count = len(node.outputs) - 1
        rate, step, scale = (
            builder.view(node.inputs[i]) if node.has(i) else None
            for i in range(count + 2, count + 5)
        )
        if rule == "rmsprop":
            names = [
                "s",
                *(["t"] if node.attr("centered", 0) else []),
                *(["u"] if node.attr("momentum", 0.0) else []),
            ]
        else:
            names = ["s", "t"]
        gradient = builder.flat(builder.view(node.inputs[1]))
        updated = {
            "x": in_place(node, builder),
            **{k: in_place(node, builder, i + 2, i + 1) for i, k in zip(range(count), names)},
        }
        builder.emit(
            "optimizer",
            {**updated, "g": gradient, "learning_rate": rate, "step": step, "scale": scale},
            rule=RULE[rule],
            form=FORM[form(node)],
            n=product(node.inputs[0].shape),
            **dict.fromkeys(
                ("rest1", "rest2", "epsilon", "weight_decay", "momentum", "dampening"), 0.0
            )
            | {"nesterov": 0}
            | params(node),
        )


def _updated(node: BoundNode, states: tuple[int, int]) -> Inferred:
    """The outputs of an optimizer. states: the least and the largest number of states."""
    takes(node, (FLOAT,), *(i for i in range(len(node.inputs)) if i != len(node.outputs) + 2))
    takes(node, (INT64,), len(node.outputs) + 2)
    count = len(node.outputs) - 1
    if not states[0] <= count <= states[1]:
        fail(node, f"it has {count} states")
    for v in node.inputs[1 : count + 2]:
        if list(v.shape) != list(node.inputs[0].shape):
            fail(node, f"{v} is not of the shape of {node.inputs[0]}")
    return [(FLOAT, list(v.shape)) for v in (node.inputs[0], *node.inputs[2 : count + 2])]


def _number(node: BoundNode, name: str, default: float = 0.0) -> float:
    return float(node.attr(name, default))


def adam_form(node: BoundNode) -> str:
    """The form of Adam's weight decay, from the attribute `mode`."""
    mode = node.attr("mode", "torch")
    if mode not in ("torch", "ort", "adam"):
        fail(node, f"its mode is {mode!r}", "Use 'torch', 'ort' or 'adam'.")
    return {"torch": "decoupled", "ort": "ort", "adam": "l2"}[mode]


def adam_params(node: BoundNode) -> dict[str, float]:
    """Adam's parameters of the kernels."""
    return {
        "rest1": 1 - _number(node, "beta1", 0.9),
        "rest2": 1 - _number(node, "beta2", 0.999),
        "epsilon": _number(node, "epsilon", 1e-8),
        "weight_decay": _number(node, "weight_decay"),
    }


# States: m, v. Attributes: beta1, beta2, epsilon, weight_decay, mode: "torch" (torch.optim.AdamW,
# Loshchilov and Hutter 2019: decay first), "ort" (ONNX Runtime Training, as Hugging Face's first
# AdamW: epsilon is added to the root before bias correction, decay last) or "adam"
# (torch.optim.Adam, Kingma and Ba 2015: decay is part of the gradient).
_declare("AdamW", "adam", adam_form, (2, 2), adam_params)

# As AdamW. States: m int8 [n], its scales float32 [blocks], v uint8 [n], its scales; their encoding
# is described in core/kernels/training/optimizer.c.
adamw_8bit = Op("AdamW8bit", "edgewise")


@adamw_8bit.infer
def adamw_8bit_infer(node: BoundNode) -> Inferred:
    size = product(node.inputs[0].shape)
    blocks = -(-size // BLOCK)
    takes(node, (FLOAT,), 0, 1, 3, 5, 6, 8)
    takes(node, (INT64,), 7)
    for i, (dtype, count) in enumerate(
        [(FLOAT, size), (INT8, size), (FLOAT, blocks), (UINT8, size), (FLOAT, blocks)], 1
    ):
        shape = list(node.inputs[0].shape) if i == 1 else [count]
        if node.inputs[i].dtype != dtype or list(node.inputs[i].shape) != shape:
            fail(node, f"{node.inputs[i]} does not fit {node.inputs[0]}")
    return [(v.dtype, list(v.shape)) for v in (node.inputs[0], *node.inputs[2:6])]


@adamw_8bit.lower
def adamw_8bit_lower(node: BoundNode, builder: Builder) -> None:
    gradient, rate, step, scale = (
        builder.flat(builder.view(node.inputs[1])),
        builder.view(node.inputs[6]),
        builder.view(node.inputs[7]),
        builder.view(node.inputs[8]) if node.has(8) else None,
    )
    updated = {
        k: in_place(node, builder, i, o)
        for k, i, o in (
            ("x", 0, 0),
            ("m", 2, 1),
            ("m_largest", 3, 2),
            ("v", 4, 3),
            ("v_largest", 5, 4),
        )
    }
    builder.emit(
        "optimizer_8bit",
        {**updated, "g": gradient, "learning_rate": rate, "step": step, "scale": scale},
        form=FORM[adam_form(node)],
        n=product(node.inputs[0].shape),
        **adam_params(node),
    )


# torch.optim.SGD. State, with momentum: the buffer, which is the first gradient, then momentum *
# buffer + (1 - dampening) * gradient.
_declare(
    "SGD",
    "sgd",
    lambda n: "l2",
    (0, 1),
    lambda n: {
        "weight_decay": _number(n, "weight_decay"),
        "momentum": _number(n, "momentum"),
        "dampening": _number(n, "dampening"),
        "nesterov": n.attr("nesterov", 0),
    },
)
# torch.optim.Adagrad without learning rate decay (Duchi et al. 2011). State: the sum of squares.
_declare(
    "Adagrad",
    "adagrad",
    lambda n: "l2",
    (1, 1),
    lambda n: {"epsilon": _number(n, "epsilon", 1e-10), "weight_decay": _number(n, "weight_decay")},
)
# torch.optim.RMSprop. States: the average of squares, the average of gradients if centered, the
# buffer with momentum.
_declare(
    "RMSprop",
    "rmsprop",
    lambda n: "l2",
    (1, 3),
    lambda n: {
        "rest1": 1 - _number(n, "alpha", 0.99),
        "epsilon": _number(n, "epsilon", 1e-8),
        "weight_decay": _number(n, "weight_decay"),
        "momentum": _number(n, "momentum"),
    },
)
# Lion (Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2). State: m.
_declare(
    "Lion",
    "lion",
    lambda n: "decoupled",
    (1, 1),
    lambda n: {
        "rest1": 1 - _number(n, "beta1", 0.9),
        "rest2": 1 - _number(n, "beta2", 0.99),
        "weight_decay": _number(n, "weight_decay"),
    },
)


# The sum of the squares of all elements of its inputs, float32 [1].
sum_of_squares = Op("SumOfSquares", "edgewise")

# A large gradient is summed in parts, which threads share: the result does not depend on how many
# threads there are.
PIECES = 16


@sum_of_squares.infer
def sum_of_squares_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), *range(len(node.inputs)))
    return [(FLOAT, [1])]


@sum_of_squares.lower
def sum_of_squares_lower(node: BoundNode, builder: Builder) -> None:
    views, pieces = [], []
    for v in map(builder.view, node.inputs):
        order = sorted(range(len(v.shape)), key=lambda i: -v.strides[i])
        v = builder.flat(v.transpose(order))  # in the order of memory, which avoids a copy
        views.append(v)
        pieces.append(PIECES if v.shape[0] % PIECES == 0 and v.shape[0] >= 16384 else 1)
    parts, at = builder.temp(FLOAT, [sum(pieces)]), 0
    for v, k in zip(views, pieces):
        each = v.shape[0] // k
        builder.emit(
            "reduce",
            {"x": v, "y": parts.slice(0, at, k)},
            op=REDUCE["sum_square"],
            type=FLOAT,
            outer=k,
            n=each,
            inner=1,
            x_outer=each,
            x_n=1,
            x_inner=1,
            y_outer=1,
        )
        at += k
    builder.emit(
        "reduce",
        {"x": parts, "y": builder.out(node.outputs[0])},
        op=REDUCE["sum"],
        type=FLOAT,
        outer=1,
        n=at,
        inner=1,
        x_outer=at,
        x_n=1,
        x_inner=1,
        y_outer=1,
    )


# The factor of torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)) * scale. Inputs:
# sum of squares [1], scale [1] or absent. Attribute: max_norm.
clip_scale = Op("ClipScale", "edgewise")


@clip_scale.decompose
def clip_scale_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    def number(x: float) -> Value:
        return graph.constant(FLOAT, [1], [x])

    norm, scale = graph.op("Sqrt", node.inputs[0]), node.input(1)
    if scale is not None:
        norm = graph.op("Mul", norm, scale)
    factor = graph.op(
        "Min",
        graph.op("Div", number(float(node.attrs["max_norm"])), graph.op("Add", norm, number(1e-6))),
        number(1.0),
    )
    return [graph.op("Mul", factor, scale) if scale is not None else factor]
