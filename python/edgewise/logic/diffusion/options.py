"""Options of text-to-image: those of diffusers' StableDiffusionPipeline and
StableDiffusionXLPipeline, of image-to-image and inpainting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import Seed, check_seed, given, listed, random_seed, seed_after, written
from .schedulers import Request, schedule_of
from .stepper import Schedule

__all__ = ["CONSISTENT", "DEFAULTS", "DrawOptions", "Facts", "Prompts", "Tokens", "padded"]

DEFAULTS: dict[str, Any] = {
    "prompt": None,
    "strength": None,
    "height": None,
    "width": None,
    "num_inference_steps": None,
    "timesteps": None,
    "sigmas": None,
    "original_inference_steps": None,
    "guidance_scale": None,
    "guidance_rescale": 0.0,
    "negative_prompt": None,
    "num_images_per_prompt": 1,
    "eta": 0.0,
    "seed": None,
    "latents": None,
    "prompt_embeds": None,
    "negative_prompt_embeds": None,
    "scheduler": None,
    "prompt_2": None,
    "negative_prompt_2": None,
    "pooled_prompt_embeds": None,
    "negative_pooled_prompt_embeds": None,
    "original_size": None,
    "crops_coords_top_left": None,
    "target_size": None,
    "negative_original_size": None,
    "negative_crops_coords_top_left": None,
    "negative_target_size": None,
}
"""{option that both hosts have: its default}. None of strength, num_inference_steps and
guidance_scale is that of `_usual`."""
XL = (
    "prompt_2",
    "negative_prompt_2",
    "pooled_prompt_embeds",
    "negative_pooled_prompt_embeds",
    "original_size",
    "crops_coords_top_left",
    "target_size",
    "negative_original_size",
    "negative_crops_coords_top_left",
    "negative_target_size",
)
"""Options of Stable Diffusion XL alone."""
CONSISTENT = "LatentConsistencyModel"
"""Part of the names of pipelines of latent consistency models."""
MAX_PIXELS = 1 << 24
MAX_SIDE = 1 << 16


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
        inputs: channels that the model takes: those of latents, or for inpainting also the mask and
            latents of what is kept.
        xl: whether it is one of Stable Diffusion XL, with two text encoders.
        zeros: whether an empty negative prompt is a vector of zeros.
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
    inputs: int = 4
    xl: bool = False
    zeros: bool = False


@dataclass(frozen=True)
class Prompts:
    """The texts of a call.

    Attributes:
        prompts: of the pictures; None: vectors are given.
        negatives: one, or one for each prompt; None: vectors are given, or there is no guidance.
        texts: all of them, each once.
        seconds: the prompts of the second text encoder, as `prompts`.
        other_negatives: its negative prompts, as `negatives`.
        other_texts: all of its texts, each once.
        zero: whether the vectors of negative prompts are zeros.
    """

    prompts: list[str] | None
    negatives: list[str] | None
    texts: list[str]
    seconds: list[str] | None
    other_negatives: list[str] | None
    other_texts: list[str]
    zero: bool


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, of the length that the text encoder takes.

    Attributes:
        ids: with padding.
        mask: 1 for each token, 0 for padding.
        cut: how many tokens there were, if the end is cut off; else 0.
    """

    ids: list[int]
    mask: list[int]
    cut: int


def padded(ids: Sequence[int], length: int, pad: int | None) -> Tokens:
    """The tokens of a text. The last one stays: it marks the end.

    Args:
        ids: of the text.
        length: that the text encoder takes.
        pad: id of padding; None: 0.
    """
    kept = [*ids] if len(ids) <= length else [*ids[: length - 1], ids[-1]]
    rest = length - len(kept)
    fill = 0 if pad is None else pad
    cut = len(ids) if len(ids) > length else 0
    return Tokens([*kept, *[fill] * rest], [*[1] * len(kept), *[0] * rest], cut)


class DrawOptions:
    """The options of a call, checked.

    Args:
        options: {name: value}; None stands for the default. Others than those of DEFAULTS are the
            host's.
        kind: of the model, see Facts.
        begun: whether the call begins with a picture.
        masked: whether it has a mask, too.
        where: prefix of the names of options, for errors.

    Attributes:
        strength, height, width, steps, timesteps, sigmas, original, scale, rescale, each, eta: as
            the options of diffusers with such names.

    Raises:
        InputError: one is not valid.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        kind: str,
        begun: bool = False,
        where: str = "",
        masked: bool = False,
    ) -> None:
        self.consistency = CONSISTENT in kind
        self.xl = "XL" in kind
        self.begun = begun
        self.masked = masked
        self.where = where
        self.values: dict[str, Any] = {**DEFAULTS, **_usual(kind, masked)}
        for name, value in given(options):
            if value is not None:
                self.values[name] = value
        self._check_xl()
        self.strength = self._number("strength", 0, 1)
        self.height = self._size("height")
        self.width = self._size("width")
        self.timesteps = self._numbers("timesteps")
        self.sigmas = self._numbers("sigmas")
        self.steps = self._steps()
        self.original = self._size("original_inference_steps")
        self.scale = self._number("guidance_scale", 0, 1_000_000)
        self.rescale = self._number("guidance_rescale", 0, 1)
        self.each = self._count("num_images_per_prompt", 1, 1000)
        self.eta = self._number("eta", 0, 1)
        self.check_size(self.height or 1, self.width or 1)
        if masked and not begun:
            raise InputError("no image is given", "mask_image", "Give the image, too.")
        if self.values["latents"] is not None and begun and not masked:
            raise InputError("an image is given as well", where + "latents", "Give one of the two.")

    def check_size(self, height: int, width: int) -> None:
        """Raises InputError for pictures of too many pixels."""
        if height * width > MAX_PIXELS:
            raise InputError(
                f"a picture of {height} x {width} is too large",
                self.where + "height",
                f"Give a height and a width of at most {MAX_PIXELS} pixels together.",
            )

    def guided(self, facts: Facts) -> bool:
        """Whether each step runs the model twice."""
        return self.scale > 1 and facts.cond is None

    def prompts(self, guided: bool, zeros: bool = False) -> Prompts:
        """The texts of the call.

        Args:
            guided: whether there is guidance.
            zeros: see Facts.

        Raises:
            InputError: they are no texts, or do not match.
        """
        prompt: object = self.values["prompt"]
        vectors: object = self.values["prompt_embeds"]
        if (prompt is None) == (vectors is None):
            what = "neither" if prompt is None else "both"
            raise InputError(f"{what} of prompt and prompt_embeds is given", "prompt", "Give one.")
        prompts = None if prompt is None else _texts(prompt, "prompt")
        negative: object = self.values["negative_prompt"]
        name = self.where + "negative_prompt"
        negatives: list[str] | None = None
        if self.values["negative_prompt_embeds"] is None:
            negatives = [""] if negative is None else _texts(negative, name)
            if prompts is not None:
                self.check_negatives(len(negatives), len(prompts))
        elif negative is not None:
            raise InputError("negative_prompt_embeds are given as well", name, "Give one.")
        zero = zeros and guided and negative is None and negatives is not None
        if not guided or zero:
            negatives = None
        texts = _once([*(prompts or []), *(negatives or [])])
        if not self.xl:
            return Prompts(prompts, negatives, texts, None, None, [], zero)
        seconds = self._second("prompt_2", prompts)
        others = self._second("negative_prompt_2", negatives)
        other_texts = _once([*(seconds or []), *(others or [])])
        return Prompts(prompts, negatives, texts, seconds, others, other_texts, zero)

    def _second(self, name: str, first: list[str] | None) -> list[str] | None:
        """The texts of the second text encoder: by default those of the first."""
        value: object = self.values[name]
        if value is None or first is None:
            return first
        texts = _texts(value, self.where + name)
        if len(texts) != len(first):
            raise InputError(
                f"there are {len(texts)}, and {len(first)} prompts",
                self.where + name,
                "Give as many as prompts.",
            )
        return texts

    def time_ids(self, height: int, width: int, negative: bool) -> list[float]:
        """The input `time_ids` of Stable Diffusion XL.

        Args:
            height, width: of the picture.
            negative: whether it is that of the negative prompt.
        """
        own = [float(height), float(width)]
        sizes = self._pair("original_size", own)
        crop = self._pair("crops_coords_top_left", [0.0, 0.0])
        target = self._pair("target_size", own)
        if negative and (self.begun or self.values["negative_original_size"] is not None):
            sizes = self._pair("negative_original_size", sizes)
            if not self.begun:  # with a picture diffusers ignores the negative one
                crop = self._pair("negative_crops_coords_top_left", [0.0, 0.0])
            target = self._pair("negative_target_size", target)
        return [*sizes, *crop, *target]

    def _pair(self, name: str, default: list[float]) -> list[float]:
        numbers = self._numbers(name)
        if numbers is None:
            return default
        if len(numbers) != 2:
            raise self._refuse(name, "Give two numbers: height and width.")
        return numbers

    def _check_xl(self) -> None:
        """Raises InputError for options of Stable Diffusion XL with another model."""
        for name in XL:
            if self.values[name] is not None and not self.xl:
                raise InputError(
                    "the model is not one of Stable Diffusion XL",
                    self.where + name,
                    "Leave it out.",
                )
        for name in ("prompt_embeds", "negative_prompt_embeds"):
            pooled = name.replace("prompt_embeds", "pooled_prompt_embeds")
            if (self.values[name] is None) != (self.values[pooled] is None) and self.xl:
                raise InputError(
                    f"{name} and {pooled} belong together", self.where + name, "Give both."
                )
        if (self.values["negative_original_size"] is None) != (
            self.values["negative_target_size"] is None
        ):
            raise InputError(
                "negative_original_size and negative_target_size belong together",
                self.where + "negative_target_size",
                "Give both.",
            )

    def check_inputs(self, facts: Facts) -> None:
        """Raises InputError if a model that inpaints gets no mask."""
        if facts.inputs != facts.channels and not self.masked:
            raise InputError(
                "the model inpaints", self.where + "mask_image", "Give image and mask_image."
            )

    def check_negatives(self, negatives: int, prompts: int) -> None:
        """Raises InputError unless there are negative prompts for prompts."""
        if negatives not in (1, prompts):
            raise InputError(
                f"there are {negatives}, and {prompts} prompts",
                self.where + "negative_prompt",
                "Give one, or as many as prompts.",
            )

    def check_latents(self, shape: Sequence[int], wanted: Sequence[int]) -> None:
        """Raises InputError unless given latents have a shape."""
        if [*shape] != [*wanted]:
            texts = ["[" + ", ".join([str(d) for d in dims]) + "]" for dims in (shape, wanted)]
            raise InputError(
                f"their shape is {texts[0]}", self.where + "latents", f"Give {texts[1]}."
            )

    def check_pictures(self, pictures: int, images: int) -> None:
        """Raises InputError unless as many pictures can begin so many images."""
        if pictures == 0 or images % pictures:
            raise InputError(f"{pictures} pictures are given", "image", f"Give {images}.")

    def seeds(self, images: int) -> list[Seed]:
        """The seed of each image: further ones follow the first.

        Raises:
            InputError: a seed is not valid, or there are too few.
        """
        value: object = self.values["seed"]
        name = self.where + "seed"
        many = listed(value)
        if many is None:
            one = check_seed(value, name)
            first = random_seed() if one is None else one
            return [seed_after(first, i) for i in range(images)]
        if len(many) != images:
            raise InputError(f"there are {len(many)}", name, f"Give {images}, or one.")
        found: list[Seed] = []
        for value in many:
            one = check_seed(value, name)
            if one is None:
                raise InputError(f"{written(value)} is in the list", name, "Give integers.")
            found.append(one)
        return found

    def schedule(self, config: Mapping[str, Any], usual: object = None) -> Schedule:
        """The steps of the call.

        Args:
            config: of the model's scheduler.
            usual: the scheduler of calls that do not name one: as the option `scheduler`.

        Raises:
            InputError: the scheduler, or an option of it, is not supported, or no step is left.
        """
        value: object = self.values["scheduler"]
        chosen = usual if value is None else value
        fields: dict[str, Any] = {**config}
        if isinstance(chosen, str):
            fields["_class_name"] = chosen
        elif isinstance(chosen, Mapping):
            fields = {**config, **chosen}
        elif chosen is not None:
            raise InputError(
                f"{written(chosen)} is no scheduler",
                self.where + "scheduler",
                "Give a name, or the fields of a configuration.",
            )
        begin = 0
        strength = 1.0
        if self.begun and self.consistency:
            strength = self.strength
        elif self.begun:
            begin = max(self.steps - min(int(self.steps * self.strength), self.steps), 0)
        request = Request(
            self.steps, begin, self.eta, self.timesteps, self.sigmas, self.original, strength
        )
        schedule = schedule_of(fields, request)
        if not schedule.steps:
            raise InputError(
                f"no step is left of {self.steps}",
                self.where + "strength",
                "Raise it, or num_inference_steps.",
            )
        return schedule

    def _refuse(self, name: str, remedy: str) -> InputError:
        return InputError(f"it is {written(self.values[name])}", self.where + name, remedy)

    def _number(self, name: str, least: int, most: int) -> float:
        value = self.values[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            raise self._refuse(name, f"Give a number from {least} to {most}.")
        return float(value)

    def _count(self, name: str, least: int, most: int) -> int:
        value: object = self.values[name]
        if type(value) is not int or not least <= value <= most:
            raise self._refuse(name, f"Give an integer from {least} to {most}.")
        return value

    def _size(self, name: str) -> int | None:
        return None if self.values[name] is None else self._count(name, 1, MAX_SIDE)

    def _steps(self) -> int:
        """How many steps there are: those that are given, or num_inference_steps."""
        steps = self._count("num_inference_steps", 1, 10000)
        if self.timesteps is not None and self.sigmas is not None:
            raise InputError(
                "timesteps are given as well", self.where + "sigmas", "Give one of the two."
            )
        if self.timesteps is not None:
            return len(self.timesteps)
        return steps if self.sigmas is None else len(self.sigmas) - 1

    def _numbers(self, name: str) -> list[float] | None:
        value: object = self.values[name]
        if value is None:
            return None
        found = listed(value)
        if found is None or not found or not all(_is_finite(x) for x in found):
            raise self._refuse(name, "Give a list of numbers, or leave it out.")
        return [float(x) for x in found]


def _usual(kind: str, masked: bool) -> dict[str, Any]:
    """Defaults of diffusers' pipelines for a kind of model."""
    steps, scale = (4, 8.5) if CONSISTENT in kind else (50, 7.5)
    strength = 1.0 if masked else 0.8
    if "XL" in kind:
        strength = 0.9999 if masked else 0.3
        scale = scale if masked else 5.0
    return {"num_inference_steps": steps, "guidance_scale": scale, "strength": strength}


def _once(texts: list[str]) -> list[str]:
    """Texts, each once."""
    found: list[str] = []
    for text in texts:
        if text not in found:
            found.append(text)
    return found


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)


def _texts(value: object, where: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    texts = listed(value)
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise InputError(
            "it is neither a text nor a list of texts", where, "Give a text, or a list of texts."
        )
    if not texts:
        raise InputError("the list is empty", where, "Give a text, or a list of texts.")
    return texts
