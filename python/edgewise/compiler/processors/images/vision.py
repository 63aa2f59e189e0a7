"""preprocessor_config.json -> VisionDescription: what a vision-language model sees of a picture.

Rules mirror the processors of transformers/models/*/image_processing_*.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from ....errors import InputError
from ....logic.images.views import Form, ViewRule
from ....logic.manifest.processor import VisionFields
from ....model_metadata import ModelMetadata
from ...declare.dtypes import FLOAT, INT64, UINT8
from ...ir import Graph, Info, Node, Tensor
from .reader import ConfigReader, read_description, read_fields, type_of
from .types import BICUBIC, CLIP, HALF, LANCZOS, defaults

__all__ = ["VISION_TYPES", "VisionDescription", "is_vision_config", "read_vision", "vision_graph"]


@dataclass
class VisionDescription:
    """What a processor does to a picture for a vision-language model.

    The views that `rule` chooses are cut into pieces, and a graph computes `x * scale + bias` of
    all of them in float32.

    Attributes:
        type: image_processor_type, without "Fast".
        rule: see logic.images.views.
        form: "planes": pieces are [3, height, width]; "patches": each is a row of numbers, channel
            by channel; "rows": pixel by pixel.
        scale, bias: of each channel.
        temporal: how often a patch is repeated in its row.
    """

    type: str
    rule: ViewRule
    form: Form = "planes"
    scale: list[float] = field(default_factory=lambda: [1.0, 1.0, 1.0])
    bias: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    temporal: int = 1

    def to_dict(self) -> VisionFields:
        """As JSON."""
        return cast("VisionFields", asdict(self))

    @staticmethod
    def from_dict(value: VisionFields) -> VisionDescription:
        """A description that `to_dict` returned."""
        return VisionDescription(**cast("dict[str, Any]", value))


VISION_TYPES: dict[str, dict[str, Any]] = {
    "Idefics3ImageProcessor": defaults(
        "split",
        {"longest_edge": 4 * 364},
        None,
        LANCZOS,
        HALF,
        max_image_size={"longest_edge": 364},
        do_image_splitting=True,
        do_pad=True,
        return_row_col_info=False,
    ),
    "Qwen2VLImageProcessor": defaults(
        "smart",
        None,
        None,
        BICUBIC,
        CLIP,
        min_pixels=None,
        max_pixels=None,
        patch_size=14,
        temporal_patch_size=2,
        merge_size=2,
    ),
}
"""Processors of vision-language models alone. Others give one view of the whole picture."""

SAME = {"SmolVLMImageProcessor": "Idefics3ImageProcessor"}
"""Types with the rule and the defaults of another."""


def vision_type(config: Mapping[str, Any]) -> str:
    """The type of a configuration; see reader.type_of."""
    name = type_of(config)
    return SAME.get(name, name)


def is_vision_config(config: Mapping[str, Any]) -> bool:
    """Whether a processor gives several views, or pieces of one."""
    return vision_type(config) in VISION_TYPES


def read_vision(
    config: Mapping[str, Any], where: str = "preprocessor_config.json"
) -> VisionDescription:
    """Reads the configuration of an image processor of a vision-language model.

    Args:
        config: contents of preprocessor_config.json, or of processor_config.json with an object
            `image_processor`. Missing fields have the defaults of transformers.
        where: name of the file, for errors.

    Raises:
        InputError: the type or a field is not supported, or a value is not valid.
    """
    inner = config.get("image_processor")
    if isinstance(inner, Mapping):
        config = inner
    kind = vision_type(config)
    if kind not in VISION_TYPES:
        return _plain(config, where)
    reader = ConfigReader(kind, read_fields(kind, VISION_TYPES[kind], config, where), config, where)
    reader.arithmetic()
    out = VisionDescription(kind, {}, scale=reader.out.scale, bias=reader.out.bias)
    _RULES[VISION_TYPES[kind]["family"]](reader, out)
    return out


def _plain(config: Mapping[str, Any], where: str) -> VisionDescription:
    """One view of the whole picture."""
    found = read_description(config, where)
    if found.frame or found.mask or found.flip:
        raise InputError(
            f"{found.type} is not a processor of vision-language models",
            f"{where}: image_processor_type",
            "Take the one of the model.",
        )
    rule: ViewRule = {"rule": "whole", "steps": cast("list[Any]", found.steps)}
    return VisionDescription(found.type, rule, scale=found.scale, bias=found.bias)


def _edge(r: ConfigReader, name: str) -> int:
    """The field of a size with longest_edge, or of a square."""
    size = r.size(name, True)
    sides = set(size.values())
    if len(sides) != 1:
        r.fail(name, "it is not the size of a square", "Give longest_edge.")
    return sides.pop()


def _split(r: ConfigReader, out: VisionDescription) -> None:
    """Idefics3, SmolVLM."""
    out.rule = {
        "rule": "split",
        "filter": r.filter,
        "resize": r.flag("do_resize"),
        "split": r.flag("do_image_splitting"),
        "longest": _edge(r, "size"),
        "tile": _edge(r, "max_image_size"),
    }


def _smart(r: ConfigReader, out: VisionDescription) -> None:
    """Qwen2-VL to Qwen3.5."""
    size = r.fields["size"] or {}
    if not isinstance(size, Mapping):
        r.fail("size", f"{size!r} is not a size", "Give shortest_edge and longest_edge.")

    def pixels(field_name: str, edge: str, default: int) -> int:
        value = r.fields[field_name]
        for other in (size.get(edge), size.get(field_name), default):
            value = other if value is None else value
        return r.integer(field_name, value, 1 << 31)

    out.form, out.temporal = (
        "patches",
        r.integer("temporal_patch_size", r.fields["temporal_patch_size"]),
    )
    out.rule = {
        "rule": "smart",
        "filter": r.filter,
        "resize": r.flag("do_resize"),
        "patch": r.integer("patch_size", r.fields["patch_size"]),
        "merge": r.integer("merge_size", r.fields["merge_size"]),
        "least": pixels("min_pixels", "shortest_edge", 56 * 56),
        "most": pixels("max_pixels", "longest_edge", 28 * 28 * 1280),
    }


_RULES: dict[str, Callable[[ConfigReader, VisionDescription], None]] = {
    "split": _split,
    "smart": _smart,
}


def vision_graph(description: VisionDescription) -> Graph:
    """The graph that computes a model's `pixel_values`.

    Returns:
        A graph with the input `pixels`, uint8 [pieces, height, width, 3], and the output
        `pixel_values`, float32 [pieces, 3, height, width]; of other forms than "planes" a row of
        numbers for each piece.
    """
    # Planes are transposed while they are bytes.
    planes, times = description.form != "rows", description.temporal
    shape = [1, 3, 1, 1] if planes else [1, 1, 1, 3]
    constants = [
        Tensor.of("scale", FLOAT, shape, description.scale),
        Tensor.of("bias", FLOAT, shape, description.bias),
    ]
    nodes = [Node("Transpose", ["pixels"], ["moved"], {"perm": [0, 3, 1, 2]})] if planes else []
    nodes += [
        Node("Cast", ["moved" if planes else "pixels"], ["numbers"], {"to": FLOAT}),
        Node("Mul", ["numbers", "scale"], ["scaled"]),
    ]
    output = Info("pixel_values", FLOAT, ["pieces", 3, "height", "width"])
    if description.form == "planes":
        nodes.append(Node("Add", ["scaled", "bias"], ["pixel_values"]))
    else:
        nodes.append(Node("Add", ["scaled", "bias"], ["last"]))
        last = "last"
        if times > 1:
            constants.append(Tensor.of("axis", INT64, [1], [2]))
            constants.append(Tensor.of("times", INT64, [5], [1, 1, times, 1, 1]))
            nodes.append(Node("Unsqueeze", ["last", "axis"], ["frame"]))
            nodes.append(Node("Tile", ["frame", "times"], ["frames"]))
            last = "frames"
        nodes.append(Node("Flatten", [last], ["pixel_values"], {"axis": 1}))
        output = Info("pixel_values", FLOAT, ["pieces", "numbers"])
    return Graph(
        "vision",
        nodes,
        [Info("pixels", UINT8, ["pieces", "height", "width", 3])],
        [output],
        constants={t.name: t for t in constants},
        opsets={"": 18},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )
