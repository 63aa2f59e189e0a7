"""What the configuration files of a diffusion model say about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import ModelError, UnsupportedOp
from ....json_text import parse_json_object

__all__ = ["FILES", "INPUTS", "PARTS", "SAFETY_CONFIG", "Facts", "json_of"]

CLASSES = ("StableDiffusion", "LatentConsistencyModel")
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


@dataclass(frozen=True)
class Facts:
    """A diffusion model.

    Attributes:
        kind: its class in diffusers.
        scheduler: contents of scheduler_config.json, with clip_sample as in a pipeline.
        size: height and width of the latents that it was trained for.
        channels: of latents.
        scale: pixels for each latent, along one side.
        factor: factor of latents that the decoder divides by.
        shift: then added to them.
        cond: size of `timestep_cond`, if the guidance is an input; else None.
        checked: whether the model is meant to be used with a safety checker.
    """

    kind: str
    scheduler: Mapping[str, Any]
    size: tuple[int, int]
    channels: int
    scale: int
    factor: float
    shift: float
    cond: int | None
    checked: bool

    @classmethod
    def read(cls, read: Callable[[str], Any]) -> Facts:
        """Reads the files.

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
        return cls(
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

    @property
    def consistency(self) -> bool:
        """Whether it is a latent consistency model in a pipeline of its own."""
        return CLASSES[1] in self.kind


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, (int, float)) and value else default
