"""DeformConv, Col2Im, AffineGrid and MaxUnpool, composed of other operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import Op, fail, ints, product, takes
from ...declare.symbolic import NotStatic, Sym
from .window import Window, window

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Decomposed, Value

deform_conv = Op("DeformConv")


# Inputs: x, w, offset [batch, offset_group * taps * dims, *positions], with the offsets along all
# dimensions of one tap one after the other, bias, mask [batch, offset_group * taps, *positions].
@deform_conv.decompose
def deform_conv_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Samples x at the position of each tap plus an offset (GridSample), and multiplies the samples
    with the weights, as in any convolution.
    """
    win = _deform_window(node)
    x, w, bias, mask = node.inputs[0], node.inputs[1], node.input(3), node.input(4)
    dims, groups, shared = x.rank - 2, node.attr("group", 1), node.attr("offset_group", 1)
    batch, channels, out = x.shape[0], x.shape[1], win.y
    taps, positions = product(win.kernel), product(out)
    grid = _sampling_grid(node, graph, win, batch * shared)
    y = graph.op(
        "GridSample",
        graph.reshape(x, [batch * shared, channels // shared, *x.shape[2:]]),
        grid,
        mode="linear",
        padding_mode="zeros",
        align_corners=0,
    )
    if mask is not None:
        y = graph.op(
            "Mul",
            graph.reshape(y, [batch * shared, channels // shared, taps, positions]),
            graph.reshape(mask, [batch * shared, 1, taps, positions]),
        )
    y = graph.reshape(y, [batch, groups, channels // groups * taps, positions])
    y = graph.op("MatMul", graph.reshape(w, [groups, w.shape[0] // groups, w.shape[1] * taps]), y)
    y = graph.reshape(y, [batch, w.shape[0], *out])
    return [
        y if bias is None else graph.op("Add", y, graph.reshape(bias, [w.shape[0]] + [1] * dims))
    ]


def _deform_window(node: BoundNode) -> Window:
    """The window of a DeformConv, once all shapes are known to fit."""
    takes(node, (FLOAT,), 0, 1, 2, 3, 4)
    x, w, offset = node.inputs[:3]
    bias, mask = node.input(3), node.input(4)
    dims, groups, shared = x.rank - 2, node.attr("group", 1), node.attr("offset_group", 1)
    if (
        not 1 <= dims <= 3
        or w.rank != x.rank
        or groups < 1
        or shared < 1
        or x.shape[1] % shared
        or w.shape[0] % groups
        or w.shape[1] * groups != x.shape[1]
    ):
        fail(
            node, f"weights {w} in {groups} groups, with {shared} groups of offsets, do not fit {x}"
        )
    win = window(node, x.shape[2:], w.shape[2:])
    batch, taps = x.shape[0], product(win.kernel)
    if (
        list(offset.shape) != [batch, shared * taps * dims, *win.y]
        or mask is not None
        and list(mask.shape) != [batch, shared * taps, *win.y]
        or bias is not None
        and list(bias.shape) != [w.shape[0]]
    ):
        fail(
            node,
            f"offsets {offset}, mask {mask} and bias {bias} do not fit {taps} taps at {win.y}"
            " positions",
        )
    return win


def _sampling_grid(node: BoundNode, graph: Binder, win: Window, batch: int) -> Value:
    """Where x is sampled, as GridSample takes it.

    Args:
        batch: Items of the batch times groups of offsets.
    Returns:
        [batch, taps * positions[0], *positions[1:], dims]
    """
    x, out, dims = node.inputs[0], win.y, len(win.y)
    offset = graph.reshape(node.inputs[2], [batch, *win.kernel, dims, *out])
    grid = []
    for d in range(dims):
        step = graph.op(
            "Range",
            *(
                graph.constant(FLOAT, [], [float(v)])
                for v in (-win.pad[d], out[d] * win.stride[d] - win.pad[d], win.stride[d])
            ),
        )
        tap = graph.op(
            "Range",
            *(
                graph.constant(FLOAT, [], [float(v)])
                for v in (0, win.kernel[d] * win.dilation[d], win.dilation[d])
            ),
        )
        at = graph.op(
            "Add",
            graph.reshape(tap, [win.kernel[d]] + [1] * (2 * dims - 1 - d)),
            graph.reshape(step, [out[d]] + [1] * (dims - 1 - d)),
        )
        at = graph.op(
            "Add", graph.op("Gather", offset, graph.constant(INT64, [], [d]), axis=1 + dims), at
        )
        size = x.shape[2 + d]  # -1 .. 1 is from edge to edge
        at = graph.op(
            "Add",
            graph.op("Mul", at, graph.constant(FLOAT, [], [2.0 / size])),
            graph.constant(FLOAT, [], [1.0 / size - 1.0]),
        )
        grid.append(graph.op("Unsqueeze", at, graph.ints([-1])))
    return graph.reshape(
        graph.op("Concat", *grid[::-1], axis=-1) if dims > 1 else grid[0],
        [batch, product(win.kernel) * out[0], *out[1:], dims],
    )


col2im = Op("Col2Im")


@col2im.decompose
def col2im_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """A transposed convolution with weights of 1 where the row of a block is that of the tap."""
    takes(node, (FLOAT,), 0)
    x, image, block = node.inputs[0], ints(node, 1), ints(node, 2)
    dims, taps = len(image), product(block)
    stride, dilation, pads = (
        node.attr("strides", []) or [1] * dims,
        node.attr("dilations", []) or [1] * dims,
        node.attr("pads") or [0] * 2 * dims,
    )
    if (
        not 1 <= dims <= 3
        or len(block) != dims
        or min(block) < 1
        or len(stride) != dims
        or len(dilation) != dims
        or len(pads) != 2 * dims
        or min([*stride, *dilation]) < 1
        or x.rank != 3
        or x.shape[1] % taps
    ):
        fail(node, f"blocks {block} of an image {image} do not fit {x}")
    reach = [(k - 1) * d + 1 for k, d in zip(block, dilation)]
    room = [size + lo + hi - r for size, lo, hi, r in zip(image, pads, pads[dims:], reach)]
    out = [r // s + 1 for r, s in zip(room, stride)]
    if min(room) < 0 or product(out) != x.shape[2]:
        fail(node, f"an image {image} has {product(out)} blocks of {block}, {x} has other ones")
    channels = x.shape[1] // taps
    eye = graph.op(
        "EyeLike", graph.op("Expand", graph.constant(FLOAT, [], [0.0]), graph.ints([taps, taps]))
    )
    w = graph.reshape(
        graph.op("Expand", eye, graph.ints([channels, taps, taps])), [channels * taps, 1, *block]
    )
    return [
        graph.op(
            "ConvTranspose",
            graph.reshape(x, [x.shape[0], x.shape[1], *out]),
            w,
            group=channels,
            strides=list(stride),
            dilations=list(dilation),
            pads=list(pads),
            kernel_shape=list(block),
            output_padding=[r % s for r, s in zip(room, stride)],
        )
    ]


affine_grid = Op("AffineGrid")


@affine_grid.decompose
def affine_grid_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """theta [batch, dims, dims + 1] times the coordinates of the pixels of an image.

    Coordinates are in -1 .. 1, from edge to edge, or with align_corners from the centre of the
    first pixel to that of the last.
    """
    takes(node, (FLOAT,), 0)
    theta, size = node.inputs[0], ints(node, 1)
    dims = len(size) - 2
    if dims not in (2, 3) or list(theta.shape) != [size[0], dims, dims + 1] or min(size) < 0:
        fail(node, f"theta {theta} and size {size} are incompatible")
    if any(isinstance(d, Sym) for d in size):
        raise NotStatic("a grid of a size that depends on a register")
    parts, shape = [], list(size[2:])
    for i, d in enumerate(shape):
        coordinates = (
            [(2 * k + 1) / d - 1 for k in range(d)]
            if not node.attr("align_corners", 0)
            else [2 * k / (d - 1) - 1 if d > 1 else 0.0 for k in range(d)]
        )
        parts.append(
            graph.op(
                "Expand",
                graph.constant(FLOAT, [d] + [1] * (dims - i), coordinates),
                graph.ints([*shape, 1]),
            )
        )
    whole = graph.op(
        "Concat",
        *parts[::-1],
        graph.op("Expand", graph.constant(FLOAT, [], [1.0]), graph.ints([*shape, 1])),
        axis=-1,
    )
    y = graph.op(
        "MatMul",
        graph.reshape(whole, [product(shape), dims + 1]),
        graph.op("Transpose", theta, perm=[0, 2, 1]),
    )
    return [graph.reshape(y, [size[0], *shape, dims])]


max_unpool = Op("MaxUnpool")


@max_unpool.decompose
def max_unpool_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Zeros, with the elements of x at their indices, which count the elements of the whole tensor
    that was pooled. An output_shape that is larger pads the result at the end.
    """
    x, index, kernel = node.inputs[0], node.inputs[1], node.attr("kernel_shape", [])
    dims = x.rank - 2
    stride, pads = node.attr("strides", []) or [1] * dims, node.attr("pads") or [0] * 2 * dims
    if (
        dims < 1
        or index.shape != x.shape
        or index.dtype != INT64
        or not len(kernel) == len(stride) == dims
        or len(pads) != 2 * dims
    ):
        fail(
            node,
            f"indices {index}, kernel_shape {kernel}, strides {stride} and pads {pads} do not"
            f" fit {x}",
        )
    shape = [
        *x.shape[:2],
        *(
            (d - 1) * s - lo - hi + k
            for d, s, k, lo, hi in zip(x.shape[2:], stride, kernel, pads, pads[dims:])
        ),
    ]
    wanted = ints(node, 2, shape)
    if min(shape) < 0 or len(wanted) != x.rank or any(a < b for a, b in zip(wanted, shape)):
        fail(node, f"a tensor of {shape} does not fit the output_shape {wanted}")
    zeros = graph.op(
        "Expand",
        graph.op("Cast", graph.constant(FLOAT, [], [0.0]), to=x.dtype),
        graph.ints([product(shape)]),
    )
    y = graph.reshape(
        graph.op(
            "ScatterElements",
            zeros,
            graph.reshape(index, [product(x.shape)]),
            graph.reshape(x, [product(x.shape)]),
            axis=0,
        ),
        shape,
    )
    return [
        (
            graph.op("Pad", y, graph.ints([0] * x.rank + [a - b for a, b in zip(wanted, shape)]))
            if wanted != shape
            else y
        )
    ]
