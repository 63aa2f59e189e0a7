"""Packages of optical character recognition with the three models of PP-OCR: where text is, whether
it is upside down, and what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedOp
from ...logic.ocr.reading import characters_of
from ..compile.model_file import MAX_TEXT
from ..declare.dtypes import FLOAT, INT64, UINT8
from ..ir import Graph, Info, Node, Tensor
from ..processors.images import Description
from ..processors.images.fixed import with_sizes
from ..processors.images.graph import image_graph

if TYPE_CHECKING:
    from ...logic.manifest.processor import OcrFields
    from ..package import Package
    from . import Request

HEIGHT = 48
WIDTHS = (320, 480, 640, 960, 1280, 1920, 2560)
"""Widths of lines that the recognizer sees: a line is followed by gray up to the next of them."""
DICTIONARY = re.compile(r".*(dict|keys|characters)[^/]*\.txt", re.IGNORECASE)
THRESH, MASK, NUMBER, SCORE = "thresh", "mask", "best_number", "best_score"


def _numbers(steps: list[dict[str, Any]], frame: bool) -> Description:
    """Blue, green and red from -1 to 1."""
    scale, bias = [2 / 255] * 3, [-1.0] * 3
    return Description("PPOCR", steps, scale, bias, flip=True, frame=frame)


def detector_input() -> Description:
    """What happens to a picture before the detector."""
    resize = {"op": "resize", "rule": "text", "filter": "linear"}
    sizes = {"size": 736, "longest": 2944, "divisor": 32}
    return _numbers([{"op": "pad", "rule": "strip"}, {**resize, **sizes}], False)


def line_input(widths: Sequence[int]) -> Description:
    """What happens to a line before the other models. widths: that they take."""
    resize = {"op": "resize", "rule": "line", "filter": "linear"}
    return _numbers(
        [
            {**resize, "height": HEIGHT, "width": widths[-1]},
            {"op": "frame", "rule": "among", "sizes": [[HEIGHT, width] for width in widths]},
        ],
        True,
    )


def line_widths(graph: Graph) -> Sequence[int]:
    """Widths of lines that a recognizer takes: the one of the graph, or WIDTHS."""
    shape = _input(graph).shape or []
    width = shape[3] if len(shape) == 4 else None
    return (width,) if type(width) is int and width > 0 else WIDTHS


DIRECTION_WIDTHS = (192,)


def with_mask(graph: Graph) -> None:
    """Gives a detector the input THRESH, [1], and the output MASK, uint8 [1, 1, height, width]: 1
    where the map is greater, or is so in one of the pixels above and to the left.
    """
    made = graph.outputs[0]
    graph.inputs.append(Info(THRESH, FLOAT, [1]))
    graph.nodes += [
        Node("Greater", [made.name, THRESH], ["mask.over"]),
        Node("Cast", ["mask.over"], ["mask.ones"], {"to": FLOAT}),
        Node(
            "MaxPool", ["mask.ones"], ["mask.wide"], {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}
        ),
        Node("Cast", ["mask.wide"], [MASK], {"to": UINT8}),
    ]
    graph.outputs = [made, Info(MASK, UINT8, made.shape)]


def with_best(graph: Graph) -> None:
    """Replaces the scores of classes by the outputs NUMBER and SCORE: the greatest of each row."""
    made = graph.outputs[0]
    axes: tuple[list[str], dict[str, Any]] = ([], {"axes": [-1]})
    if graph.opsets.get("", 18) >= 18:
        graph.constants["best.axis"] = Tensor.of("best.axis", INT64, [1], [-1])
        axes = (["best.axis"], {})
    graph.nodes += [
        Node("ArgMax", [made.name], ["best.index"], {"axis": -1, "keepdims": 0}),
        Node("Cast", ["best.index"], [NUMBER], {"to": FLOAT}),
        Node("ReduceMax", [made.name, *axes[0]], [SCORE], {**axes[1], "keepdims": 0}),
    ]
    shape = None if made.shape is None else made.shape[:-1]
    graph.outputs = [Info(NUMBER, FLOAT, shape), Info(SCORE, FLOAT, shape)]


def dictionary(
    graph: Graph, names: Iterable[str], read: Callable[[str], bytes | None]
) -> list[str]:
    """The characters of a recognizer: in its metadata, or in a text beside it.

    Args:
        graph: the recognizer.
        names: of the files beside it.
        read: a file.

    Raises:
        InputError: there is none, or it is not the model's.
    """
    shape = graph.outputs[0].shape or []
    classes = shape[-1] if shape and type(shape[-1]) is int and shape[-1] > 0 else None
    text = graph.about.custom_metadata_map.get("character")
    if text is not None:
        return characters_of(text.splitlines(), classes)
    found = sorted(name for name in names if DICTIONARY.fullmatch(name))
    data = read(found[0]) if len(found) == 1 else None
    if data is None:
        raise InputError(
            f"there are {len(found)} dictionaries: {', '.join(found)[:200]}"
            if found
            else "there is no dictionary",
            graph.name or "rec",
            "Put the model's dictionary into its folder, as dict.txt with a character per line.",
        )
    try:
        lines = data.decode().replace("\r", "").split("\n")
    except UnicodeDecodeError:
        raise InputError("it is no text in UTF-8", found[0], "Copy the file again.") from None
    return characters_of(lines[:-1] if lines[-1] == "" else lines, classes)


def _input(graph: Graph) -> Info:
    """The input of a model, which takes pictures. Raises UnsupportedOp."""
    inputs = [i for i in graph.input_names() if i.name != THRESH]
    if len(inputs) != 1 or len(inputs[0].shape or [0] * 4) != 4:
        raise UnsupportedOp(
            f"its inputs are {', '.join(i.name for i in inputs)[:200]}",
            graph.name or "model",
            "The models of PP-OCR have one, [batch, 3, height, width].",
        )
    return inputs[0]


def ocr_package(request: Request) -> Package:
    """Makes the package. Raises as compile_task."""
    if request.max_length is not None:
        raise InputError("this task has no texts", "max_length", "Leave it out.")
    programs = request.programs()

    def read(name: str) -> bytes:
        return request.files[name].read_all(MAX_TEXT)

    def add(name: str, graph: Graph, description: Description, more: dict[str, list[int]]) -> None:
        size = description.size
        frames = description.steps[-1].get("sizes")
        sizes = [tuple(s) for s in frames] if frames else [size] if size else []
        pre = image_graph(description)
        valid = {"valid": [4]} if description.frame else {}
        shapes: list[Any] = [({"pixels": [*s, 3], **valid}, None) for s in sizes]
        programs.add(f"{name}_pre", pre, shapes)
        given = _input(graph).name
        programs.add(name, graph, [({given: [1, 3, *s], **more}, None) for s in sizes])

    detector = request.read("det")
    described, _ = with_sizes(detector_input(), False, _fixed(detector), "det")
    with_mask(detector)
    add("det", detector, described, {THRESH: [1]})
    recognizer = request.read("rec")
    names = [n for n in request.files if n.endswith(".txt")]
    characters = dictionary(recognizer, names, read)
    line = line_input(line_widths(recognizer))
    with_best(recognizer)
    add("rec", recognizer, line, {})
    fields: OcrFields = {
        "det": described.to_dict(),
        "rec": line.to_dict(),
        "characters": characters,
    }
    if "cls" in request.graphs:
        directions = request.read("cls")
        with_best(directions)
        short = line_input(DIRECTION_WIDTHS)
        add("cls", directions, short, {})
        fields["cls"] = short.to_dict()
    programs.package.manifest["processor"] = {"ocr": fields}
    return programs.package


def _fixed(graph: Graph) -> tuple[int, int] | None:
    """Height and width of the pictures that a graph takes, if it takes no others."""
    shape = _input(graph).shape or []
    if len(shape) == 4 and all(type(d) is int and d > 0 for d in shape[2:]):
        return shape[2], shape[3]
    return None
