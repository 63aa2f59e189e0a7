"""The image processors of transformers: the defaults of their fields, and the rule of each."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ALIASES",
    "BICUBIC",
    "BILINEAR",
    "CLIP",
    "EXTRA",
    "HALF",
    "IMAGENET",
    "LANCZOS",
    "NEUTRAL",
    "TYPES",
    "defaults",
]

HALF = ([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
NEAREST, LANCZOS, BILINEAR, BICUBIC = 0, 1, 2, 3  # PIL.Image.Resampling


def defaults(
    family: str,
    size: Any,
    crop: Any,
    resample: int,
    normalization: tuple[list[float], list[float]] | None,
    square: bool | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Defaults of one type.

    Args:
        family: the rule in reader.py.
        size: as the field; None: no size.
        crop: crop_size as the field; None: no crop.
        resample: filter.
        normalization: (mean, std); None: none.
        square: whether an integer as size means a square; default: whether `size` has a height.
        others: defaults of other fields.
    """
    mean, std = normalization or IMAGENET
    return {
        "family": family,
        "square": ("height" in (size or {})) if square is None else square,
        "size": size,
        "do_resize": True,
        "resample": resample,
        "do_center_crop": crop is not None,
        "crop_size": crop,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": normalization is not None,
        "image_mean": mean,
        "image_std": std,
        **others,
    }


def _hw(height: int, width: int | None = None) -> dict[str, int]:
    return {"height": height, "width": width or height}


def _edge(size: int) -> dict[str, int]:
    return {"shortest_edge": size}


_DETR_SIZE = {"shortest_edge": 800, "longest_edge": 1333}


def _detr(family: str = "detr") -> dict[str, Any]:
    return defaults(family, _DETR_SIZE, None, BILINEAR, IMAGENET, do_pad=True, pad_size=None)


def _maskformer() -> dict[str, Any]:
    return defaults(
        "maskformer",
        _DETR_SIZE,
        None,
        BILINEAR,
        IMAGENET,
        size_divisor=32,
        do_pad=True,
        pad_size=None,
    )


def _document(
    size: dict[str, int], normalization: tuple[list[float], list[float]]
) -> dict[str, Any]:
    return defaults(
        "document",
        size,
        None,
        BILINEAR,
        normalization,
        do_thumbnail=True,
        do_align_long_axis=False,
        do_pad=True,
        do_crop_margin=False,
    )


def _dpt() -> dict[str, Any]:
    return defaults(
        "dpt",
        _hw(384),
        None,
        BICUBIC,
        HALF,
        keep_aspect_ratio=False,
        ensure_multiple_of=1,
        do_pad=False,
        size_divisor=None,
    )


TYPES: dict[str, dict[str, Any]] = {
    "BeitImageProcessor": defaults("plain", _hw(256), _hw(224), BICUBIC, HALF),
    "BitImageProcessor": defaults("plain", _edge(224), _hw(224), BICUBIC, CLIP),
    "BlipImageProcessor": defaults("plain", _hw(384), None, BICUBIC, CLIP),
    "ChineseCLIPImageProcessor": defaults("plain", _edge(224), _hw(224), BICUBIC, CLIP),
    "CLIPImageProcessor": defaults("plain", _edge(224), _hw(224), BICUBIC, CLIP),
    "ConditionalDetrImageProcessor": _detr(),
    "ConvNextImageProcessor": defaults(
        "convnext", _edge(384), None, BILINEAR, HALF, crop_pct=224 / 256
    ),
    "DeformableDetrImageProcessor": _detr(),
    "DeiTImageProcessor": defaults("plain", _hw(256), _hw(224), BICUBIC, HALF),
    "DetrImageProcessor": _detr(),
    "DonutImageProcessor": _document(_hw(2560, 1920), HALF),
    "DPTImageProcessor": _dpt(),
    "DINOv3ViTImageProcessor": defaults("plain", _hw(224), None, BILINEAR, IMAGENET),
    "EfficientNetImageProcessor": defaults(
        "efficientnet", _hw(346), _hw(289), NEAREST, HALF, rescale_offset=False, include_top=True
    )
    | {"do_center_crop": False},
    "EomtImageProcessor": defaults(
        "eomt",
        {"shortest_edge": 640, "longest_edge": 640},
        None,
        BILINEAR,
        IMAGENET,
        do_split_image=False,
        do_pad=False,
        pad_size=None,
    ),
    "FlavaImageProcessor": defaults("plain", _hw(224), _hw(224), BICUBIC, CLIP),
    "GLPNImageProcessor": defaults(
        "floor", None, None, BILINEAR, None, size_divisor=32, rescale_factor=1 / 255
    ),
    "GroundingDinoImageProcessor": _detr(),
    "LayoutLMv3ImageProcessor": defaults("plain", _hw(224), None, BILINEAR, HALF, apply_ocr=True),
    "LevitImageProcessor": defaults("levit", _edge(224), _hw(224), BICUBIC, IMAGENET),
    "Mask2FormerImageProcessor": _maskformer(),
    "MaskFormerImageProcessor": _maskformer(),
    "MobileNetV1ImageProcessor": defaults("plain", _edge(256), _hw(224), BILINEAR, HALF),
    "MobileNetV2ImageProcessor": defaults("plain", _edge(256), _hw(224), BILINEAR, HALF),
    "MobileViTImageProcessor": defaults(
        "plain", _edge(224), _hw(256), BILINEAR, None, do_flip_channel_order=True
    ),
    "NougatImageProcessor": _document(_hw(896, 672), IMAGENET) | {"do_crop_margin": True},
    "Owlv2ImageProcessor": defaults("owlv2", _hw(960), None, BILINEAR, CLIP, do_pad=True),
    "OwlViTImageProcessor": defaults("plain", _hw(768), _hw(768), BICUBIC, CLIP)
    | {"do_center_crop": False},
    "PerceiverImageProcessor": defaults("perceiver", _hw(224), _hw(256), BICUBIC, IMAGENET),
    "PoolFormerImageProcessor": defaults(
        "poolformer", _edge(224), _hw(224), BICUBIC, IMAGENET, crop_pct=0.9
    ),
    "PvtImageProcessor": defaults("plain", _hw(224), None, BILINEAR, IMAGENET),
    "RfDetrImageProcessor": _detr("rf_detr"),
    "RTDetrImageProcessor": defaults(
        "detr", _hw(640), None, BILINEAR, IMAGENET, False, do_pad=False, pad_size=None
    )
    | {"do_normalize": False},
    "Sam2ImageProcessor": defaults("plain", _hw(1024), None, BILINEAR, IMAGENET),
    "Sam3ImageProcessor": defaults("plain", _hw(1008), None, BILINEAR, HALF),
    "SamImageProcessor": defaults(
        "sam", {"longest_edge": 1024}, None, BILINEAR, IMAGENET, do_pad=True, pad_size=_hw(1024)
    ),
    "SegformerImageProcessor": defaults("plain", _hw(512), None, BILINEAR, IMAGENET),
    "SiglipImageProcessor": defaults("plain", _hw(224), None, BICUBIC, HALF),
    "SuperPointImageProcessor": defaults(
        "superpoint", _hw(480, 640), None, BILINEAR, None, do_grayscale=False
    ),
    "Swin2SRImageProcessor": defaults(
        "symmetric", None, None, BICUBIC, None, do_pad=True, size_divisor=8, pad_size=None
    ),
    "TextNetImageProcessor": defaults(
        "plain", _edge(640), _hw(224), BILINEAR, IMAGENET, size_divisor=32
    )
    | {"do_center_crop": False},
    "ViltImageProcessor": defaults(
        "vilt", _edge(384), None, BICUBIC, HALF, size_divisor=32, do_pad=True
    ),
    "ViTImageProcessor": defaults("plain", _hw(224), None, BILINEAR, HALF),
    "VitPoseImageProcessor": defaults(
        "vitpose",
        _hw(256, 192),
        None,
        BILINEAR,
        IMAGENET,
        do_affine_transform=True,
        normalize_factor=200.0,
    ),
    "YolosImageProcessor": _detr("yolos"),
    # Not in transformers: ultralytics' models are exported without a configuration.
    "YoloImageProcessor": defaults("letterbox", _hw(640), None, BILINEAR, None),
}
ALIASES = {
    "EfficientFormerImageProcessor": "BitImageProcessor",
    "ViTHybridImageProcessor": "BitImageProcessor",
}
"""Types with the rules and the defaults of another."""

_ANNOTATIONS = {
    "do_reduce_labels",
    "reduce_labels",
    "format",
    "do_convert_annotations",
    "ignore_index",
    "num_labels",
    "num_text",
    "class_info_file",
    "repo_path",
    "metadata",
    "return_segmentation_masks",
    "mask_size",
    "mask_pad_size",
    "masks_path",
}
_FLAVA = {
    *(f"codebook_{name}" for name in ("size", "crop_size", "resample", "rescale_factor")),
    *(f"codebook_do_{name}" for name in ("resize", "center_crop", "rescale", "normalize")),
    *(f"codebook_{name}" for name in ("do_map_pixels", "image_mean", "image_std")),
    "input_size_patches",
    "total_mask_patches",
    "mask_group_min_patches",
    "mask_group_max_patches",
    "mask_group_min_aspect_ratio",
    "mask_group_max_aspect_ratio",
}
EXTRA = {
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "_valid_processor_keys",
    "_processor_class",
    "auto_map",
    "model_input_names",
    "return_tensors",
    "do_convert_rgb",  # pictures are always converted
    "default_to_square",
    "image_seq_length",
    "image_seq_len",
    "num_additional_image_tokens",
    "vision_feature_select_strategy",
    "video_sampling",  # SmolVLM 2
    "task_prompts_without_inputs",  # Florence-2
    "task_prompts_with_input",
    "tasks_answer_post_processing_type",
    "image_token_index",
    "num_image_tokens",
    "ocr_lang",
    "tesseract_config",
    "disable_grouping",
    "device",
    "padding_value",
    "max_size",
    "pad_and_return_pixel_mask",
    "rescale",
    *_ANNOTATIONS,
    *_FLAVA,
}
"""Fields that do not change what happens to a picture, and old names that the reader replaces."""

NEUTRAL = {
    "data_format": ("channels_first",),  # the layout of what models take
    "input_data_format": ("channels_first", "channels_last", "none"),  # of arrays, not of pictures
}
"""Values of further fields that do not change anything, as *Fast processors save them."""
