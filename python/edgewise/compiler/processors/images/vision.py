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
from .types import BICUBIC, BILINEAR, CLIP, HALF, LANCZOS, defaults

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
    "Glm46VImageProcessor": defaults(
        "smart",
        {"shortest_edge": 112 * 112, "longest_edge": 28 * 28 * 15000},
        None,
        BICUBIC,
        CLIP,
        patch_size=14,
        temporal_patch_size=2,
        merge_size=2,
    ),
    "Lfm2VlImageProcessor": defaults(
        "tiles",
        {"height": 512, "width": 512},
        None,
        BILINEAR,
        HALF,
        downsample_factor=2,
        do_image_splitting=True,
        min_tiles=2,
        max_tiles=10,
        use_thumbnail=True,
        min_image_tokens=64,
        max_image_tokens=256,
        encoder_patch_size=16,
        tile_size=512,
        max_pixels_tolerance=2.0,
        do_pad=True,
        return_row_col_info=False,
        max_num_patches=None,
    ),
    "Siglip2ImageProcessor": defaults(
        "naflex", None, None, BILINEAR, HALF, patch_size=16, max_num_patches=256
    ),
    "Gemma3ImageProcessor": defaults(
        "scan",
        {"height": 224, "width": 224},
        None,
        BILINEAR,
        HALF,
        do_pan_and_scan=None,
        pan_and_scan_min_crop_size=None,
        pan_and_scan_max_num_crops=None,
        pan_and_scan_min_ratio_to_activate=None,
    ),
    "PixtralImageProcessor": defaults(
        "patches",
        {"longest_edge": 1024},
        None,
        BICUBIC,
        CLIP,
        patch_size={"height": 16, "width": 16},
        spatial_merge_size=None,
        do_pad=True,
    ),
    "LlavaOnevisionImageProcessor": defaults(
        "anyres",
        {"height": 384, "width": 384},
        None,
        BICUBIC,
        CLIP,
        image_grid_pinpoints=[[384 * r, 384 * c] for r in range(1, 7) for c in range(1, 7)],
        do_pad=True,
    ),
    "LlavaImageProcessor": defaults(
        "square", {"shortest_edge": 224}, {"height": 224, "width": 224}, BICUBIC, CLIP, do_pad=False
    ),
    "JanusImageProcessor": defaults(
        "janus",
        {"height": 384, "width": 384},
        None,
        BICUBIC,
        CLIP,
        min_size=14,
        do_pad=True,
        background_color=None,
        image_size=None,
        pad_size=None,
    ),
}
"""Processors of vision-language models alone. Others give one view of the whole picture."""

MAX_TILES = 64

SAME = {
    "Glm4vImageProcessor": "Glm46VImageProcessor",
    "GlmOcrImageProcessor": "Glm46VImageProcessor",
    "LlavaNextImageProcessor": "LlavaOnevisionImageProcessor",
    "SmolVLMImageProcessor": "Idefics3ImageProcessor",
    "VLMImageProcessor": "JanusImageProcessor",
}
"""Types with the rule and the defaults of another."""


def vision_type(config: Mapping[str, Any]) -> str:
    """The type of a configuration; see reader.type_of."""
    name = type_of(config)
    return SAME.get(name, name)


def is_lighton(config: Mapping[str, Any]) -> bool:
    """Whether a config.json or processor_config.json is LightOnOCR's. Its first models have the
    type of Mistral 3.
    """
    kinds = [config.get(name) for name in ("processor_class", "model_type")]
    classes = config.get("architectures")
    kinds += classes if isinstance(classes, list) else []
    return any("lightonocr" in str(kind).replace("_", "").lower() for kind in kinds)


def is_vision_config(config: Mapping[str, Any]) -> bool:
    """Whether a processor gives several views, or pieces of one."""
    return vision_type(config) in VISION_TYPES


def read_vision(
    config: Mapping[str, Any],
    where: str = "preprocessor_config.json",
    processor: Mapping[str, Any] | None = None,
) -> VisionDescription:
    """Reads the configuration of an image processor of a vision-language model.

    Args:
        config: contents of preprocessor_config.json, or of processor_config.json with an object
            `image_processor`. Missing fields have the defaults of transformers.
        where: name of the file, for errors.
        processor: contents of processor_config.json, of which some fields are the processor's.

    Raises:
        InputError: the type or a field is not supported, or a value is not valid.
    """
    inner = config.get("image_processor")
    if isinstance(inner, Mapping):
        config = inner
    kind = vision_type(config)
    if kind not in VISION_TYPES:
        return _plain(config, where)
    fields = read_fields(kind, VISION_TYPES[kind], config, where)
    fields["processor"] = processor or {}
    reader = ConfigReader(kind, fields, config, where)
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
    """Qwen2-VL to Qwen3.5, GLM, which counts the pixels of all frames of a patch."""
    size = r.fields["size"] or {}
    if not isinstance(size, Mapping):
        r.fail("size", f"{size!r} is not a size", "Give shortest_edge and longest_edge.")

    def pixels(field_name: str, edge: str, default: int) -> int:
        value = r.fields.get(field_name)
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
        "frames": out.temporal if out.type == "Glm46VImageProcessor" else 0,
    }


def _tiles(r: ConfigReader, out: VisionDescription) -> None:
    """LFM2-VL."""
    number = {
        name: r.integer(name, r.fields[name])
        for name in (
            *("downsample_factor", "min_tiles", "max_tiles", "min_image_tokens"),
            *("max_image_tokens", "encoder_patch_size", "tile_size"),
        )
    }
    least, most = number["min_tiles"], number["max_tiles"]
    if not least <= most <= MAX_TILES:
        r.fail("max_tiles", f"{most} is not between min_tiles and {MAX_TILES}")
    patch, factor, tile = (
        number["encoder_patch_size"],
        number["downsample_factor"],
        number["tile_size"],
    )
    unit, split = patch * factor, r.flag("do_image_splitting") and most > 1
    if tile % unit:
        r.fail("tile_size", f"it is no multiple of {unit}")
    # In the order of transformers, which decides between grids that are equally like a picture.
    found = {
        (w, h)
        for n in range(least, most + 1)
        for w in range(1, n + 1)
        for h in range(1, n + 1)
        if least <= w * h <= most
    }
    out.form = "rows"
    out.rule = {
        "rule": "tiles",
        "filter": r.filter,
        "split": split,
        "thumbnail": r.flag("use_thumbnail"),
        "tile": tile,
        "patch": patch,
        "unit": unit,
        "least": number["min_image_tokens"] * unit**2,
        "most": number["max_image_tokens"] * unit**2,
        "limit": number["max_image_tokens"] * unit**2 * r.number("max_pixels_tolerance"),
        "room": max(number["max_image_tokens"] * factor**2, (tile // patch) ** 2 if split else 0),
        "grids": sorted(found, key=lambda grid: grid[0] * grid[1]),
    }


def _naflex(r: ConfigReader, out: VisionDescription) -> None:
    """SigLIP 2 for pictures of any proportions."""
    if not r.flag("do_resize"):
        r.fail("do_resize", "pictures have no certain number of patches", "Set it to true.")
    out.form = "rows"
    out.rule = {
        "rule": "naflex",
        "filter": r.filter,
        "patch": r.integer("patch_size", r.fields["patch_size"]),
        "room": r.integer("max_num_patches", r.fields["max_num_patches"]),
    }


def _scan(r: ConfigReader, out: VisionDescription) -> None:
    """Gemma 3. Its processor has defaults for fields that are null."""
    size = r.size(square=True)
    if "height" not in size or not r.flag("do_resize"):
        r.fail("size", "pictures have no height and width", "Set do_resize and size.")
    scan = "pan_and_scan_"
    ratio = r.fields[f"{scan}min_ratio_to_activate"]
    out.rule = {
        "rule": "scan",
        "filter": r.filter,
        "height": size["height"],
        "width": size["width"],
        "scan": r.flag("do_pan_and_scan"),
        "shortest": r.integer(f"{scan}min_crop_size", r.fields[f"{scan}min_crop_size"] or 256),
        "tiles": r.integer(f"{scan}max_num_crops", r.fields[f"{scan}max_num_crops"] or 4, 64),
        "ratio": 1.2 if ratio is None else r.number(f"{scan}min_ratio_to_activate"),
    }


def _patches(r: ConfigReader, out: VisionDescription) -> None:
    """Pixtral, Mistral 3. The processor's patches are those of the encoder, merged; LightOnOCR's
    are not merged, for which the encoder leaves out what is no square of them.
    """
    processor = r.fields["processor"]
    if is_lighton(processor):
        processor = {}
    r.fields["patch_size"] = processor.get("patch_size") or r.fields["patch_size"]
    merge = processor.get("spatial_merge_size") or r.fields["spatial_merge_size"] or 1
    patch = _edge(r, "patch_size") * r.integer("spatial_merge_size", merge)
    out.rule = {
        "rule": "patches",
        "filter": r.filter,
        "resize": r.flag("do_resize"),
        "patch": patch,
        "longest": _edge(r, "size"),
    }


def _anyres(r: ConfigReader, out: VisionDescription) -> None:
    """LLaVA-OneVision, LLaVA-NeXT."""
    r.fields["size"] = r.fields["crop_size"] or r.fields["size"]
    tile, sizes = _edge(r, "size"), r.fields["image_grid_pinpoints"]
    if not isinstance(sizes, list) or not sizes:
        r.fail("image_grid_pinpoints", "it is not a list of sizes")
    pairs: list[tuple[int, int]] = []
    for size in sizes:
        if not isinstance(size, list | tuple) or len(size) != 2:
            r.fail("image_grid_pinpoints", f"{size!r} is not a height and a width")
        height, width = (r.integer("image_grid_pinpoints", side) for side in size)
        if height % tile or width % tile:
            r.fail("image_grid_pinpoints", f"{size} are no multiples of {tile}")
        pairs.append((height, width))
    out.rule = {"rule": "anyres", "filter": r.filter, "tile": tile, "sizes": pairs}


def _square(r: ConfigReader, out: VisionDescription) -> None:
    """LLaVA: a square, then as CLIP."""
    if r.flag("do_pad"):
        color = [int(x * 255) for x in r.channels("image_mean")]
        r.out.steps.append({"op": "pad", "rule": "within", "color": color})
    if r.flag("do_resize"):
        r.resize_to(r.size())
    r.crop()
    out.rule = {"rule": "whole", "steps": cast("list[Any]", r.out.steps)}


def _janus(r: ConfigReader, out: VisionDescription) -> None:
    """Janus. Files of its first form have image_size and background_color."""
    if r.fields["image_size"] is not None:
        r.fields["size"] = r.fields["image_size"]
    if r.flag("do_resize"):
        r.resize(
            "longest", size=_edge(r, "size"), least=r.integer("min_size", r.fields["min_size"])
        )
    if r.flag("do_pad"):
        color = [int(x * 255) for x in r.channels("image_mean")]
        if r.fields["background_color"] is not None:
            color = [int(x) for x in r.channels("background_color")]
        r.out.steps.append({"op": "pad", "rule": "within", "color": color})
    out.rule = {"rule": "whole", "steps": cast("list[Any]", r.out.steps)}


_RULES: dict[str, Callable[[ConfigReader, VisionDescription], None]] = {
    "split": _split,
    "smart": _smart,
    "tiles": _tiles,
    "naflex": _naflex,
    "scan": _scan,
    "patches": _patches,
    "anyres": _anyres,
    "square": _square,
    "janus": _janus,
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
