"""A window that moves over the spatial dimensions of a tensor [batch, channels, ...]: strides,
dilations and pads of convolutions and pools as ONNX says them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.op import fail, unsupported
from ...declare.symbolic import NotStatic, Sym

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import BoundNode, Dim, Shape

SPATIAL = 3  # dimensions that the kernels know; fewer are preceded by ones


@dataclass
class Window:
    """All lists have one entry per spatial dimension. tail: pads behind the end."""

    x: list
    y: list
    kernel: list
    stride: list
    dilation: list
    pad: list
    tail: list

    def params(self) -> dict[str, list[int]]:
        """The parameters of a kernel."""

        def three(values: list[int], fill: int) -> list[int]:
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
    def _steps(steps: list[int], counts: list[int]) -> list[int]:
        """Strides or dilations without those that nothing depends on, since there is one position
        or one tap.
        """
        return [s if n > 1 else 1 for s, n in zip(steps, counts)]

    def checked(self, n: BoundNode) -> Window:
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
                fail(n, f"{name} {steps} whose product is 2^31 or more")
        return self

    @property
    def pointwise(self) -> bool:
        """Whether each position reads the one element that it stands at."""
        return (
            self.x == self.y
            and all(k == 1 for k in self.kernel)
            and all(s == 1 for s in self.stride)
            and not any(self.pad)
        )

    def attrs(self) -> dict[str, list[int]]:
        """Attributes that say the same to another node."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.stride),
            "dilations": list(self.dilation),
            "pads": list(self.pad) + list(self.tail),
        }


def _attributes(
    node: BoundNode, spatial: Sequence[Dim], kernel: Sequence[Dim]
) -> tuple[list[int], list[int], list[int], list[int]]:
    rank = len(spatial)
    if not 1 <= rank <= SPATIAL:
        unsupported(node, f"a window over {rank} dimensions")
    if any(isinstance(d, Sym) for d in [*spatial, *kernel]):
        raise NotStatic("a window over a dimension that depends on a register")
    stride, dilation, pads = (
        node.attr("strides", []) or [1] * rank,
        node.attr("dilations", []) or [1] * rank,
        node.attr("pads") or [0] * 2 * rank,
    )
    said = node.attr("kernel_shape", [])
    if (
        said
        and list(said) != list(kernel)
        or not len(kernel) == len(stride) == len(dilation) == rank
        or len(pads) != 2 * rank
    ):
        fail(
            node,
            f"kernel {list(kernel)}, kernel_shape {said}, strides {stride}, dilations {dilation}"
            f" and pads {pads} do not fit {rank} dimensions",
        )
    if min([*kernel, *stride, *dilation]) < 1:
        fail(node, "a kernel, stride or dilation below 1")
    if max(map(abs, [*kernel, *stride, *dilation, *pads, *spatial])) > 1 << 30:
        fail(node, "a kernel, stride, dilation or pad that is no sensible number")
    return list(stride), list(dilation), list(pads[:rank]), list(pads[rank:])


def _mode(node: BoundNode) -> str:
    mode = node.attr("auto_pad", "NOTSET")
    if mode not in ("", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        fail(node, f"auto_pad {mode!r}")
    return mode


def window(node: BoundNode, spatial: Shape, kernel: Shape, ceil_mode: bool = False) -> Window:
    """The Window of a convolution or pool over dimensions `spatial`; fails where it does not fit
    even once.
    """
    spatial, kernel = list(spatial), list(kernel)
    stride, dilation, pad, tail = _attributes(node, spatial, kernel)
    mode, y = _mode(node), []
    for i, (d, k, s, dil) in enumerate(zip(spatial, kernel, stride, dilation)):
        reach = (k - 1) * dil + 1
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            size = -(-d // s)
            missing = max((size - 1) * s + reach - d, 0)
            pad[i] = missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
            tail[i] = missing - pad[i]
        else:
            if mode == "VALID":
                pad[i] = tail[i] = 0
            room = d + pad[i] + tail[i] - reach
            size = (-(-room // s) if ceil_mode else room // s) + 1
            if (
                ceil_mode and (size - 1) * s >= d + pad[i]
            ):  # a window that would begin behind the end
                size -= 1
        if d and size < 1:
            fail(
                node,
                f"a window of {reach} does not fit into a dimension of {d} with pads {pad[i]} and"
                f" {tail[i]}",
            )
        y.append(max(size, 0) if d else 0)
    return Window(spatial, y, kernel, stride, dilation, pad, tail).checked(node)


def transposed_window(node: BoundNode, spatial: Shape, kernel: Shape) -> Window:
    """The Window whose y is what a ConvTranspose takes, and x what it gives."""
    spatial, kernel = list(spatial), list(kernel)
    stride, dilation, pad, tail = _attributes(node, spatial, kernel)
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
    for i, (d, k, s, dil) in enumerate(zip(spatial, kernel, stride, dilation)):
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
        if d and size < 1 or size > 1 << 30:
            fail(node, f"an output of {size} elements along a dimension")
        x.append(max(size, 0))
    return Window(x, spatial, kernel, stride, dilation, pad, tail).checked(node)
