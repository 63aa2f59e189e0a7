"""Padding with zeros before convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import BoundNode
from .rewrite import Rewriter, number

if TYPE_CHECKING:
    from ..bind import BoundGraph


def fuse_padding(bound: BoundGraph) -> None:
    """A Pad with zeros along the spatial axes of a convolution's input becomes part of the
    convolution's own pads.
    """
    r = Rewriter(bound)
    for n in r.nodes("Conv"):
        pad = n.inputs[0].producer
        if n.domain == "" and pad is not None and pad.op == "Pad" and pad.domain == "edgewise":
            _into(n, pad)
    r.done()


def _into(node: BoundNode, pad: BoundNode) -> None:
    pads, rank = pad.attrs["pads"], pad.inputs[0].rank - 2
    value = (
        number(pad.inputs[1])
        if len(pad.inputs) > 1 and pad.inputs[1] is not None
        else pad.attrs["value"]
    )
    if (
        value != 0.0
        or any(type(p) is not int or p < 0 for both in pads for p in both)
        or any(map(any, pads[:2]))
        or node.attr("auto_pad", "NOTSET") not in ("", "NOTSET", "VALID")
    ):
        return
    own = node.attr("pads") or [0] * (2 * rank)
    node.attrs = {
        **{k: v for k, v in node.attrs.items() if k != "auto_pad"},
        "pads": [
            o + p
            for o, p in zip(
                own, [before for before, _ in pads[2:]] + [after for _, after in pads[2:]]
            )
        ],
    }
    node.inputs = [pad.inputs[0], *node.inputs[1:]]
