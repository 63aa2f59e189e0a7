"""Gradients of gated activations, activation(a) * b, in one step.

In training, transformers spend most of their elementwise time on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import OPS, Op, product
from ..product.contracts import ACTIVATION
from .nodes import slope

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

# The activation of each operator.
GATED = {"SiLUMul": "quick_gelu", "GeluMul": "gelu", "GeluTanhMul": "gelu_tanh"}

# Inputs: dy, a, b. Outputs: the gradients of a and b, and the output of the operator `of`, which
# recomputation may use.
gated_grad = Op("GatedGrad", "edgewise")


@gated_grad.infer
def gated_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, node.inputs[0].shape)] * 3


@gated_grad.lower
def gated_grad_lower(node: BoundNode, builder: Builder) -> None:
    dy, x, gate = (builder.contiguous(builder.view(v)) for v in node.inputs)
    builder.emit(
        "gated_grad",
        {
            "dy": dy,
            "a": x,
            "b": gate,
            "da": builder.out(node.outputs[0]),
            "db": builder.out(node.outputs[1]),
            "y": builder.out(node.outputs[2]) if node.wants(2) else None,
        },
        n=product(dy.shape),
        activation=ACTIVATION[GATED[node.attrs["of"]]],
        alpha=1.0,
    )


def _rule(name: str, activation: str) -> Callable[..., InputGradients]:
    """The gradient rule of an operator."""

    def rule(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
        """The gradient of b is activation(a) * dy: the same operator again."""
        a, b = node.inputs
        if (
            graph.wants(0)
            and graph.wants(1)
            and dy.dtype == FLOAT
            and list(a.shape) == list(b.shape)
        ):
            return graph.op("GatedGrad", dy, a, b, domain="edgewise", outputs=3, of=name)[:2]
        return [
            slope(graph, graph.mul(dy, b), a, activation) if graph.wants(0) else None,
            graph.op(name, a, dy, domain="edgewise") if graph.wants(1) else None,
        ]

    return rule


for _name, _activation in GATED.items():
    OPS["edgewise", _name].grad(_rule(_name, _activation))
