"""Pooling of regions of images: RoiAlign, MaxRoiPool, and the kernel under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import Op, fail, takes, unsupported
from .contracts import ROI

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Decomposed, Inferred

# Inputs: x, regions [n, 4], the image of each region [n]. Attributes: size [height, width] of the
# output; op, samples, scale, shift and least as the kernel takes them.
pooled = Op("RoiPool", "edgewise")


@pooled.infer
def pooled_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1)
    x, regions, index = node.inputs
    size = node.attrs["size"]
    if (
        x.rank != 4
        or regions.rank != 2
        or regions.shape[1] != 4
        or list(index.shape) != regions.shape[:1]
        or len(size) != 2
        or min(size) < 1
        or min(x.shape[2:]) < 1
        or x.shape[0] < 1
        and regions.shape[0]
    ):
        fail(node, f"regions {regions} with indices {index}, pooled to {size}, do not fit {x}")
    return [(FLOAT, [regions.shape[0], x.shape[1], *size])]


@pooled.lower
def pooled_lower(node: BoundNode, builder: Builder) -> None:
    x, regions, index = (builder.contiguous(builder.view(v)) for v in node.inputs)
    y, a = builder.out(node.outputs[0]), node.attrs
    builder.emit(
        "roi_pool",
        {"x": x, "region": regions, "index": index, "y": y},
        op=ROI[a["op"]],
        batch=x.shape[0],
        channels=x.shape[1],
        height=x.shape[2],
        width=x.shape[3],
        regions=y.shape[0],
        y_height=y.shape[2],
        y_width=y.shape[3],
        samples=a["samples"],
        scale=a["scale"],
        shift=a["shift"],
        least=a["least"],
    )


roi_align = Op("RoiAlign")


@roi_align.decompose
def roi_align_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """The default of coordinate_transformation_mode changed in opset 16."""
    half = node.attr(
        "coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel"
    )
    mode, samples = node.attr("mode", "avg"), node.attr("sampling_ratio", 0)
    if (
        half not in ("half_pixel", "output_half_pixel")
        or mode not in ("avg", "max")
        or not 0 <= samples <= 64
    ):
        unsupported(
            node,
            f"mode '{mode}', coordinate_transformation_mode '{half}' and sampling_ratio {samples}",
        )
    half = half == "half_pixel"
    return [
        graph.op(
            "RoiPool",
            node.inputs[0],
            node.inputs[1],
            graph.op("Cast", node.inputs[2], to=INT64),
            domain="edgewise",
            op="average" if mode == "avg" else "max",
            samples=samples,
            size=[node.attr("output_height", 1), node.attr("output_width", 1)],
            scale=float(node.attr("spatial_scale", 1.0)),
            shift=0.5 * half,
            least=0.0 if half else 1.0,
        )
    ]


max_roi_pool = Op("MaxRoiPool")


@max_roi_pool.decompose
def max_roi_pool_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Regions are [n, 5]; the first number is the image."""
    x, regions, size = node.inputs[0], node.inputs[1], node.attr("pooled_shape", [])
    if regions.rank != 2 or regions.shape[1] != 5 or len(size) != 2:
        fail(node, f"regions {regions} pooled to {size} do not fit {x}")
    image, regions = graph.op(
        "Split", regions, graph.constant(INT64, [2], [1, 4]), axis=1, outputs=2
    )
    index = (
        graph.op("Cast", graph.op("Reshape", image, graph.constant(INT64, [1], [-1])), to=INT64)
        if regions.shape[0]
        else graph.constant(INT64, [0], [])
    )
    return [
        graph.op(
            "RoiPool",
            x,
            regions,
            index,
            domain="edgewise",
            op="pool",
            samples=0,
            size=list(size),
            scale=float(node.attr("spatial_scale", 1.0)),
            shift=0.0,
            least=1.0,
        )
    ]
