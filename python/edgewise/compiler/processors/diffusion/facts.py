"""What the configuration files of a diffusion model say about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....errors import ModelError, UnsupportedOp
from ....json_text import parse_json_object
from ....logic.diffusion.options import CONSISTENT, Facts

__all__ = ["FILES", "INPUTS", "PARTS", "SAFETY_CONFIG", "json_of", "read_facts"]

CLASSES = ("StableDiffusion", CONSISTENT)
PARTS = ("text_encoder", "unet", "vae_decoder", "vae_encoder", "safety_checker")
"""Folders of the graphs. The first three are needed."""
INPUTS = {
    "text_encoder": ("input_ids", "attention_mask"),
    "unet": ("sample", "timestep", "encoder_hidden_states", "timestep_cond"),
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
    if not any(name in kind for name in CLASSES) or "XL" in kind or "3" in kind:
        raise UnsupportedOp(
            f"its pipeline is {kind}",
            FILES[0],
            "Supported are Stable Diffusion 1, 2, Turbo and latent consistency models.",
        )
    channels = unet.get("in_channels", 4)
    if channels != unet.get("out_channels", channels) or type(channels) is not int:
        raise UnsupportedOp(
            f"it takes {channels} channels", FILES[2], "Models of inpainting are not run."
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
        index.get("requires_safety_checker", True) is not False,
    )


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and value else default
