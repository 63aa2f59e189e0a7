"""Graphs for the arithmetic on pictures around a diffusion model; packages have them, too."""

from __future__ import annotations

from collections.abc import Sequence

from ....model_metadata import ModelMetadata
from ...declare.dtypes import FLOAT, INT64, UINT8
from ...ir import Graph, Info, Node, Tensor

__all__ = ["noise_graph", "picture_graph", "pixels_graph"]


def _graph(
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    constants: Sequence[Tensor] = (),
) -> Graph:
    return Graph(
        name,
        list(nodes),
        list(inputs),
        list(outputs),
        constants={t.name: t for t in constants},
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )


def noise_graph(channels: int, height: int, width: int) -> Graph:
    """Normal numbers that follow from the run's seed.

    Args:
        channels, height, width: of latents.

    Returns:
        graph without inputs; output `noise`, float32 [1, channels, height, width]
    """
    shape = [1, channels, height, width]
    node = Node("RandomNormal", [], ["noise"], {"shape": shape, "mean": 0.0, "scale": 1.0})
    return _graph("noise", [node], [], [Info("noise", FLOAT, list(shape))])


def picture_graph() -> Graph:
    """What the decoder makes, as a picture: x / 2 + 0.5, cut to 0 to 1.

    Returns:
        graph with input `sample`, float32 [1, 3, height, width]; outputs `image`, float32 [height,
        width, 3] from 0 to 1, and `pixels`, uint8 [height, width, 3]
    """
    nodes = [
        Node("Squeeze", ["sample", "batch"], ["planes"]),
        Node("Transpose", ["planes"], ["x"], {"perm": [1, 2, 0]}),
        Node("Mul", ["x", "half"], ["halved"]),
        Node("Add", ["halved", "half"], ["moved"]),
        Node("Clip", ["moved", "zero", "one"], ["image"]),
        Node("Mul", ["image", "white"], ["scaled"]),
        Node("Round", ["scaled"], ["whole"]),
        Node("Cast", ["whole"], ["pixels"], {"to": UINT8}),
    ]
    return _graph(
        "picture",
        nodes,
        [Info("sample", FLOAT, [1, 3, "height", "width"])],
        [
            Info("image", FLOAT, ["height", "width", 3]),
            Info("pixels", UINT8, ["height", "width", 3]),
        ],
        [
            Tensor.of("batch", INT64, [1], [0]),
            Tensor.of("half", FLOAT, [], [0.5]),
            Tensor.of("zero", FLOAT, [], [0.0]),
            Tensor.of("one", FLOAT, [], [1.0]),
            Tensor.of("white", FLOAT, [], [255.0]),
        ],
    )


def pixels_graph() -> Graph:
    """A picture as the encoder's input.

    Returns:
        graph with input `pixels`, uint8 [height, width, 3]; output `sample`, float32 [1, 3,
        height, width] from -1 to 1
    """
    nodes = [
        Node("Cast", ["pixels"], ["x"], {"to": FLOAT}),
        Node("Div", ["x", "white"], ["image"]),
        Node("Mul", ["image", "two"], ["doubled"]),
        Node("Sub", ["doubled", "one"], ["moved"]),
        Node("Transpose", ["moved"], ["planes"], {"perm": [2, 0, 1]}),
        Node("Unsqueeze", ["planes", "batch"], ["sample"]),
    ]
    return _graph(
        "pixels",
        nodes,
        [Info("pixels", UINT8, ["height", "width", 3])],
        [Info("sample", FLOAT, [1, 3, "height", "width"])],
        [
            Tensor.of("batch", INT64, [1], [0]),
            Tensor.of("white", FLOAT, [], [255.0]),
            Tensor.of("two", FLOAT, [], [2.0]),
            Tensor.of("one", FLOAT, [], [1.0]),
        ],
    )
