"""How a family of vision-language models writes pictures into prompts: from config.json,
processor_config.json, preprocessor_config.json and tokenizer_config.json to a PictureRule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ...errors import InputError
from ...logic.multimodal.families.pictures import PictureRule
from ...logic.multimodal.families.videos import Family, VideoRule
from .images.vision import VisionDescription, is_lighton

__all__ = ["picture_rule"]

Fields = Mapping[str, Any]


class _Files:
    """The files of a model.

    Attributes:
        config, processor, image, tokenizer: contents of config.json, processor_config.json,
            preprocessor_config.json and tokenizer_config.json.
        vision: what is done to pictures.
    """

    def __init__(
        self,
        config: Fields,
        processor: Fields,
        image: Fields,
        tokenizer: Fields,
        vision: VisionDescription,
    ) -> None:
        self.config, self.processor, self.image = config, processor, image
        self.tokenizer, self.vision = tokenizer, vision

    def token(self, *names: str, default: str) -> str:
        """A token of the processor or of the tokenizer, by its names there."""
        special = self.tokenizer.get("extra_special_tokens")
        for source in (
            self.processor,
            self.tokenizer,
            special if isinstance(special, dict) else {},
        ):
            for name in names:
                found = source.get(name)
                found = found.get("content") if isinstance(found, dict) else found
                if isinstance(found, str) and found:
                    return found
        return default

    def number(self, name: str, *sources: Fields, default: int = 0) -> int:
        """A number of the first source that has it. Raises InputError."""
        for source in sources:
            value = source.get(name)
            if type(value) is int and 0 <= value < 1 << 24:
                return value
            if value is not None:
                raise InputError(f"{value!r} is not a number of tokens", name, "Check the file.")
        return default

    @property
    def encoder(self) -> Fields:
        """The configuration of the model's encoder of pictures."""
        found = self.config.get("vision_config")
        return found if isinstance(found, dict) else {}

    def side(self) -> tuple[int, int]:
        """Pixels of a side of a picture of the encoder, and of its patches."""
        size = self.number("image_size", self.encoder, default=0)
        return size, self.number("patch_size", self.encoder, self.processor, default=14)


def picture_rule(
    vision: VisionDescription,
    config: Fields,
    processor: Fields | None = None,
    image: Fields | None = None,
    tokenizer: Fields | None = None,
) -> PictureRule:
    """How pictures are written into the prompts of a model.

    Args:
        vision: what is done to pictures.
        config: contents of config.json.
        processor: of processor_config.json.
        image: of preprocessor_config.json.
        tokenizer: of tokenizer_config.json.

    Raises:
        InputError: a field is not valid, or the number of tokens is not known.
    """
    image = image or {}
    inner = image.get("image_processor")
    files = _Files(
        config,
        processor or {},
        inner if isinstance(inner, dict) else image,
        tokenizer or {},
        vision,
    )
    rule = _family(files)(files)
    if not rule["count"] and not rule["unit"]:
        raise InputError(
            "the number of tokens of a picture is not known",
            "processor_config.json",
            "Put the model's config.json and processor_config.json into its folder.",
        )
    return rule


def _rule(
    rule: str,
    placeholder: str,
    token: str,
    first: str = "",
    last: str = "",
    count: int = 0,
    unit: int = 0,
    extra: int = 0,
    line: str = "",
) -> PictureRule:
    return {
        "rule": rule,
        "placeholder": placeholder,
        "token": token,
        "first": first,
        "last": last,
        "count": count,
        "unit": unit,
        "extra": extra,
        "cell": ["", "", ""],
        "line": line,
        "whole": "",
        "single": "",
        "parts": ["", "", ""],
        "most": 0,
        "sizes": [],
        "ends": ["", ""],
    }


def _idefics3(files: _Files) -> PictureRule:
    """Idefics3, SmolVLM, Granite-Docling."""
    size, patch = files.side()
    scale = files.number("scale_factor", files.config, default=2)
    computed = (size // patch) ** 2 // scale**2 if size and patch and scale else 169
    count = files.number("image_seq_len", files.processor, default=computed)
    fake = files.token("fake_image_token", default="<fake_token_around_image>")
    whole = fake + files.token("global_image_token", default="<global-img>")
    token = files.token("image_token", default="<image>")
    out = _rule("tiles", token, token, last=fake, count=count, line="\n")
    out["cell"] = [f"{fake}<row_", "_col_", ">"]
    out["whole"], out["single"] = f"\n{whole}", whole
    return out


def _lfm2(files: _Files) -> PictureRule:
    rule = files.vision.rule
    token = files.token("image_token", default="<image>")
    out = _rule("tiles", token, token, count=(rule["tile"] // rule["unit"]) ** 2)
    out["unit"] = rule["unit"]
    if files.processor.get("use_image_special_tokens") is not False:
        out["first"] = files.token("image_start_token", default="<|image_start|>")
        out["last"] = files.token("image_end_token", default="<|image_end|>")
        out["cell"] = ["<|img_row_", "_col_", "|>"]
        out["whole"] = files.token("image_thumbnail_token", default="<|img_thumbnail|>")
    return out


def _qwen(files: _Files) -> PictureRule:
    """Qwen2-VL to Qwen3.5, GLM: their templates write the tokens around a picture."""
    default = "<|image|>" if files.vision.rule["frames"] else "<|image_pad|>"
    token = files.token("image_token", default=default)
    rule = files.vision.rule
    return _rule("one", token, token, unit=rule["patch"] * rule["merge"])


def _gemma3(files: _Files) -> PictureRule:
    boi = files.token("boi_token", default="<start_of_image>")
    token = files.token("image_token", default="<image_soft_token>")
    last = files.token("eoi_token", default="<end_of_image>") + "\n\n"
    count = files.number("image_seq_length", files.processor, default=0)
    count = count or files.number("mm_tokens_per_image", files.config, default=256)
    later = "gemma3n" in str(files.config.get("model_type"))
    out = _rule("one", token if later else boi, token, f"\n\n{boi}", last, count=count)
    out["parts"] = [
        "Here is the original image ",
        " and here are some crops to help you see better ",
        " ",
    ]
    return out


def _pixtral(files: _Files) -> PictureRule:
    """Pixtral, Mistral 3; LightOnOCR, whose rows have no ends."""
    if is_lighton(files.processor) or is_lighton(files.config):
        token = files.token("image_token", default="<|image_pad|>")
        patch = files.number("patch_size", files.processor, files.encoder, default=14)
        merge = files.number("spatial_merge_size", files.processor, files.config, default=2)
        return _rule("one", token, token, unit=patch * merge)
    token = files.token("image_token", default="[IMG]")
    line = files.token("image_break_token", default="[IMG_BREAK]")
    last = files.token("image_end_token", default="[IMG_END]")
    return _rule("lines", token, token, last=last, unit=files.vision.rule["patch"], line=line)


def _llava(files: _Files) -> PictureRule:
    """LLaVA, FastVLM."""
    _, patch = files.side()
    patch = files.number("patch_size", files.processor, default=patch)
    extra = files.number("num_additional_image_tokens", files.processor, default=0)
    strategy = files.processor.get("vision_feature_select_strategy")
    if strategy is None:
        strategy = files.config.get("vision_feature_select_strategy")
        extra = extra or int(strategy == "default" and "patch_size" not in files.processor)
    token = files.token("image_token", default="<image>")
    return _rule("one", token, token, unit=patch, extra=extra - (strategy == "default"))


def _onevision(files: _Files) -> PictureRule:
    token, (_, patch) = files.token("image_token", default="<image>"), files.side()
    count = files.number("num_image_tokens", files.processor, default=0)
    ratio = files.processor.get("vision_aspect_ratio") or files.config.get("vision_aspect_ratio")
    kept = str(ratio or "anyres_max_9").rpartition("_")[2]
    if files.config.get("model_type") == "llava_next":  # which keeps all
        kept = ""
    tile = files.vision.rule["tile"]
    out = _rule("anyres", token, token, count=count or (tile // patch) ** 2)
    if files.processor.get("vision_feature_select_strategy") == "default":
        out["extra"] = -1
    if files.config.get("model_type") == "llava_next":
        out["extra"] += files.number("num_additional_image_tokens", files.processor, default=0)
    out["most"] = int(kept) if kept.isdecimal() else 0
    out["sizes"] = files.vision.rule["sizes"]
    if math.isqrt(out["count"]) ** 2 != out["count"]:
        raise InputError(
            f"{out['count']} is not a square",
            "processor_config.json: num_image_tokens",
            "Check it.",
        )
    return out


def _paligemma(files: _Files) -> PictureRule:
    size, patch = files.side()
    count = files.number("image_seq_length", files.image, files.processor, default=0)
    text = files.config.get("text_config")
    within = files.number("num_image_tokens", text if isinstance(text, dict) else {}, default=0)
    token = files.token("image_token", default="<image>")
    out = _rule("one", token, token, count=count or within or (size // patch) ** 2)
    out["ends"] = [files.token("bos_token", default="<bos>"), "\n"]
    return out


def _janus(files: _Files) -> PictureRule:
    token = files.token("image_token", "image_tag", default="<image_placeholder>")
    first = files.token("boi_token", "image_start_tag", default="<begin_of_image>")
    last = files.token("eoi_token", "image_end_tag", default="<end_of_image>")
    count = files.number("num_image_tokens", files.processor, files.encoder, default=576)
    return _rule("one", token, token, first, last, count=count)


_BY_PROCESSOR: dict[str, Callable[[_Files], PictureRule]] = {
    "Idefics3ImageProcessor": _idefics3,
    "Lfm2VlImageProcessor": _lfm2,
    "Qwen2VLImageProcessor": _qwen,
    "Glm46VImageProcessor": _qwen,
    "Gemma3ImageProcessor": _gemma3,
    "PixtralImageProcessor": _pixtral,
    "LlavaOnevisionImageProcessor": _onevision,
    "JanusImageProcessor": _janus,
}
_BY_MODEL: dict[str, Callable[[_Files], PictureRule]] = {
    "paligemma": _paligemma,
    "gemma3": _gemma3,
    "gemma3n": _gemma3,
    "multi_modality": _janus,
    "janus": _janus,
}


def _family(files: _Files) -> Callable[[_Files], PictureRule]:
    """The rule of a model: by its processor of pictures, then by model_type; else LLaVA's."""
    found = _BY_PROCESSOR.get(files.vision.type)
    return found or _BY_MODEL.get(str(files.config.get("model_type"))) or _llava


def reach_of(config: Fields) -> Literal["picture", "prompt"] | None:
    """Which tokens see each other, also those that come after them: of a picture, or of the prompt;
    None: no family is known in which they do.
    """
    kind = str(config.get("model_type"))
    if kind == "paligemma":
        return "prompt"
    text = config.get("text_config")
    both = text.get("use_bidirectional_attention") if isinstance(text, Mapping) else None
    return "picture" if kind == "gemma3" or both == "vision" else None


def video_rule(
    vision: VisionDescription, config: Fields, processor: Fields, image: Fields, video: Fields
) -> VideoRule | None:
    """How a model sees videos; None: it sees none.

    Args:
        vision: what is done to pictures.
        config: contents of config.json.
        processor: of processor_config.json.
        image: of preprocessor_config.json.
        video: of video_preprocessor_config.json.

    Raises:
        InputError: a number is not valid.
    """
    family = _VIDEOS.get(str(config.get("model_type")))
    if family is not None:
        return _pairs(family, vision, config, processor, image, video)
    if config.get("model_type") != "smolvlm" or vision.rule["rule"] != "split":
        return None
    inner = processor.get("video_processor")
    fields = inner if isinstance(inner, Mapping) else video
    sampling = fields.get("video_sampling") or image.get("video_sampling")
    found = sampling if isinstance(sampling, Mapping) else {}
    size = found.get("video_size") or fields.get("size")
    longest = size.get("longest_edge") if isinstance(size, Mapping) else None
    longest = vision.rule["longest"] if longest is None else longest
    rate = found.get("fps") or fields.get("fps") or 1
    most = found.get("max_frames") or fields.get("num_frames") or 64
    for name, value in (("video_size", longest), ("fps", rate), ("max_frames", most)):
        if type(value) not in (int, float) or not 0 < value < 1 << 16:
            raise InputError(f"{value!r} is not a positive number", name, "Check the file.")
    return {
        "family": "smolvlm",
        "placeholder": "<video>",
        "longest": int(longest),
        "filter": "bicubic",
        "rate": float(rate),
        "most": int(most),
        "together": 1,
        "pixels": (1, 1),
        "interval": 0.0,
        "ends": ("", ""),
        "fewest": 1,
        "cap": 0,
    }


_VIDEOS: Mapping[str, Family] = {
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3",
    "qwen3_5": "qwen3",
    "qwen3_5_moe": "qwen3",
    "glm4v": "glm4v",
    "glm4v_moe": "glm4v",
    "glm46v": "glm46v",
    "glm_ocr": "glm46v",
}
_PIXELS = {
    "qwen2": (128 * 28 * 28, 28 * 28 * 768),
    "qwen3": (128 * 32 * 32, 32 * 32 * 768),
    "glm4v": (112 * 112, 28 * 28 * 2 * 30000),
    "glm46v": (112 * 112, 28 * 28 * 2 * 30000),
}
"""Least and most pixels of frames, where no file says it."""


def _pairs(
    family: Family,
    vision: VisionDescription,
    config: Fields,
    processor: Fields,
    image: Fields,
    video: Fields,
) -> VideoRule | None:
    """Qwen2-VL and Qwen2.5-VL, which take all frames; Qwen3-VL, Qwen3.5 and GLM. Arguments as of
    video_rule.
    """
    if vision.rule["rule"] != "smart" or vision.temporal == 1:
        return None
    inner = processor.get("video_processor")
    fields = inner if isinstance(inner, Mapping) else video or image
    found = fields.get("size")
    size = found if isinstance(found, Mapping) else {}
    limits: list[int] = []
    least, most = _PIXELS[family]
    for name, edge, usual in (
        ("min_pixels", "shortest_edge", least),
        ("max_pixels", "longest_edge", most),
    ):
        value = fields.get(name) or size.get(edge) or size.get(name) or usual
        if type(value) is not int or not 0 < value < 1 << 31:
            raise InputError(f"{value!r} is not a number of pixels", name, "Check the file.")
        limits.append(value)
    encoder = config.get("vision_config")
    rate: Any = 0
    if config.get("model_type") == "qwen2_5_vl":
        rate = (encoder if isinstance(encoder, Mapping) else {}).get("tokens_per_second", 4)
    if type(rate) not in (int, float) or not 0 <= rate < 1 << 16:
        raise InputError(f"{rate!r} is not a number of tokens", "tokens_per_second", "Check it.")
    timed, qwen = family != "qwen2", family.startswith("qwen")
    usual_token = "<|video_pad|>" if qwen else "<|video|>"
    per_second, cap = _timing(fields, vision) if timed else (0.0, 0)
    around = ("<|vision_start|>", "<|vision_end|>")
    return {
        "family": family,
        "placeholder": str(processor.get("video_token") or usual_token),
        "longest": 1,
        "filter": vision.rule["filter"],
        "rate": per_second,
        "most": _count(fields, "max_frames", 768) if timed else 1,
        "together": vision.temporal,
        "pixels": (limits[0], limits[1]),
        "interval": float(rate),
        "ends": around if qwen else ("<|begin_of_image|>", "<|end_of_image|>"),
        "fewest": _count(fields, "min_frames", 4),
        "cap": cap,
    }


def _timing(fields: Fields, vision: VisionDescription) -> tuple[float, int]:
    """Frames per second that are taken, and pixels of a frame at most (0: no limit)."""
    rate: Any = fields.get("fps") or 2
    if type(rate) not in (int, float) or not 0 < rate < 1 << 16:
        raise InputError(f"{rate!r} is not a positive number", "fps", "Check the file.")
    side = vision.rule["patch"] * vision.rule["merge"]
    capped = fields.get("cap_pixels_per_frame") is True
    return float(rate), _count(fields, "max_video_tokens", 768) * side * side if capped else 0


def _count(fields: Fields, name: str, usual: int) -> int:
    """A number of frames or tokens. Raises InputError."""
    value = fields.get(name) or usual
    if type(value) is not int or not 0 < value < 1 << 16:
        raise InputError(f"{value!r} is not a positive number", name, "Check the file.")
    return value
