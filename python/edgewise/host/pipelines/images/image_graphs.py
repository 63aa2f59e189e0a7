"""Graphs of post-processing, with arithmetic for each pixel.

A page's worker does the same in segmentation.ts and depth.ts of web/src/worker/pipelines/images/,
since a package's plans have fixed sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.declare.dtypes import BOOL, FLOAT, INT32, INT64, UINT8
from ....compiler.ir import Graph, Info, Node, Tensor
from ....model_metadata import ModelMetadata
from ...session import InferenceSession

if TYPE_CHECKING:
    from ...engine import Engine

__all__ = ["ImageGraphs"]

# Enlarging as torch.nn.functional.interpolate with align_corners=False.
_LINEAR = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
_CUBIC = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
GROUP = 16  # classes that are enlarged at a time, which bounds memory


def _graph(
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[tuple[str, int, list[Any]]],
    outputs: Sequence[tuple[str, int, list[Any]]],
    constants: Sequence[Tensor] = (),
) -> Graph:
    return Graph(
        name,
        list(nodes),
        [Info(*i) for i in inputs],
        [Info(*o) for o in outputs],
        constants={t.name: t for t in constants},
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )


_RESIZED = [
    # The first two sizes of `x`, then the given ones.
    Node("Shape", ["x"], ["x_shape"], {"start": 0, "end": 2}),
    Node("Concat", ["x_shape", "size"], ["sizes"], {"axis": 0}),
]
_SIZE = ("size", INT64, [2])
_PLANES = ("x", FLOAT, [1, "planes", "height", "width"])


def _strongest() -> Graph:
    """The strongest class of each pixel among a group of classes and the ones before."""
    return _graph(
        "strongest",
        [
            *_RESIZED,
            Node("Resize", ["x", "", "", "sizes"], ["large"], _LINEAR),
            Node("ReduceMax", ["large", "class_axis"], ["most"], {"keepdims": 0}),
            Node("ArgMax", ["large"], ["index"], {"axis": 1, "keepdims": 0}),
            Node("Add", ["index", "first"], ["label"]),
            Node("Greater", ["most", "best"], ["better"]),
            Node("Where", ["better", "most", "best"], ["new_best"]),
            Node("Where", ["better", "label", "map"], ["new_map"]),
        ],
        [
            _PLANES,
            _SIZE,
            ("first", INT64, [1]),
            ("best", FLOAT, [1, "out_height", "out_width"]),
            ("map", INT64, [1, "out_height", "out_width"]),
        ],
        [
            ("new_best", FLOAT, [1, "out_height", "out_width"]),
            ("new_map", INT64, [1, "out_height", "out_width"]),
        ],
        [Tensor.of("class_axis", INT64, [1], [1])],
    )


def _window() -> Graph:
    """A sum of planes with those of a part of the picture added."""
    return _graph(
        "window",
        [Node("Pad", ["x", "pads"], ["large"]), Node("Add", ["total", "large"], ["new_total"])],
        [_PLANES, ("pads", INT64, [8]), ("total", FLOAT, [1, "planes", "out_height", "out_width"])],
        [("new_total", FLOAT, [1, "planes", "out_height", "out_width"])],
    )


def _mean() -> Graph:
    """Planes of means of sums of so many numbers."""
    return _graph(
        "mean",
        [Node("Div", ["x", "counts"], ["means"])],
        [_PLANES, ("counts", FLOAT, [1, 1, "height", "width"])],
        [("means", FLOAT, [1, "planes", "height", "width"])],
    )


def _class_planes() -> Graph:
    """Planes of classes that queries with masks stand for."""
    return _graph(
        "class_planes",
        [
            Node("Softmax", ["logits"], ["all"], {"axis": -1}),
            Node("Slice", ["all", "begin", "end", "axis"], ["classes"]),
            Node("Transpose", ["classes"], ["by_class"], {"perm": [0, 2, 1]}),
            Node("Sigmoid", ["masks"], ["parts"]),
            Node("Shape", ["masks"], ["sides"], {"start": 2, "end": 4}),
            Node("Shape", ["masks"], ["queries"], {"start": 0, "end": 2}),
            Node("Concat", ["queries", "rest"], ["flat"], {"axis": 0}),
            Node("Reshape", ["parts", "flat"], ["rows"]),
            Node("MatMul", ["by_class", "rows"], ["products"]),
            Node("Shape", ["by_class"], ["counts"], {"start": 0, "end": 2}),
            Node("Concat", ["counts", "sides"], ["planes_shape"], {"axis": 0}),
            Node("Reshape", ["products", "planes_shape"], ["planes"]),
        ],
        [
            ("logits", FLOAT, [1, "queries", "classes"]),
            ("masks", FLOAT, [1, "queries", "height", "width"]),
        ],
        [("planes", FLOAT, [1, "objects", "height", "width"])],
        [
            Tensor.of("begin", INT64, [1], [0]),
            Tensor.of("end", INT64, [1], [-1]),
            Tensor.of("axis", INT64, [1], [2]),
            Tensor.of("rest", INT64, [1], [-1]),
        ],
    )


def _owners() -> Graph:
    """The query with the strongest mask for each pixel, and how many pixels each one's mask has."""
    return _graph(
        "owners",
        [
            *_RESIZED,
            Node("Sigmoid", ["x"], ["parts"]),
            Node("Resize", ["parts", "", "", "sizes"], ["large"], _LINEAR),
            Node("Mul", ["large", "scores"], ["weighted"]),
            Node("ArgMax", ["weighted"], ["index"], {"axis": 1, "keepdims": 0}),
            Node("Cast", ["index"], ["map"], {"to": INT32}),
            Node("GreaterOrEqual", ["weighted", "threshold"], ["inside"]),
            Node("Cast", ["inside"], ["ones"], {"to": INT32}),
            Node("ReduceSum", ["ones", "sides"], ["areas"], {"keepdims": 0}),
        ],
        [_PLANES, _SIZE, ("scores", FLOAT, [1, "planes", 1, 1]), ("threshold", FLOAT, [1])],
        [("map", INT32, [1, "out_height", "out_width"]), ("areas", INT32, [1, "planes"])],
        [Tensor.of("sides", INT64, [2], [2, 3])],
    )


def _enlarged_owners() -> Graph:
    """As "owners" of masks that are enlarged before they are compared, by matrices of weights; the
    map has -1 where the strongest mask is too weak.
    """
    return _graph(
        "enlarged_owners",
        [
            Node("MatMul", ["rows", "x"], ["tall"]),
            Node("MatMul", ["tall", "columns"], ["large"]),
            Node("Sigmoid", ["large"], ["parts"]),
            Node("Mul", ["parts", "scores"], ["weighted"]),
            Node("ArgMax", ["weighted"], ["index"], {"axis": 0, "keepdims": 1}),
            Node("GreaterOrEqual", ["parts", "threshold"], ["inside"]),
            Node("Cast", ["inside"], ["ones"], {"to": INT32}),
            Node("ReduceSum", ["ones", "sides"], ["areas"], {"keepdims": 0}),
            Node("GatherElements", ["ones", "index"], ["sure"], {"axis": 0}),
            Node("Cast", ["index"], ["owner"], {"to": INT32}),
            Node("Equal", ["sure", "one"], ["is_sure"]),
            Node("Where", ["is_sure", "owner", "none"], ["map"]),
        ],
        [
            ("x", FLOAT, ["planes", "height", "width"]),
            ("rows", FLOAT, ["out_height", "height"]),
            ("columns", FLOAT, ["width", "out_width"]),
            ("scores", FLOAT, ["planes", 1, 1]),
            ("threshold", FLOAT, [1]),
        ],
        [
            ("map", INT32, [1, "out_height", "out_width"]),
            ("owner", INT32, [1, "out_height", "out_width"]),
            ("areas", INT32, ["planes"]),
        ],
        [
            Tensor.of("sides", INT64, [2], [1, 2]),
            Tensor.of("one", INT32, [], [1]),
            Tensor.of("none", INT32, [], [-1]),
        ],
    )


_INSTANCE = [
    # `x`: logits of a mask; `large`: 1 where the mask is, at the size of the picture
    Node("Greater", ["x", "zero"], ["above"]),
    Node("Cast", ["above"], ["ones"], {"to": FLOAT}),
    Node("Sigmoid", ["x"], ["parts"]),
    Node("Mul", ["parts", "ones"], ["within"]),
    Node("ReduceSum", ["within"], ["inside"], {"keepdims": 0}),
    Node("ReduceSum", ["ones"], ["pixels"], {"keepdims": 0}),
]
_PAINTED = [
    Node("Greater", ["large", "zero"], ["mask"]),
    Node("ReduceSum", ["large"], ["shown"], {"keepdims": 0}),
    Node("Where", ["mask", "number", "map"], ["new_map"]),
]
_MAP = [1, 1, "out_height", "out_width"]
_OF_INSTANCE = [
    ("inside", FLOAT, []),
    ("pixels", FLOAT, []),
    ("shown", FLOAT, []),
    ("new_map", INT32, _MAP),
]
_NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


def _instance() -> Graph:
    """Paints the mask of an instance over those before, and measures it."""
    return _graph(
        "instance",
        [
            *_RESIZED,
            *_INSTANCE,
            Node("Resize", ["ones", "", "", "sizes"], ["large"], _NEAREST),
            *_PAINTED,
        ],
        [_PLANES, _SIZE, ("number", INT32, []), ("map", INT32, _MAP)],
        _OF_INSTANCE,
        [Tensor.of("zero", FLOAT, [], [0.0])],
    )


def _enlarged_instance() -> Graph:
    """As "instance" of a mask that is enlarged before, by matrices of weights."""
    return _graph(
        "enlarged_instance",
        [
            Node("MatMul", ["rows", "plane"], ["tall"]),
            Node("MatMul", ["tall", "columns"], ["x"]),
            *_INSTANCE,
            Node("Identity", ["ones"], ["large"]),
            *_PAINTED,
        ],
        [
            ("plane", FLOAT, [1, 1, "height", "width"]),
            ("rows", FLOAT, ["out_height", "height"]),
            ("columns", FLOAT, ["width", "out_width"]),
            ("number", INT32, []),
            ("map", INT32, _MAP),
        ],
        _OF_INSTANCE,
        [Tensor.of("zero", FLOAT, [], [0.0])],
    )


def _enlarge() -> Graph:
    """Planes at another size."""
    return _graph(
        "enlarge",
        [*_RESIZED, Node("Resize", ["x", "", "", "sizes"], ["large"], _LINEAR)],
        [_PLANES, _SIZE],
        [("large", FLOAT, [1, "planes", "out_height", "out_width"])],
    )


def _depth() -> Graph:
    """Depth at the size of the picture, and as a picture."""
    return _graph(
        "depth",
        [
            *_RESIZED,
            Node("Resize", ["x", "", "", "sizes"], ["large"], _CUBIC),
            Node("Squeeze", ["large", "outer"], ["depth"]),
            Node("ReduceMin", ["depth"], ["least"]),
            Node("ReduceMax", ["depth"], ["most"]),
            Node("Sub", ["most", "least"], ["span"]),
            Node("Max", ["span", "tiny"], ["divisor"]),  # a flat picture is black
            Node("Sub", ["depth", "least"], ["above"]),
            Node("Div", ["above", "divisor"], ["part"]),
            Node("Mul", ["part", "white"], ["gray"]),
            Node("Cast", ["gray"], ["picture"], {"to": UINT8}),
        ],
        [_PLANES, _SIZE],
        [
            ("depth", FLOAT, ["out_height", "out_width"]),
            ("picture", UINT8, ["out_height", "out_width"]),
        ],
        [
            Tensor.of("outer", INT64, [2], [0, 1]),
            Tensor.of("tiny", FLOAT, [], [1e-38]),
            Tensor.of("white", FLOAT, [], [255.0]),
        ],
    )


def _foreground() -> Graph:
    """How much of each pixel belongs to the foreground, of a model with one output plane."""
    return _graph(
        "foreground",
        [
            *_RESIZED,
            Node("ReduceMin", ["x"], ["least"], {"keepdims": 0}),
            Node("ReduceMax", ["x"], ["most"], {"keepdims": 0}),
            Node("Less", ["least", "below"], ["under"]),
            Node("Greater", ["most", "above"], ["over"]),
            Node("Or", ["under", "over"], ["are_logits"]),
            Node("Sigmoid", ["x"], ["probabilities"]),
            Node("Where", ["are_logits", "probabilities", "x"], ["parts"]),
            Node("Resize", ["parts", "", "", "sizes"], ["large"], _LINEAR),
            Node("Mul", ["large", "white"], ["scaled"]),
            Node("Add", ["scaled", "half"], ["rounded"]),
            Node("Clip", ["rounded", "zero", "white"], ["gray"]),
            Node("Cast", ["gray"], ["picture"], {"to": UINT8}),
        ],
        [_PLANES, _SIZE],
        [("picture", UINT8, [1, "planes", "out_height", "out_width"])],
        [
            Tensor.of("below", FLOAT, [], [-1e-5]),
            Tensor.of("above", FLOAT, [], [1 + 1e-5]),
            Tensor.of("white", FLOAT, [], [255.0]),
            Tensor.of("half", FLOAT, [], [0.5]),
            Tensor.of("zero", FLOAT, [], [0.0]),
        ],
    )


def _masks() -> Graph:
    """Masks at the size of a picture, by matrices of weights; and what is measured of them."""
    return _graph(
        "masks",
        [
            Node("MatMul", ["rows", "x"], ["tall"]),
            Node("MatMul", ["tall", "columns"], ["large"]),
            Node("Greater", ["large", "threshold"], ["mask"]),
            Node("Add", ["threshold", "offset"], ["more"]),
            Node("Sub", ["threshold", "offset"], ["less"]),
            Node("Greater", ["large", "more"], ["sure"]),
            Node("Greater", ["large", "less"], ["perhaps"]),
            Node("Cast", ["sure"], ["sure_ones"], {"to": INT32}),
            Node("Cast", ["perhaps"], ["perhaps_ones"], {"to": INT32}),
            Node("ReduceSum", ["sure_ones", "sides"], ["inner"], {"keepdims": 0}),
            Node("ReduceSum", ["perhaps_ones", "sides"], ["outer"], {"keepdims": 0}),
            Node("Cast", ["mask"], ["ones"], {"to": INT32}),
            Node("ReduceMax", ["ones", "across"], ["high"], {"keepdims": 0}),
            Node("ReduceMax", ["ones", "down"], ["wide"], {"keepdims": 0}),
        ],
        [
            ("x", FLOAT, ["masks", "height", "width"]),
            ("rows", FLOAT, ["out_height", "height"]),
            ("columns", FLOAT, ["width", "out_width"]),
            ("threshold", FLOAT, [1]),
            ("offset", FLOAT, [1]),
        ],
        [
            ("mask", BOOL, ["masks", "out_height", "out_width"]),
            ("inner", INT32, ["masks"]),
            ("outer", INT32, ["masks"]),
            ("high", INT32, ["masks", "out_height"]),
            ("wide", INT32, ["masks", "out_width"]),
        ],
        [
            Tensor.of("sides", INT64, [2], [1, 2]),
            Tensor.of("across", INT64, [1], [2]),
            Tensor.of("down", INT64, [1], [1]),
        ],
    )


def _painted() -> Graph:
    """Numbers of 0 to 1 as a picture."""
    return _graph(
        "painted",
        [
            Node("Clip", ["x", "zero", "one"], ["inside"]),
            Node("Mul", ["inside", "white"], ["scaled"]),
            Node("Round", ["scaled"], ["rounded"]),
            Node("Cast", ["rounded"], ["bytes"], {"to": UINT8}),
            Node("Transpose", ["bytes"], ["picture"], {"perm": [0, 2, 3, 1]}),
        ],
        [_PLANES],
        [("picture", UINT8, [1, "height", "width", "planes"])],
        [
            Tensor.of("zero", FLOAT, [], [0.0]),
            Tensor.of("one", FLOAT, [], [1.0]),
            Tensor.of("white", FLOAT, [], [255.0]),
        ],
    )


def _cut_places() -> list[Node]:
    """Nodes for `across_one` and `down_one`: where the pixels of a part are in the picture, as
    GridSample counts: from -1 to 1, at the middles of the outermost pixels.
    """
    numbers = {f"m{i}": i for i in range(8)}
    coordinates = [
        # u and v of the pixels of the result
        Node("Gather", ["size", "at_0"], ["rows"]),
        Node("Gather", ["size", "at_1"], ["columns"]),
        Node("Range", ["from", "columns", "step"], ["x"]),
        Node("Range", ["from", "rows", "step"], ["y"]),
        Node("Cast", ["x"], ["x_numbers"], {"to": FLOAT}),
        Node("Cast", ["y"], ["y_numbers"], {"to": FLOAT}),
        Node("Cast", ["columns"], ["width"], {"to": FLOAT}),
        Node("Cast", ["rows"], ["height"], {"to": FLOAT}),
        Node("Div", ["x_numbers", "width"], ["u"]),
        Node("Div", ["y_numbers", "height"], ["v_row"]),
        Node("Unsqueeze", ["v_row", "last"], ["v"]),
        *(Node("Gather", ["matrix", f"at_{i}"], [name]) for name, i in numbers.items()),
    ]
    for name, (a, b, c) in {"across": ("m0", "m1", "m2"), "down": ("m3", "m4", "m5")}.items():
        coordinates += [
            Node("Mul", ["u", a], [f"{name}_u"]),
            Node("Mul", ["v", b], [f"{name}_v"]),
            Node("Add", [f"{name}_u", f"{name}_v"], [f"{name}_uv"]),
            Node("Add", [f"{name}_uv", c], [f"{name}_all"]),
        ]
    coordinates += [
        Node("Mul", ["u", "m6"], ["w_u"]),
        Node("Mul", ["v", "m7"], ["w_v"]),
        Node("Add", ["w_u", "w_v"], ["w_uv"]),
        Node("Add", ["w_uv", "one"], ["w"]),
    ]
    for name, axis in (("across", 1), ("down", 0)):
        coordinates += [
            Node("Div", [f"{name}_all", "w"], [f"{name}_at"]),
            Node("Shape", ["pixels"], [f"{name}_shape"], {"start": axis, "end": axis + 1}),
            Node("Cast", [f"{name}_shape"], [f"{name}_size"], {"to": FLOAT}),
            Node("Sub", [f"{name}_size", "one"], [f"{name}_most"]),
            Node("Mul", [f"{name}_at", "two"], [f"{name}_twice"]),
            Node("Div", [f"{name}_twice", f"{name}_most"], [f"{name}_part"]),
            Node("Sub", [f"{name}_part", "one"], [f"{name}_grid"]),
            Node("Unsqueeze", [f"{name}_grid", "outer"], [f"{name}_one"]),
        ]
    return coordinates


def _cut() -> Graph:
    """A part of a picture, of which `matrix` projects the unit square to the picture."""
    return _graph(
        "cut",
        [
            *_cut_places(),
            Node("Concat", ["across_one", "down_one"], ["grid"], {"axis": -1}),
            Node("Cast", ["pixels"], ["numbers"], {"to": FLOAT}),
            Node("Transpose", ["numbers"], ["planes"], {"perm": [2, 0, 1]}),
            Node("Unsqueeze", ["planes", "first"], ["batch"]),
            Node(
                "GridSample",
                ["batch", "grid"],
                ["sampled"],
                {"mode": "bicubic", "padding_mode": "border", "align_corners": 1},
            ),
            Node("Squeeze", ["sampled", "first"], ["one_picture"]),
            Node("Transpose", ["one_picture"], ["by_pixel"], {"perm": [1, 2, 0]}),
            Node("Round", ["by_pixel"], ["rounded"]),
            Node("Clip", ["rounded", "zero", "white"], ["inside"]),
            Node("Cast", ["inside"], ["picture"], {"to": UINT8}),
        ],
        [("pixels", UINT8, ["height", "width", 3]), ("matrix", FLOAT, [8]), ("size", INT64, [2])],
        [("picture", UINT8, ["out_height", "out_width", 3])],
        [
            *(Tensor.of(f"at_{i}", INT64, [], [i]) for i in range(8)),
            Tensor.of("from", INT64, [], [0]),
            Tensor.of("step", INT64, [], [1]),
            Tensor.of("last", INT64, [1], [1]),
            Tensor.of("first", INT64, [1], [0]),
            Tensor.of("outer", INT64, [2], [0, 3]),
            Tensor.of("one", FLOAT, [], [1.0]),
            Tensor.of("two", FLOAT, [], [2.0]),
            Tensor.of("zero", FLOAT, [], [0.0]),
            Tensor.of("white", FLOAT, [], [255.0]),
        ],
    )


_GRAPHS = {
    "masks": _masks,
    "cut": _cut,
    "painted": _painted,
    "strongest": _strongest,
    "class_planes": _class_planes,
    "window": _window,
    "mean": _mean,
    "owners": _owners,
    "enlarged_owners": _enlarged_owners,
    "instance": _instance,
    "enlarged_instance": _enlarged_instance,
    "enlarge": _enlarge,
    "depth": _depth,
    "foreground": _foreground,
}


class ImageGraphs:
    """Runs the graphs of post-processing, which are compiled on first use.

    Args:
        engine: the Engine to use; by default that of the process.
    """

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine
        self.sessions: dict[str, InferenceSession] = {}

    def run(self, graph: str, feeds: dict[str, Any]) -> list[Any]:
        """Runs the graph of a name; returns its outputs."""
        session = self.sessions.get(graph)
        if session is None:
            made = InferenceSession(_GRAPHS[graph](), engine=self.engine)
            session = self.sessions[graph] = made
        return session.run(None, feeds)

    def close(self) -> None:
        """Frees the memory of the graphs."""
        for session in self.sessions.values():
            session.free()
        self.sessions.clear()
