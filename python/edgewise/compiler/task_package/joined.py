"""Encoders of pictures whose tiles are joined to one grid (LLaVA-OneVision, LLaVA-NeXT): the
feature that ends a row, and the program "mix" for grids with too many features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...errors import UnsupportedOp
from ...logic.multimodal.families.joined import BLOCK
from ...model_metadata import ModelMetadata
from ..compile.programs import Programs
from ..declare.dtypes import FLOAT, INT64
from ..ir import Graph, Info, Node, Tensor

LINE = "newline"
"""Part of the name of the feature that ends a row."""


def with_line(graph: Graph, output: str) -> Graph:
    """An encoder whose features of a tile are followed by the one that ends a row, where that is
    another output, or a weight.

    Args:
        graph: the encoder, for one tile at a time.
        output: name of its features.
    """
    features = next(o for o in graph.outputs if o.name == output)
    read = {name for node in graph.nodes for name in node.inputs}  # such a weight is in already
    others = [name for name in graph.constants if name not in read and LINE in name.lower()]
    for one in graph.outputs:  # which an exporter may have named otherwise
        alone = one.shape is not None and one.shape == (features.shape or [])[-1:]
        if one is not features and (alone or LINE in one.name.lower()):
            others.insert(0, one.name)
    line = others[0] if others else None
    if line is None:
        return graph
    rank = len(features.shape or ()) or 3
    size, made = f"{LINE}/dims", f"{output}/{LINE}"
    constant = Tensor.of(size, INT64, [rank], [*[1] * (rank - 1), -1])
    nodes = [
        Node("Reshape", [line, size], [f"{LINE}/row"], name=f"{LINE}/row"),
        Node("Concat", [output, f"{LINE}/row"], [made], {"axis": rank - 2}, name=made),
    ]
    return replace(
        graph,
        nodes=[*graph.nodes, *nodes],
        outputs=[Info(made, features.dtype, None)],
        constants={**graph.constants, size: constant},
        values=None,
    )


def check_line(dims: Sequence[Any], count: int, file: str) -> None:
    """Raises UnsupportedOp for an encoder that does not give the feature that ends a row.

    Args:
        dims: of its features of a tile.
        count: of these.
        file: of the encoder.
    """
    rows = 1
    for dim in dims[:-1]:
        rows *= dim
    if rows != count + 1:
        raise UnsupportedOp(
            f"it gives {rows} features of a tile; {count} and the one that ends a row are needed",
            file,
            "Export the encoder with the model's image_newline after the features of each tile, or"
            " as an output 'image_newline'.",
        )


def add_mixing(programs: Programs, hidden: int) -> None:
    """Adds the program "mix".

    Args:
        programs: of the package.
        hidden: numbers of a feature.
    """
    graph = Graph(
        "mix",
        [
            Node("Mul", ["rows", "weights"], ["weighted"]),
            Node("ReduceSum", ["weighted", "axes"], ["features"], {"keepdims": 0}),
        ],
        [Info("rows", FLOAT, [BLOCK, 4, hidden]), Info("weights", FLOAT, [BLOCK, 4, 1])],
        [Info("features", FLOAT, [BLOCK, hidden])],
        constants={"axes": Tensor.of("axes", INT64, [1], [1])},
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )
    shapes = {"rows": [BLOCK, 4, hidden], "weights": [BLOCK, 4, 1]}
    programs.add("mix", graph, [(shapes, None)])
