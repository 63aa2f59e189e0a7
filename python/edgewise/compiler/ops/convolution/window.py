"""The window of a convolution or pool over the spatial dimensions of [batch, channels, ...]: its
positions from ONNX's strides, dilations, pads and auto_pad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...declare.op import fail, unsupported
from ...declare.registers import ceil_div, floor_div
from ...declare.symbolic import NotStatic, Sym, TooShort, most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import BoundNode, Dim, Shape

# Dimensions of the kernels; tensors with fewer have dimensions of 1 in front of them.
SPATIAL = 3


@dataclass
class Window:
    """A window; all lists have an entry for each spatial dimension.

    Attributes:
        x: Elements of the input.
        y: Positions of the window.
        kernel, stride, dilation: As in ONNX.
        pad, tail: Elements of padding before the beginning and after the end.
    """

    x: list[Any]
    y: list[Any]
    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    pad: list[int]
    tail: list[int]

    def params(self) -> dict[str, list[Any]]:
        """The parameters WINDOW (window_rules.py) of a kernel."""

        def three(values: Sequence[Any], fill: int) -> list[Any]:
            return [fill] * (SPATIAL - len(values)) + list(values)

        return {
            "x_size": three(self.x, 1),
            "y_size": three(self.y, 1),
            "taps": three(self.kernel, 1),
            "stride": three(self._steps(self.stride, self.y), 1),
            "dilation": three(self._steps(self.dilation, self.kernel), 1),
            "pad": three(self.pad, 0),
        }

    @staticmethod
    def _steps(steps: list[int], counts: Sequence[Dim]) -> list[int]:
        """Strides or dilations, with 1 where there is one position or one tap: nothing depends on
        them.
        """
        return [s if most(n) > 1 else 1 for s, n in zip(steps, counts)]

    def checked(self, node: BoundNode) -> Window:
        """Returns itself.

        Raises:
            ModelError: the product of the strides or dilations exceeds the bound of the kernels
                (window_rules.py).
        """
        for name, steps, counts in (
            ("strides", self.stride, self.y),
            ("dilations", self.dilation, self.kernel),
        ):
            if (
                math.prod(self._steps(steps, counts)) > (1 << 31) - 4096
            ):  # EW_LONGEST of core/table.h
                fail(node, f"the product of its {name} {steps} is 2^31 or more")
        return self

    @property
    def pointwise(self) -> bool:
        """Whether each position reads one element, the one at the same position."""
        return (
            self.x == self.y
            and all(k == 1 for k in self.kernel)
            and all(s == 1 for s in self.stride)
            and not any(self.pad)
        )

    def attrs(self) -> dict[str, list[int]]:
        """The window as attributes of Conv."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.stride),
            "dilations": list(self.dilation),
            "pads": list(self.pad) + list(self.tail),
        }


def _attributes(
    node: BoundNode, spatial: Shape, kernel: Shape
) -> tuple[list[Any], list[int], list[int], list[int], list[Any], list[Any]]:
    """(spatial, kernel, strides, dilations, pads at the beginning, pads at the end), checked."""
    rank, sizes = len(spatial), list(spatial)
    if not 1 <= rank <= SPATIAL:
        unsupported(node, f"a window over {rank} dimensions")
    taps = [d for d in kernel if not isinstance(d, Sym)]
    if len(taps) != len(kernel) or any(isinstance(d, Sym) and not d.packed for d in sizes):
        raise NotStatic("a window over a dimension that is laid out for its largest size")
    stride, dilation, pads = (
        node.attr("strides", []) or [1] * rank,
        node.attr("dilations", []) or [1] * rank,
        node.attr("pads") or [0] * 2 * rank,
    )
    declared = node.attr("kernel_shape", [])
    if (
        declared
        and list(declared) != taps
        or not len(taps) == len(stride) == len(dilation) == rank
        or len(pads) != 2 * rank
    ):
        fail(
            node,
            f"kernel {taps}, kernel_shape {declared}, strides {stride}, dilations {dilation}"
            f" and pads {pads} do not fit {rank} dimensions",
        )
    if min([*taps, *stride, *dilation]) < 1:
        fail(node, f"its kernel {taps}, strides {stride} or dilations {dilation} are below 1")
    if max(map(abs, [*taps, *stride, *dilation, *pads, *map(most, sizes)])) > 1 << 30:
        fail(node, "one of its kernel sizes, strides, dilations, pads or dimensions exceeds 2^30")
    return sizes, taps, list(stride), list(dilation), list(pads[:rank]), list(pads[rank:])


def _mode(node: BoundNode) -> str:
    mode = node.attr("auto_pad", "NOTSET")
    if mode not in ("", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        fail(node, f"its auto_pad is {mode!r}, which ONNX does not define")
    return mode


def window(node: BoundNode, spatial: Shape, kernel: Shape, ceil_mode: bool = False) -> Window:
    """The Window of a convolution or pool.

    Args:
        node: The node, for its attributes.
        spatial: The spatial dimensions of the input.
        kernel: Those of the kernel.
        ceil_mode: Whether the last position may reach beyond the padding.
    Raises:
        ModelError: it does not fit, or the attributes are not valid.
        UnsupportedOp: it has more than three dimensions.
        NotStatic: a dimension depends on a register, and whether the window fits does, too.
    """
    sizes, taps, stride, dilation, pad, tail = _attributes(node, spatial, kernel)
    mode = _mode(node)
    y: list[Any] = []
    for i, (d, k, s, dil) in enumerate(zip(sizes, taps, stride, dilation)):
        reach = (k - 1) * dil + 1
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            size = ceil_div(d, s)
            missing = max((size - 1) * s + reach - d, 0)
            pad[i] = missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
            tail[i] = missing - pad[i]
        else:
            if mode == "VALID":
                pad[i] = tail[i] = 0
            room = d + pad[i] + tail[i] - reach
            size = (ceil_div(room, s) if ceil_mode else floor_div(room, s)) + 1
            if isinstance(size, Sym) and size.min < 2:
                raise TooShort(f"a window of {reach} over a dimension of at least {d.min}")
            # it would begin after the end; only if the stride exceeds the window can it
            if ceil_mode and s + tail[i] > reach and (size - 1) * s >= d + pad[i]:
                size -= 1
        if d and size < 1:
            fail(
                node,
                f"a window of {reach} does not fit into a dimension of {d} with pads {pad[i]} and"
                f" {tail[i]}",
            )
        y.append(max(size, 0) if d else 0)
    return Window(sizes, y, taps, stride, dilation, pad, tail).checked(node)


def transposed_window(node: BoundNode, spatial: Shape, kernel: Shape) -> Window:
    """The Window of a ConvTranspose: y is its input, x its output."""
    sizes, taps, stride, dilation, pad, tail = _attributes(node, spatial, kernel)
    extra, shape, mode = (
        node.attr("output_padding", []) or [0] * len(spatial),
        node.attr("output_shape", []),
        _mode(node),
    )
    shape = shape[-len(spatial) :] if len(shape) == len(spatial) + 2 else shape
    if len(extra) != len(spatial) or shape and len(shape) != len(spatial) or min(extra) < 0:
        fail(
            node,
            f"output_padding {extra} and output_shape {shape} do not fit {len(spatial)} dimensions",
        )
    x = []
    for i, (d, k, s, dil) in enumerate(zip(sizes, taps, stride, dilation)):
        whole = (d - 1) * s + (k - 1) * dil + 1 + extra[i]
        if shape or mode in ("SAME_UPPER", "SAME_LOWER"):
            size = shape[i] if shape else d * s
            over = max(whole - size, 0) if shape else whole - size
            pad[i] = (
                over - over // 2
                if mode == "SAME_LOWER" or shape and mode != "SAME_UPPER"
                else over // 2
            )
            tail[i] = over - pad[i]
        else:
            if mode == "VALID":
                pad[i] = tail[i] = 0
            size = whole - pad[i] - tail[i]
        if d and size < 1 or most(size) > 1 << 30:
            fail(node, f"its output would have {size} elements along a dimension")
        x.append(max(size, 0))
    return Window(x, sizes, taps, stride, dilation, pad, tail).checked(node)
