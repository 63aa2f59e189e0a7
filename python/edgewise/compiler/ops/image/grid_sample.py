"""GridSample, its gradient, and the kernel under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import Op, fail, like, product, takes, unsupported
from .contracts import SAMPLE_MODE, SAMPLE_PADDING

if TYPE_CHECKING:
    from typing import Any

    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

grid_sample = Op("GridSample")
# The modes; their names changed in opset 20.
_MODES = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "linear": "linear",
    "cubic": "cubic",
    "nearest": "nearest",
}


def _sample(node: BoundNode) -> tuple[int, dict[str, Any]]:
    """(number of spatial dimensions, parameters of the kernel)."""
    x, grid = node.inputs[:2]
    dims = x.rank - 2
    mode, padding = (
        node.attr("mode", "linear" if node.opset >= 20 else "bilinear"),
        node.attr("padding_mode", "zeros"),
    )
    if (
        not 1 <= dims <= 3
        or grid.rank != x.rank
        or grid.shape[0] != x.shape[0]
        or grid.shape[-1] != dims
        or product(x.shape[2:]) == 0
    ):
        fail(node, f"{x} and the grid {grid} are incompatible")
    if mode not in _MODES or padding not in SAMPLE_PADDING:
        unsupported(node, f"mode '{mode}' and padding_mode '{padding}'")
    return dims, {
        "batch": x.shape[0],
        "channels": x.shape[1],
        "positions": product(grid.shape[1:-1]),
        "dims": dims,
        "mode": SAMPLE_MODE[_MODES[mode]],
        "padding": SAMPLE_PADDING[padding],
        "align": node.attr("align_corners", 0),
        "x_size": [1] * (3 - dims) + list(x.shape[2:]),
    }


@grid_sample.infer
def grid_sample_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1)
    _sample(node)
    return [(FLOAT, list(node.inputs[0].shape[:2]) + list(node.inputs[1].shape[1:-1]))]


@grid_sample.lower
def grid_sample_lower(node: BoundNode, builder: Builder) -> None:
    builder.emit(
        "grid_sample",
        {
            "x": builder.contiguous(builder.view(node.inputs[0])),
            "grid": builder.contiguous(builder.view(node.inputs[1])),
            "y": builder.out(node.outputs[0]),
        },
        **_sample(node)[1],
    )


@grid_sample.grad
def grid_sample_grad_rule(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    dx, dgrid = gradients.op(
        "GridSampleGrad",
        *node.inputs,
        dy,
        domain="edgewise",
        outputs=2,
        mode=node.attr("mode", "linear"),
        padding_mode=node.attr("padding_mode", "zeros"),
        align_corners=node.attr("align_corners", 0),
    )
    return [dx if gradients.wants(0) else None, dgrid if gradients.wants(1) else None]


grid_sample_grad = Op("GridSampleGrad", "edgewise")  # (x, grid, dy) -> dx, dgrid


@grid_sample_grad.infer
def grid_sample_grad_infer(node: BoundNode) -> Inferred:
    return [like(node, 0), like(node, 1)]


@grid_sample_grad.lower
def grid_sample_grad_lower(node: BoundNode, builder: Builder) -> None:
    x, grid, dy = (builder.contiguous(builder.view(v)) for v in node.inputs)
    dx, dgrid = (builder.out(node.outputs[i]) if node.wants(i) else None for i in range(2))
    params = _sample(node)[1]
    for v in (dx, dgrid):
        if v is not None and product(v.shape) and 0 in (params["channels"], params["positions"]):
            builder.fill(v, 0.0)
    builder.emit(
        "grid_sample", {"x": x, "grid": grid, "dy": dy, "dx": dx, "dgrid": dgrid}, **params
    )
