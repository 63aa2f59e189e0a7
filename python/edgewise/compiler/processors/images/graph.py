"""The graph of an image processor: from the picture, uint8 [height, width, 3], to the tensors."""

from __future__ import annotations

from ....model_metadata import ModelMetadata
from ...declare.dtypes import FLOAT, INT64, UINT8
from ...ir import Graph, Info, Node, Tensor
from .description import Description

__all__ = ["image_graph", "resampling_graph"]


def image_graph(
    description: Description, height: int | None = None, width: int | None = None
) -> Graph:
    """The graph that computes a model's inputs.

    Args:
        description: of the image processor.
        height, width: of the picture after the operations on its size; None: any.

    Returns:
        A graph with the inputs `pixels`, uint8 [height, width, 3], and, if the description has
        `frame`, `valid`, int64 [4] (top, left, bottom, right of the picture, without padding); and
        the outputs `pixel_values`, float32 [1, 3, height, width], and, if it has `mask`,
        `pixel_mask`, int64 [1, height, width].
    """
    h, w = height or "height", width or "width"
    order = [2, 1, 0] if description.flip else [0, 1, 2]
    constants = [
        Tensor.of("scale", FLOAT, [1, 3, 1, 1], [description.scale[c] for c in order]),
        Tensor.of("bias", FLOAT, [1, 3, 1, 1], [description.bias[c] for c in order]),
        Tensor.of("first", INT64, [1], [0]),
    ]
    nodes = [
        Node("Transpose", ["pixels"], ["planes"], {"perm": [2, 0, 1]}),
        Node("Unsqueeze", ["planes", "first"], ["batch"]),
    ]
    last = "batch"
    if description.flip:
        constants.append(Tensor.of("order", INT64, [3], order))
        nodes.append(Node("Gather", [last, "order"], ["flipped"], {"axis": 1}))
        last = "flipped"
    nodes += [
        Node("Cast", [last], ["numbers"], {"to": FLOAT}),
        Node("Mul", ["numbers", "scale"], ["colored" if description.gray else "scaled"]),
    ]
    if description.gray:
        _gray(nodes, constants)
    inputs = [Info("pixels", UINT8, [h, w, 3])]
    outputs = [Info("pixel_values", FLOAT, [1, 3, h, w])]
    if description.frame:
        inputs.append(Info("valid", INT64, [4]))
        nodes.append(Node("Add", ["scaled", "bias"], ["normalized"]))
        _inside(nodes, constants)
        nodes.append(Node("Cast", ["inside"], ["weight"], {"to": FLOAT}))
        nodes.append(Node("Mul", ["normalized", "weight"], ["pixel_values"]))
    else:
        nodes.append(Node("Add", ["scaled", "bias"], ["pixel_values"]))
    if description.mask:
        outputs.append(Info("pixel_mask", INT64, [1, h, w]))
        if description.frame:
            nodes.append(Node("Unsqueeze", ["inside", "first"], ["mask"]))
            nodes.append(Node("Cast", ["mask"], ["pixel_mask"], {"to": INT64}))
        else:
            _ones(nodes, constants)
    return Graph(
        "image",
        nodes,
        inputs,
        outputs,
        constants={t.name: t for t in constants},
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )


def _gray(nodes: list[Node], constants: list[Tensor]) -> None:
    """The brightness of `colored` in all channels; a picture without colors stays as it is."""
    constants += [
        Tensor.of("parts", FLOAT, [1, 3, 1, 1], [0.2989, 0.5870, 0.1140]),
        Tensor.of("channel", INT64, [1], [1]),
        Tensor.of("all", INT64, [4], [0, 1, 2, 3]),
        Tensor.of("none", FLOAT, [], [0.0]),
    ]
    nodes += [
        Node("Mul", ["colored", "parts"], ["shares"]),
        Node("ReduceSum", ["shares", "channel"], ["brightness"]),
        Node("ReduceMax", ["colored", "channel"], ["brightest"]),
        Node("ReduceMin", ["colored", "channel"], ["darkest"]),
        Node("Sub", ["brightest", "darkest"], ["spread"]),
        Node("ReduceMax", ["spread", "all"], ["color"]),
        Node("Greater", ["color", "none"], ["is_colored"]),
        Node("Where", ["is_colored", "brightness", "colored"], ["scaled"]),
    ]


def resampling_graph(half_up: bool = False) -> Graph:
    """The graph that resizes `pixels`, uint8 [height, width, 3], by matrices of weights: `rows`
    [out_height, height] and `columns` [out_width, width]. Output: uint8 [out_height, out_width, 3].

    Args:
        half_up: whether halves become the greater integer; else the even one.
    """
    rounding = [Node("Round", ["resized"], ["rounded"])]
    if half_up:
        rounding = [
            Node("Add", ["resized", "half"], ["above"]),
            Node("Floor", ["above"], ["rounded"]),
        ]
    nodes = [
        Node("Shape", ["columns"], ["old_width"], {"start": 1}),
        Node("Shape", ["rows"], ["new_height"], {"end": 1}),
        Node("Shape", ["rows"], ["old_height"], {"start": 1}),
        Node("Concat", ["old_height", "rest"], ["flat"], {"axis": 0}),
        Node("Concat", ["new_height", "old_width", "three"], ["wide"], {"axis": 0}),
        Node("Cast", ["pixels"], ["numbers"], {"to": FLOAT}),
        Node("Reshape", ["numbers", "flat"], ["lines"]),
        Node("MatMul", ["rows", "lines"], ["narrow"]),
        Node("Reshape", ["narrow", "wide"], ["pixels_by_row"]),
        Node("MatMul", ["columns", "pixels_by_row"], ["resized"]),
        *rounding,
        Node("Cast", ["rounded"], ["picture"], {"to": UINT8}),
    ]
    return Graph(
        "resampling",
        nodes,
        [
            Info("pixels", UINT8, ["height", "width", 3]),
            Info("rows", FLOAT, ["out_height", "height"]),
            Info("columns", FLOAT, ["out_width", "width"]),
        ],
        [Info("picture", UINT8, ["out_height", "out_width", 3])],
        constants={
            "rest": Tensor.of("rest", INT64, [1], [-1]),
            "half": Tensor.of("half", FLOAT, [], [0.5]),
            "three": Tensor.of("three", INT64, [1], [3]),
        },
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )


def _sides(nodes: list[Node], constants: list[Tensor]) -> None:
    """Values `rows` and `columns`: the picture's sizes, as scalars."""
    constants += [Tensor.of("one", INT64, [], [1]), Tensor.of("zero", INT64, [], [0])]
    nodes.append(Node("Shape", ["pixels"], ["shape"]))
    nodes.append(Node("Gather", ["shape", "zero"], ["rows"]))
    nodes.append(Node("Gather", ["shape", "one"], ["columns"]))


def _inside(nodes: list[Node], constants: list[Tensor]) -> None:
    """A value `inside`, bool [height, width]: which pixels are in `valid`."""
    _sides(nodes, constants)
    edges = ("top", "left", "bottom", "right")
    constants += [Tensor.of(f"{e}_at", INT64, [], [i]) for i, e in enumerate(edges)]
    constants.append(Tensor.of("last", INT64, [1], [1]))
    nodes += [Node("Gather", ["valid", f"{e}_at"], [e]) for e in edges]
    nodes += [
        Node("Range", ["zero", "rows", "one"], ["y"]),
        Node("Range", ["zero", "columns", "one"], ["x"]),
        Node("GreaterOrEqual", ["y", "top"], ["below"]),
        Node("Less", ["y", "bottom"], ["above"]),
        Node("And", ["below", "above"], ["row"]),
        Node("GreaterOrEqual", ["x", "left"], ["beyond"]),
        Node("Less", ["x", "right"], ["before"]),
        Node("And", ["beyond", "before"], ["column"]),
        Node("Unsqueeze", ["row", "last"], ["row_column"]),
        Node("And", ["row_column", "column"], ["inside"]),
    ]


def _ones(nodes: list[Node], constants: list[Tensor]) -> None:
    """pixel_mask of a picture without padding."""
    constants += [Tensor.of("from", INT64, [1], [0]), Tensor.of("to", INT64, [1], [2])]
    nodes += [
        Node("Shape", ["pixels"], ["shape"]),
        Node("Slice", ["shape", "from", "to"], ["sides"]),
        Node(
            "ConstantOfShape", ["sides"], ["ones"], {"value": Tensor.of("value", INT64, [1], [1])}
        ),
        Node("Unsqueeze", ["ones", "first"], ["pixel_mask"]),
    ]
