"""preprocessor_config.json -> Description, for the image processors of transformers.

Rules mirror the processors that use Pillow (transformers/models/*/image_processing_*.py, not those
that end in "Fast").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....errors import InputError
from ..resampling import FILTERS
from .description import Description
from .types import ALIASES, EXTRA, NEUTRAL, TYPES

__all__ = ["FILTERS", "ConfigReader", "is_image_config", "read_description", "read_fields"]

MAX_SIZE = 1 << 16
FLEXIBLE = ("Siglip2ImageProcessor",)
"""Types of vision.py that are also those of models which see a picture alone."""

Fields = dict[str, Any]


def type_of(config: Mapping[str, Any]) -> str:
    """image_processor_type of a configuration, also if it is in an older form; "" if none."""
    name = config.get("image_processor_type") or config.get("feature_extractor_type") or ""
    if not isinstance(name, str):
        raise InputError("it is not a name", "image_processor_type", "Check the file.")
    name = name.removesuffix("Fast").removesuffix("Pil")
    if name.endswith("FeatureExtractor"):
        name = name.removesuffix("FeatureExtractor") + "ImageProcessor"
    return ALIASES.get(name, name)


def is_image_config(config: Mapping[str, Any]) -> bool:
    """Whether a preprocessor_config.json is that of an image processor which can be read."""
    return type_of(config) in TYPES


def read_description(
    config: Mapping[str, Any], where: str = "preprocessor_config.json"
) -> Description:
    """Reads the configuration of an image processor.

    Args:
        config: contents of preprocessor_config.json. Missing fields have the defaults of
            transformers.
        where: name of the file, for errors.

    Raises:
        InputError: the type or a field is not supported, or a value is not valid; it names the
            field.
    """
    kind = type_of(config)
    if not kind and "image_mean" in config:
        kind = "CLIPImageProcessor"  # files of 2021 have no type
    if kind in FLEXIBLE:
        raise InputError(
            f"{kind} gives patches, whose number depends on the picture",
            f"{where}: image_processor_type",
            "Only classification and features of pictures take them, from the model's folder in "
            "Python.",
        )
    if kind not in TYPES:
        raise InputError(
            f"image processor {kind or 'of unknown type'} is not supported",
            f"{where}: image_processor_type",
            f"There are: {', '.join(TYPES)}.",
        )
    fields = read_fields(kind, TYPES[kind], config, where)
    reader = ConfigReader(kind, fields, config, where)
    _FAMILIES[fields["family"]](reader)
    reader.arithmetic()
    return reader.out


def read_fields(
    kind: str, defaults: Mapping[str, Any], config: Mapping[str, Any], where: str
) -> Fields:
    """The fields of a configuration, with defaults.

    Args:
        kind: type of the processor.
        defaults: of its fields.
        config: contents of the file.
        where: name of the file, for errors.

    Raises:
        InputError: a field is not known.
    """
    fields = {**defaults}
    for name, value in config.items():
        if name in defaults and name not in ("family", "square"):
            if value is not None or defaults[name] is None:
                fields[name] = value
        elif name in NEUTRAL and value in NEUTRAL[name]:
            continue
        elif name not in EXTRA and value is not None and value is not False:
            raise InputError(
                f"field {name!r} of {kind} is not supported"
                + (f" as {value!r}" if name in NEUTRAL else ""),
                where,
                "Remove it if it has no effect; otherwise report the model.",
            )
    return fields


class ConfigReader:
    """Reads the fields of one configuration.

    Attributes:
        fields: with defaults.
        given: as in the file.
        out: the description.
    """

    def __init__(self, kind: str, fields: Fields, given: Mapping[str, Any], where: str) -> None:
        self.fields, self.given, self.where = fields, given, where
        self.out = Description(kind)
        if given.get("apply_ocr", fields.get("apply_ocr")):
            self.fail("apply_ocr", "recognition of text is not part of it", "Set it to false.")
        if "pad_and_return_pixel_mask" in given and "do_pad" in fields and "do_pad" not in given:
            fields["do_pad"] = given["pad_and_return_pixel_mask"]
        if type(given.get("rescale")) is bool and "do_rescale" not in given:
            fields["do_rescale"] = given["rescale"]

    def fail(self, name: str, what: str, remedy: str = "Check the file.") -> None:
        """Raises InputError for a field."""
        raise InputError(what, f"{self.where}: {name}", remedy)

    def flag(self, name: str) -> bool:
        """A field that is true or false."""
        value = self.fields.get(name)
        if value == [True]:  # as NougatImageProcessorFast of transformers 4.57 saves it
            return True
        if value is not None and not isinstance(value, bool):
            self.fail(name, f"{value!r} is not true or false")
        return bool(value)

    def number(self, name: str) -> float:
        """A field that is a number."""
        value = self.fields[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(name, f"{value!r} is not a number")
        return value

    def integer(self, name: str, value: Any, largest: int = MAX_SIZE) -> int:
        """A size in pixels."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not 1 <= value <= largest:
            self.fail(name, f"{value!r} is not a size in pixels, 1 to {largest}")
        return value

    def size(self, name: str = "size", square: bool | None = None) -> dict[str, int]:
        """A field of a size in its newest form. Mirrors transformers' get_size_dict."""
        value = self.fields[name]
        square = self.fields["square"] if square is None else square
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            edge = self.integer(name, value)
            return {"height": edge, "width": edge} if square else {"shortest_edge": edge}
        if isinstance(value, (list, tuple)) and len(value) in (1, 2):
            height, width = value[0], value[-1]
            if self.fields["family"] == "document":  # lists are (width, height) there
                height, width = width, height
            value = {"height": height, "width": width}
        if not isinstance(value, Mapping):
            self.fail(name, f"{value!r} is not a size")
        size = {k: self.integer(f"{name}.{k}", v) for k, v in value.items() if v is not None}
        if set(size) not in _SIZES:
            self.fail(name, f"{', '.join(size) or 'nothing'} is not a size")
        return size

    @property
    def filter(self) -> str:
        """The filter of a resize operation."""
        value = self.fields["resample"]
        if type(value) is bool or value not in range(len(FILTERS)):
            self.fail("resample", f"{value!r} is not a filter", "It is 0 to 5, as in Pillow.")
        return FILTERS[int(value)]

    def resize(self, rule: str, **numbers: Any) -> None:
        """Adds an operation that changes the size."""
        self.out.steps.append({"op": "resize", "rule": rule, "filter": self.filter, **numbers})

    def resize_to(self, size: Mapping[str, int], **numbers: Any) -> None:
        """Adds the operation for a size in its newest form."""
        if "shortest_edge" in size:
            longest = {"longest": size["longest_edge"]} if "longest_edge" in size else {}
            self.resize("shortest", size=size["shortest_edge"], **longest, **numbers)
        elif "height" in size:
            self.resize("exact", height=size["height"], width=size["width"])
        elif "max_height" in size:
            self.resize("fit", height=size["max_height"], width=size["max_width"])
        else:
            self.resize("longest", size=size["longest_edge"])

    def crop(self) -> None:
        """Adds the crop of crop_size, if there is one."""
        if self.flag("do_center_crop"):
            size = self.size("crop_size", True)
            if "height" not in size:
                self.fail("crop_size", "it has no height and width")
            self.out.steps.append({"op": "crop", "rule": "center", **size})

    def frame(self) -> None:
        """Adds padding to pad_size that is zero after normalization, and the pixel_mask."""
        if not self.flag("do_pad"):
            return
        self.out.mask = self.fields["family"] != "yolos"
        if self.fields.get("pad_size") is not None:
            size = self.size("pad_size", True)
            self.out.frame = True
            self.out.steps.append({"op": "frame", "rule": "corner", **size})

    def arithmetic(self) -> None:
        """Rescaling and normalization as one scale and bias of each channel."""
        out = self.out
        factor, offset = 1.0, 0.0
        if self.flag("do_rescale"):
            factor = self.number("rescale_factor")
            offset = -1.0 if self.flag("rescale_offset") else 0.0
        mean, std = [0.0] * 3, [1.0] * 3
        if self.flag("do_normalize"):
            mean, std = self.channels("image_mean"), self.channels("image_std")
        again = self.channels("image_std") if self.flag("include_top") else [1.0] * 3
        out.scale = [factor / s / t for s, t in zip(std, again)]
        out.bias = [(offset - m) / s / t for m, s, t in zip(mean, std, again)]
        out.flip = self.flag("do_flip_channel_order") or self.flag("flip_channel_order")

    def channels(self, name: str) -> list[float]:
        """A field with a number per channel, or one for all."""
        value = self.fields[name]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = [value] * 3
        if (
            not isinstance(value, (list, tuple))
            or len(value) != 3
            or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in value)
        ):
            self.fail(name, "it is not one number for each of 3 channels")
        if name == "image_std" and 0 in value:
            self.fail(name, "it is 0")
        return [float(x) for x in value]


_SIZES: list[set[str]] = [
    {"shortest_edge"},
    {"longest_edge"},
    {"shortest_edge", "longest_edge"},
    {"height", "width"},
    {"max_height", "max_width"},
]


def _plain(r: ConfigReader) -> None:
    """Resize, then crop."""
    if r.flag("do_resize"):
        divisor = r.fields.get("size_divisor")
        size = r.size()
        extra = {"divisor": r.integer("size_divisor", divisor)} if divisor is not None else {}
        r.resize_to(size, **(extra if "shortest_edge" in size else {}))
    r.crop()


def _levit(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        size = r.size()
        if "shortest_edge" in size:
            size = {"shortest_edge": int(256 / 224 * size["shortest_edge"])}
        r.resize_to(size)
    r.crop()


def _poolformer(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        size, part = r.size(), r.fields["crop_pct"]
        if part is not None:
            size = {k: int(v / r.number("crop_pct")) for k, v in size.items()}
            if "height" in size and size["height"] == size["width"]:
                size = {"shortest_edge": size["height"]}
        r.resize_to(size)
    r.crop()


def _convnext(r: ConfigReader) -> None:
    if not r.flag("do_resize"):
        return
    size = r.size()
    if "shortest_edge" not in size:
        return r.resize_to(size)
    edge = size["shortest_edge"]
    if edge < 384:
        r.resize("shortest", size=int(edge / r.number("crop_pct")))
        r.out.steps.append({"op": "crop", "rule": "center", "height": edge, "width": edge})
    else:
        r.resize("exact", height=edge, width=edge)
    return None


def _perceiver(r: ConfigReader) -> None:
    size = r.size()
    if "height" not in size:
        r.fail("size", "it has no height and width")
    if r.flag("do_center_crop"):
        crop = r.size("crop_size", True)
        height, width = (size[k] / crop[k] for k in ("height", "width"))
        r.out.steps.append({"op": "crop", "rule": "fraction", "height": height, "width": width})
    if r.flag("do_resize"):
        r.resize_to(size)


def _detr(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        _resize_detr(r, {"divisor": 16} if r.fields["family"] == "yolos" else {})
    r.frame()


def _resize_detr(r: ConfigReader, divisor: dict[str, int]) -> None:
    size = r.size()
    if "shortest_edge" in size:
        longest = size.get("longest_edge", r.given.get("max_size", 1333))
        longest = None if longest is None else r.integer("max_size", longest)
        r.resize("aspect", size=size["shortest_edge"], longest=longest, **divisor)
    else:
        r.resize_to(size)


def _maskformer(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        size = r.size()
        divisor = r.fields["size_divisor"]
        if "shortest_edge" in size:
            size.setdefault("longest_edge", r.integer("max_size", r.given.get("max_size", 1333)))
            extra = {} if not divisor else {"divisor": r.integer("size_divisor", divisor)}
            r.resize_to(size, **extra)
        else:
            up = divisor or 1
            r.resize_to({k: -(-v // up) * up for k, v in size.items()})
    r.frame()


def _rf_detr(r: ConfigReader) -> None:
    """As DETR, but each pixel is between its four neighbours, however small the result is."""
    if r.filter != "bilinear":
        r.fail("resample", "this processor resizes bilinearly", "Set it to 2.")
    _detr(r)
    for step in r.out.steps:
        if step["op"] == "resize":
            step["filter"] = "linear"


def _sam(r: ConfigReader) -> None:
    """The longer side gets a length, and the rest of a square is padding."""
    if r.flag("do_resize"):
        size = r.size()
        if "longest_edge" not in size:
            r.fail("size", "it has no longest_edge")
        r.resize("longest_half_up", size=size["longest_edge"])
    r.frame()
    r.out.mask = False


def _owlv2(r: ConfigReader) -> None:
    """A square, whose rest is black, is blurred as far as it is reduced."""
    if r.flag("do_pad"):
        r.out.steps.append({"op": "pad", "rule": "square", "color": [0, 0, 0]})
    if r.flag("do_resize"):
        size = r.size()
        if "height" not in size:
            r.fail("size", "it has no height and width")
        r.out.steps.append({"op": "resize", "rule": "exact", "filter": "gaussian", **size})


def _eomt(r: ConfigReader) -> None:
    """The shorter side gets a length. The picture is split into squares along the longer side, or
    the rest of a square is padding.
    """
    size = r.size()
    if "shortest_edge" not in size:
        r.fail("size", "it has no shortest_edge")
    edge = size["shortest_edge"]
    if r.flag("do_split_image"):
        if "longest_edge" in size or not r.flag("do_resize"):
            r.fail(
                "do_split_image",
                "only pictures whose shorter side has the length of a window are split",
                "Set do_resize to true and size.longest_edge to null.",
            )
        r.resize("shortest", size=edge)
        r.out.steps.append({"op": "crop", "rule": "split", "height": edge, "width": edge})
        return
    if r.flag("do_resize") and "longest_edge" in size:
        r.resize("aspect", size=edge, longest=size["longest_edge"])
    elif r.flag("do_resize"):
        r.resize("shortest", size=edge)
    if r.flag("do_pad"):
        longest = size.get("longest_edge", edge)
        sides = {"height": edge, "width": longest}
        r.out.steps.append({"op": "pad", "rule": "corner", "color": [0, 0, 0], **sides})


def _dpt(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        size = r.size(square=True)
        if "height" not in size:
            r.fail("size", "it has no height and width")
        multiple = r.integer("ensure_multiple_of", r.fields["ensure_multiple_of"])
        r.resize("multiple", **size, keep=r.flag("keep_aspect_ratio"), multiple=multiple)
    if r.flag("do_pad"):
        divisor = r.integer("size_divisor", r.fields["size_divisor"])
        r.out.steps.append({"op": "frame", "rule": "divisor", "divisor": divisor})
        r.out.frame = True


def _floor(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        r.resize("floor", divisor=r.integer("size_divisor", r.fields["size_divisor"]))


def _symmetric(r: ConfigReader) -> None:
    if r.flag("do_pad"):
        divisor = r.integer("size_divisor", r.fields["pad_size"] or r.fields["size_divisor"])
        step = {"op": "pad", "rule": "symmetric", "divisor": divisor, "color": "symmetric"}
        r.out.steps.append(step)


def _vilt(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        size = r.size(square=False)
        if "shortest_edge" not in size:
            r.fail("size", "it has no shortest_edge")
        edge = size["shortest_edge"]
        divisor = r.integer("size_divisor", r.fields["size_divisor"])
        r.resize("bounded", size=edge, longest=int(1333 / 800 * edge), divisor=divisor)
    r.out.mask = r.flag("do_pad")


def _vitpose(r: ConfigReader) -> None:
    """A box of the picture, with a margin and in the proportions of the result."""
    if not r.flag("do_affine_transform"):
        return
    size = r.size()
    if "height" not in size:
        r.fail("size", "it has no height and width")
    factor = r.number("normalize_factor")
    if not 1e-6 < factor < 1e6:
        r.fail("normalize_factor", f"{factor!r} is no factor")
    r.out.steps.append({"op": "warp", "rule": "box", **size, "factor": float(factor)})


def _superpoint(r: ConfigReader) -> None:
    if r.flag("do_resize"):
        r.resize_to(r.size())
    r.out.gray = r.flag("do_grayscale")


def _document(r: ConfigReader) -> None:
    size = r.size(square=True)
    if "height" not in size:
        r.fail("size", "it has no height and width")
    if r.flag("do_crop_margin"):
        r.fail("do_crop_margin", "cropping of margins is not supported", "Crop them, set it false.")
    if r.flag("do_align_long_axis"):
        r.out.steps.append({"op": "rotate", **size})
    if r.flag("do_resize"):
        r.resize("shortest", size=min(size.values()))
    if r.flag("do_thumbnail"):
        # transformers does not pass `resample` on to this second step, whose default is bicubic.
        r.out.steps.append({"op": "resize", "rule": "thumbnail", "filter": "bicubic", **size})
    if r.flag("do_pad"):
        r.out.steps.append({"op": "pad", "rule": "middle", **size, "color": [0, 0, 0]})


def _letterbox(r: ConfigReader) -> None:
    size = r.size(square=True)
    r.resize("letterbox", **size)
    r.out.steps.append({"op": "pad", "rule": "letterbox", **size, "color": [114, 114, 114]})


_FAMILIES: dict[str, Callable[[ConfigReader], None]] = {
    "plain": _plain,
    "efficientnet": _plain,
    "levit": _levit,
    "poolformer": _poolformer,
    "convnext": _convnext,
    "perceiver": _perceiver,
    "detr": _detr,
    "yolos": _detr,
    "maskformer": _maskformer,
    "rf_detr": _rf_detr,
    "sam": _sam,
    "owlv2": _owlv2,
    "eomt": _eomt,
    "dpt": _dpt,
    "floor": _floor,
    "symmetric": _symmetric,
    "vilt": _vilt,
    "document": _document,
    "letterbox": _letterbox,
    "vitpose": _vitpose,
    "superpoint": _superpoint,
}
