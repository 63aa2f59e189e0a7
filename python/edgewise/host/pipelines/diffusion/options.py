"""Options of text-to-image: those of diffusers' StableDiffusionPipeline and image-to-image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....errors import InputError
from ....seeds import check_seed

__all__ = ["CALL", "LCM", "check_options", "prompts_of"]

CALL: dict[str, Any] = {
    "prompt": None,
    "image": None,
    "strength": 0.8,
    "height": None,
    "width": None,
    "num_inference_steps": 50,
    "timesteps": None,
    "sigmas": None,
    "original_inference_steps": None,
    "guidance_scale": 7.5,
    "guidance_rescale": 0.0,
    "negative_prompt": None,
    "num_images_per_prompt": 1,
    "eta": 0.0,
    "seed": None,
    "generator": None,
    "latents": None,
    "prompt_embeds": None,
    "negative_prompt_embeds": None,
    "scheduler": None,
    "output_type": "pil",
    "return_dict": True,
    "callback_on_step_end": None,
    "callback_on_step_end_tensor_inputs": ["latents"],
    "ip_adapter_image": None,
    "ip_adapter_image_embeds": None,
    "cross_attention_kwargs": None,
    "clip_skip": None,
    "callback": None,
    "callback_steps": None,
}
LCM = {"num_inference_steps": 4, "guidance_scale": 8.5}
"""Defaults of LatentConsistencyModelPipeline."""
REFUSED = {
    "ip_adapter_image": "IP adapters are not supported",
    "ip_adapter_image_embeds": "IP adapters are not supported",
    "cross_attention_kwargs": "the attention of a graph cannot be changed",
    "clip_skip": "the graph has the last layer's output only",
}
TENSORS = ("latents", "prompt_embeds", "negative_prompt_embeds", "denoised")
MAX_PIXELS = 1 << 24


def check_size(height: int, width: int) -> None:
    """Raises InputError for pictures of too many pixels."""
    if height * width > MAX_PIXELS:
        raise InputError(
            f"a picture of {height} x {width} is too large",
            "height",
            f"Give a height and a width of at most {MAX_PIXELS} pixels together.",
        )


def check_options(options: Mapping[str, Any]) -> None:
    """Checks the values of options. Raises InputError."""
    for name, why in REFUSED.items():
        if options[name] is not None:
            raise InputError(why, name, "Leave it out.")
    for name in ("callback", "callback_steps"):
        if options[name] is not None:
            raise InputError("diffusers has replaced it", name, "Use callback_on_step_end.")
    _count(options, "num_inference_steps", 1, 10000)
    _count(options, "num_images_per_prompt", 1, 1000)
    _number(options, "guidance_scale", 0, 1e6)
    _number(options, "guidance_rescale", 0, 1)
    _number(options, "eta", 0, 1)
    _number(options, "strength", 0, 1)
    for name in ("height", "width", "original_inference_steps"):
        if options[name] is not None:
            _count(options, name, 1, 1 << 16)
    check_size(options["height"] or 1, options["width"] or 1)
    for name in ("timesteps", "sigmas"):
        _numbers(options, name)
    if options["timesteps"] is not None and options["sigmas"] is not None:
        raise InputError("timesteps are given as well", "sigmas", "Give one of the two.")
    if options["output_type"] not in ("pil", "np", "latent"):
        raise InputError(
            f"{options['output_type']!r} is none", "output_type", 'Give "pil", "np" or "latent".'
        )
    if type(options["return_dict"]) is not bool:
        raise InputError(f"{options['return_dict']!r} is not a bool", "return_dict")
    callback = options["callback_on_step_end"]
    if callback is not None and not callable(callback):
        raise InputError("it cannot be called", "callback_on_step_end", "Give a function.")
    names = options["callback_on_step_end_tensor_inputs"]
    if not isinstance(names, (list, tuple)) or any(n not in TENSORS for n in names):
        raise InputError(
            f"{names!r} is no list of tensors",
            "callback_on_step_end_tensor_inputs",
            f"There are: {', '.join(TENSORS)}.",
        )
    _check_random(options)


def _check_random(options: Mapping[str, Any]) -> None:
    seeds = options["seed"]
    for seed in seeds if isinstance(seeds, (list, tuple)) else [seeds]:
        if seed is None and seeds is not None:
            raise InputError("None is in the list", "seed", "Give integers.")
        check_seed(seed, "seed")
    if options["generator"] is not None:
        if seeds is not None:
            raise InputError("a seed is given as well", "generator", "Give one of the two.")
        given = options["generator"]
        for one in given if isinstance(given, (list, tuple)) else [given]:
            if type(one).__module__.partition(".")[0] != "torch" or not hasattr(one, "device"):
                raise InputError(
                    f"a {type(one).__name__} is not a torch.Generator",
                    "generator",
                    "Give one, a list of them, or seed=.",
                )
    if options["latents"] is not None and options["image"] is not None:
        raise InputError("an image is given as well", "latents", "Give one of the two.")


def _number(options: Mapping[str, Any], name: str, least: float, most: float) -> None:
    value = options[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InputError(f"{value!r} is not a number from {least} to {most}", name)


def _count(options: Mapping[str, Any], name: str, least: int, most: int) -> None:
    value = options[name]
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"{value!r} is not an integer from {least} to {most}", name)


def _numbers(options: Mapping[str, Any], name: str) -> None:
    values = options[name]
    if values is None:
        return
    if (
        not isinstance(values, (list, tuple))
        or not values
        or not all(
            isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)
            for v in values
        )
    ):
        raise InputError("it is not a list of numbers", name, "Leave it out.")


def prompts_of(options: Mapping[str, Any]) -> tuple[list[str] | None, list[str] | None]:
    """The prompts of a call and as many negative prompts; None where vectors are given instead.

    Raises:
        InputError: they are no texts, or do not match.
    """
    prompt, vectors = options["prompt"], options["prompt_embeds"]
    if (prompt is None) == (vectors is None):
        what = "neither" if prompt is None else "both"
        raise InputError(f"{what} of prompt and prompt_embeds is given", "prompt", "Give one.")
    prompts = None if prompt is None else _texts(prompt, "prompt")
    negative, negative_vectors = options["negative_prompt"], options["negative_prompt_embeds"]
    if negative is not None and negative_vectors is not None:
        raise InputError("negative_prompt_embeds are given as well", "negative_prompt", "Give one.")
    if negative_vectors is not None:
        return prompts, None
    negatives = [""] if negative is None else _texts(negative, "negative_prompt")
    if prompts is not None and len(negatives) not in (1, len(prompts)):
        raise InputError(
            f"there are {len(negatives)}, and {len(prompts)} prompts",
            "negative_prompt",
            "Give one, or as many.",
        )
    return prompts, negatives


def _texts(given: Any, name: str) -> list[str]:
    texts: Sequence[Any] = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) for t in texts):
        raise InputError("it is neither a text nor a list of texts", name)
    if not texts:
        raise InputError("the list is empty", name)
    return list(texts)
