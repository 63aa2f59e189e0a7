"""Options of text-to-image that Python alone has; the others are those of
logic/diffusion/options.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import InputError
from ....logic.diffusion.options import DEFAULTS

__all__ = ["CALL", "check_own"]

CALL: dict[str, Any] = {
    **DEFAULTS,
    "image": None,
    "mask_image": None,
    "generator": None,
    "output_type": "pil",
    "return_dict": True,
    "callback_on_step_end": None,
    "callback_on_step_end_tensor_inputs": ["latents"],
    "ip_adapter_image": None,
    "ip_adapter_image_embeds": None,
    "cross_attention_kwargs": None,
    "clip_skip": None,
    "denoising_start": None,
    "denoising_end": None,
    "padding_mask_crop": None,
    "masked_image_latents": None,
    "callback": None,
    "callback_steps": None,
}
REFUSED = {
    "denoising_start": "a part of the steps cannot be run alone",
    "denoising_end": "a part of the steps cannot be run alone",
    "padding_mask_crop": "the picture is not cropped around its mask",
    "masked_image_latents": "they are computed from image and mask_image",
    "ip_adapter_image": "IP adapters are not supported",
    "ip_adapter_image_embeds": "IP adapters are not supported",
    "cross_attention_kwargs": "the attention of a graph cannot be changed",
    "clip_skip": "the graph has the last layer's output only",
}
TENSORS = ("latents", "prompt_embeds", "negative_prompt_embeds", "denoised")


def check_own(options: Mapping[str, Any]) -> None:
    """Checks the values of Python's own options. Raises InputError."""
    for name, why in REFUSED.items():
        if options[name] is not None:
            raise InputError(why, name, "Leave it out.")
    for name in ("callback", "callback_steps"):
        if options[name] is not None:
            raise InputError("diffusers has replaced it", name, "Use callback_on_step_end.")
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
    given = options["generator"]
    if given is None:
        return
    if options["seed"] is not None:
        raise InputError("a seed is given as well", "generator", "Give one of the two.")
    for one in given if isinstance(given, (list, tuple)) else [given]:
        if type(one).__module__.partition(".")[0] != "torch" or not hasattr(one, "device"):
            raise InputError(
                f"a {type(one).__name__} is not a torch.Generator",
                "generator",
                "Give one, a list of them, or seed=.",
            )
