"""What the configuration files of a diffusion model say about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....errors import ModelError, UnsupportedOp
from ....json_text import parse_json_object
from ....logic.diffusion.options import CONSISTENT, Facts

__all__ = [
    "FILES",
    "INPUTS",
    "KINDS",
    "PARTS",
    "SAFETY_CONFIG",
    "check_text_outputs",
    "json_of",
    "read_facts",
]

CLASSES = ("StableDiffusion", CONSISTENT)
OTHERS = ("3", "ControlNet", "Pix2Pix", "Upscale", "Depth2Img")
KINDS = (
    "Stable Diffusion 1, 2, XL, Turbo, their models of inpainting, and latent consistency models"
)
PARTS = (
    "text_encoder", "unet", "vae_decoder", "text_encoder_2", "vae_encoder", "safety_checker"
)  # fmt: skip
"""Folders of the graphs. The first three are needed."""
INPUTS = {
    "text_encoder": ("input_ids", "attention_mask"),
    "text_encoder_2": ("input_ids", "attention_mask"),
    "unet": (
        "sample",
        "timestep",
        "encoder_hidden_states",
        "timestep_cond",
        "text_embeds",
        "time_ids",
    ),  # fmt: skip
    "vae_decoder": ("latent_sample",),
    "vae_encoder": ("sample",),
    "safety_checker": ("clip_input", "images"),
}
"""{part: names of the inputs that are fed}."""
SAFETY_CONFIG = "feature_extractor/preprocessor_config.json"
FILES = (
    "model_index.json",
    "scheduler/scheduler_config.json",
    "unet/config.json",
    "vae_decoder/config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/special_tokens_map.json",
    "tokenizer/vocab.json",
    "tokenizer/merges.txt",
    "tokenizer_2/tokenizer.json",
    "tokenizer_2/tokenizer_config.json",
    "tokenizer_2/special_tokens_map.json",
    "tokenizer_2/vocab.json",
    "tokenizer_2/merges.txt",
    SAFETY_CONFIG,
)
"""Small files of a model, in its folder."""


def json_of(data: bytes | bytearray | memoryview | None, name: str) -> dict[str, Any]:
    """A configuration; {} if there is none. Infinities, which are no JSON, become null.

    Raises:
        ModelError: it is damaged.
    """
    if data is None:
        return {}
    return parse_json_object(bytes(data).replace(b"-Infinity", b"null"), name, ModelError)


def read_facts(read: Callable[[str], Any]) -> Facts:
    """What the files of a model say about it.

    Args:
        read: function(name of FILES) that returns a file's bytes, or None.

    Raises:
        ModelError: a file is damaged. UnsupportedOp: it is a model of another kind.
    """
    index, scheduler, unet, vae = (json_of(read(name), name) for name in FILES[:4])
    kind = str(index.get("_class_name", CLASSES[0] + "Pipeline"))
    if not any(name in kind for name in CLASSES) or any(name in kind for name in OTHERS):
        raise UnsupportedOp(f"its pipeline is {kind}", FILES[0], f"Supported are {KINDS}.")
    xl = "XL" in kind
    if xl and index.get("requires_aesthetics_score") is True:
        raise UnsupportedOp("it is a refiner", FILES[0], f"Supported are {KINDS}.")
    if vae.get("latents_mean") is not None or vae.get("latents_std") is not None:
        raise UnsupportedOp(
            "its latents have means and deviations", FILES[3], f"Supported are {KINDS}."
        )
    inputs = unet.get("in_channels", 4)
    channels = unet.get("out_channels", inputs)
    if type(channels) is not int or inputs not in (channels, 2 * channels + 1):
        raise UnsupportedOp(
            f"it takes {inputs} channels and makes {channels}",
            FILES[2],
            "Supported are models of as many, and of inpainting: twice as many and a mask.",
        )
    side = unet.get("sample_size", 64)
    sides = side if isinstance(side, list) and len(side) == 2 else [side, side]
    if any(type(s) is not int or s < 1 for s in sides):
        raise ModelError(f"sample_size is {side!r}", FILES[2], "Give an integer.")
    blocks = vae.get("block_out_channels")
    cond = unet.get("time_cond_proj_dim")
    return Facts(
        kind,
        {**scheduler, "clip_sample": False},
        (sides[0], sides[1]),
        channels,
        1 << (len(blocks) - 1 if isinstance(blocks, list) and len(blocks) > 1 else 3),
        _number(vae.get("scaling_factor"), 0.18215),
        _number(vae.get("shift_factor"), 0.0),
        cond if type(cond) is int else None,
        index.get("requires_safety_checker", not xl) is not False,
        inputs,
        xl,
        xl and index.get("force_zeros_for_empty_prompt", True) is not False,
    )


def check_text_outputs(names: list[str], xl: bool, part: str) -> None:
    """Raises UnsupportedOp if a text encoder lacks an output that is read.

    Args:
        names: of logic.diffusion.encoders.text_outputs.
        xl: whether the model is one of Stable Diffusion XL.
        part: name of the encoder.
    """
    if not names or xl and part == "text_encoder_2" and len(names) < 2:
        raise UnsupportedOp(
            "it lacks hidden_states.0, ... or text_embeds" if xl else "it has no output",
            f"{part}/model.onnx",
            "Export it with optimum.",
        )


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and value else default
