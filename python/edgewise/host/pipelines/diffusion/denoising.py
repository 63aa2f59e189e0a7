"""Runs a diffusion model for logic/diffusion/denoising.py, which has the loop over its steps."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....compiler.arrays import as_output
from ....compiler.declare.dtypes import FLOAT
from ....errors import InputError
from ....logic.diffusion.denoising import Denoising as Loop
from ....logic.diffusion.denoising import Inpainted, Request, Row, Stepped
from ....logic.diffusion.guidance import scale_embedding
from ....logic.diffusion.options import DrawOptions
from ....logic.diffusion.stepper import Schedule
from ...drive import drive
from .noise import Noise
from .parts import Part, floats

if TYPE_CHECKING:
    from ..text_to_image import TextToImagePipeline

__all__ = ["Denoising", "Vectors"]


class Vectors(NamedTuple):
    """What the text encoders make of a text.

    Attributes:
        shape: [tokens, size].
        numbers: flat.
        pooled: the vector of the whole text, of Stable Diffusion XL.
    """

    shape: list[int]
    numbers: Sequence[float]
    pooled: Sequence[float] | None = None


class Denoising:
    """The steps of one call.

    Args:
        pipe: the pipeline.
        schedule: the steps.
        asked: options of the call.
        options: Python's own ones.
        noise: draws its random numbers.
        vectors: of the prompt of each image: (shape, numbers).
        without: of the negative prompt of each image; empty: no guidance.
        size: height and width of the latents.
    """

    def __init__(
        self,
        pipe: TextToImagePipeline,
        schedule: Schedule,
        asked: DrawOptions,
        options: dict[str, Any],
        noise: Noise,
        vectors: list[Vectors],
        without: list[Vectors],
        size: tuple[int, int],
    ) -> None:
        self.pipe, self.options, self.noise = pipe, options, noise
        self.vectors, self.without, self.scale = vectors, without, asked.scale
        self.shape = [pipe.facts.channels, *size]
        scale = pipe.facts.scale
        pixels = size[0] * scale, size[1] * scale
        self.times = [asked.time_ids(*pixels, negative) for negative in (False, True)]
        every = int("denoised" in options["callback_on_step_end_tensor_inputs"])
        self.loop = Loop(schedule, len(vectors), bool(without), asked, every)

    def run(
        self,
        latents: list[array[float]] | None,
        encoded: list[array[float]] | None,
        inpainted: Inpainted | None = None,
    ) -> list[Sequence[float]]:
        """The latents of each image after the last step.

        Args:
            latents: given ones to begin with; None: noise.
            encoded: instead of them, the encoder's outputs for the pictures of image-to-image.
            inpainted: the pictures of inpainting.
        """
        channels, height, width = self.shape
        if inpainted is not None:
            steps = self.loop.from_masked(inpainted, latents)
        elif encoded is None:
            steps = self.loop.from_noise(latents)
        else:
            size, factor = channels * height * width, self.pipe.facts.factor
            steps = self.loop.from_pictures(encoded, size, factor)
        with self.pipe.part("unet") as part:
            self._check_sizes(part, (height, width))
            return drive(steps, lambda request: self._answer(request, part))

    def _answer(self, request: Request, part: Part) -> Any:
        """Does what a request asks for."""
        if request.kind == "draw":
            return self.noise.draw(request.image, request.number, self.shape)
        if request.kind == "denoise":
            return part.rows([self._row(row, part) for row in request.rows], ("out_sample",))
        self._call_back(request)
        return self.pipe.interrupted

    def _row(self, row: Row, part: Part) -> dict[str, tuple[Sequence[int], Sequence[float]]]:
        """The model's inputs for a row."""
        found: dict[str, tuple[Sequence[int], Sequence[float]]] = {
            "sample": ([self.pipe.facts.inputs, *self.shape[1:]], row.sample),
            "timestep": ([], [row.timestep]),
        }
        if part.has("timestep_cond"):
            size = self.pipe.facts.cond or part.size("timestep_cond", 1) or 256
            found["timestep_cond"] = ([size], scale_embedding(self.scale, size))
        shape, numbers, pooled = (self.without if row.negative else self.vectors)[row.image]
        found["encoder_hidden_states"] = (shape, numbers)
        if pooled is not None:
            found["text_embeds"] = ([len(pooled)], pooled)
            found["time_ids"] = ([6], self.times[row.negative])
        return found

    def _check_sizes(self, part: Part, size: tuple[int, int]) -> None:
        """Raises InputError if the graph has another size."""
        for axis, (name, pixels) in enumerate(zip(("height", "width"), size)):
            fixed = part.size("sample", axis + 2)
            if fixed not in (None, pixels):
                raise InputError(
                    f"it is {pixels * self.pipe.facts.scale}, the graph was exported for"
                    f" {fixed * self.pipe.facts.scale}",
                    name,
                    "Use that size, or export the model with free sizes.",
                )

    def _call_back(self, done: Stepped) -> None:
        callback = self.options["callback_on_step_end"]
        if callback is None:
            return
        names = self.options["callback_on_step_end_tensor_inputs"]
        tensors: dict[str, Any] = {}
        for name in names:
            rows: Any = done.expected if name == "denoised" else None
            shape = self.shape
            if name == "latents":
                rows = [stepper.latents for stepper in self.loop.steppers]
            elif name.endswith("embeds"):
                pairs = self.vectors if name == "prompt_embeds" else self.without
                rows, shape = [p[1] for p in pairs], list(pairs[0][0]) if pairs else []
            flat = array("f", [x for row in rows for x in row])
            tensors[name] = as_output(FLOAT, [len(rows), *shape], flat.tobytes()) if rows else None
        changed = callback(self.pipe, done.step, done.timestep, tensors)
        for name, value in (changed or {}).items():
            self._replace(name, value, tensors)

    def _replace(self, name: str, value: Any, given: dict[str, Any]) -> None:
        """Takes a tensor that a callback returns."""
        if value is None or value is given.get(name) and name == "denoised":
            return
        shape, numbers = floats(value, name)
        count = self.loop.images
        one = len(numbers) // count
        rows = [numbers[i * one : (i + 1) * one] for i in range(count)]
        if name == "latents" and shape == [count, *self.shape]:
            for stepper, row in zip(self.loop.steppers, rows):
                stepper.latents = row
        elif name == "prompt_embeds" and shape == [count, *self.vectors[0][0]]:
            self.vectors = [
                Vectors(shape[1:], row, old.pooled) for row, old in zip(rows, self.vectors)
            ]
        elif name == "negative_prompt_embeds" and shape[1:] == list(self.vectors[0][0]):
            others = self.without or self.vectors
            self.without = [Vectors(shape[1:], row, old.pooled) for row, old in zip(rows, others)]
            self.loop.guided = True
        elif name != "denoised":
            raise InputError(
                f"it returned {name!r} of the shape {shape}",
                "callback_on_step_end",
                "Return tensors of the call with their shapes.",
            )
