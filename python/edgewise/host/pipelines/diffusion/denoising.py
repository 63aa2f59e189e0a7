"""The loop of a diffusion model over its steps."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_output
from ....compiler.declare.dtypes import FLOAT
from ....errors import InputError
from ....logic.diffusion.guidance import guided, scale_embedding
from ....logic.diffusion.stepper import Schedule, Stepper, weighted
from .noise import Noise
from .parts import Part, floats

if TYPE_CHECKING:
    from ..text_to_image import TextToImagePipeline

__all__ = ["Denoising"]

Vectors = tuple[list[int], Sequence[float]]


class Denoising:
    """The steps of one call.

    Args:
        pipe: the pipeline.
        schedule: the steps.
        options: of the call.
        noise: draws its random numbers.
    """

    def __init__(
        self, pipe: TextToImagePipeline, schedule: Schedule, options: dict[str, Any], noise: Noise
    ) -> None:
        self.pipe, self.schedule, self.options, self.noise = pipe, schedule, options, noise
        self.scale = float(options["guidance_scale"])

    def run(
        self,
        vectors: list[Vectors],
        without: list[Vectors],
        start: list[array[float]] | None,
        size: tuple[int, int],
    ) -> list[array[float]]:
        """The latents of each image after the last step.

        Args:
            vectors: of the prompt of each image: (shape, numbers).
            without: of the negative prompt of each image; empty: no guidance.
            start: latents of a picture for image-to-image, or given ones; None: noise.
            size: height and width of the latents.
        """
        self.vectors, self.without = vectors, without
        self.shape = [self.pipe.facts.channels, *size]
        self.steppers = [
            Stepper(self.schedule, row) for row in self._first(start, range(len(vectors)))
        ]
        with self.pipe.part("unet") as part:
            self._check_sizes(part, size)
            for i, step in enumerate(self.schedule.steps):
                if self.pipe.interrupted:
                    break
                outputs = self._outputs(part)
                clean = self._clean(outputs)
                for image, (stepper, output) in enumerate(zip(self.steppers, outputs)):
                    drawn = self.noise.draw(image, self.shape) if step.noise else None
                    stepper.step(output, drawn)
                self._call_back(i, step.timestep, clean)
        return [stepper.latents for stepper in self.steppers]

    def _first(self, start: list[array[float]] | None, images: range) -> list[array[float]]:
        """What the latents begin with."""
        if start is not None and self.options["image"] is None:
            return [weighted([row], [self.schedule.sigma]) for row in start]
        drawn = [self.noise.draw(image, self.shape) for image in images]
        if start is None:
            return [weighted([row], [self.schedule.sigma]) for row in drawn]
        return [weighted(pair, self.schedule.start) for pair in zip(start, drawn)]

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

    def _outputs(self, part: Part) -> list[array[float]]:
        """The model's output for each image, with guidance."""
        rows = []
        both = bool(self.without)
        for stepper, vectors, without in zip(
            self.steppers, self.vectors, self.without or self.vectors
        ):
            row: dict[str, tuple[Sequence[int], Sequence[float]]] = {
                "sample": (self.shape, stepper.scaled()),
                "timestep": ([], [stepper.steps[stepper.at].timestep]),
            }
            if part.has("timestep_cond"):
                size = self.pipe.facts.cond or part.size("timestep_cond", 1) or 256
                row["timestep_cond"] = ([size], scale_embedding(self.scale, size))
            rows += [{**row, "encoder_hidden_states": v} for v in ([without] if both else [])]
            rows.append({**row, "encoder_hidden_states": vectors})
        made = part.rows(rows, ("out_sample",))
        if not both:
            return made
        rescale = float(self.options["guidance_rescale"])
        return [
            guided(u, c, self.scale, rescale) for u, c in zip(made[::2], made[1::2], strict=True)
        ]

    def _clean(self, outputs: list[array[float]]) -> Any:
        """The pictures that the model expects, if the callback wants them."""
        if "denoised" not in self.options["callback_on_step_end_tensor_inputs"]:
            return None
        return [stepper.clean(output) for stepper, output in zip(self.steppers, outputs)]

    def _call_back(self, i: int, timestep: float, clean: Any) -> None:
        callback = self.options["callback_on_step_end"]
        if callback is None:
            return
        names = self.options["callback_on_step_end_tensor_inputs"]
        tensors: dict[str, Any] = {}
        for name in names:
            rows: Any = clean if name == "denoised" else None
            shape = self.shape
            if name == "latents":
                rows = [stepper.latents for stepper in self.steppers]
            elif name.endswith("embeds"):
                pairs = self.vectors if name == "prompt_embeds" else self.without
                rows, shape = [p[1] for p in pairs], list(pairs[0][0]) if pairs else []
            flat = array("f", [x for row in rows for x in row])
            tensors[name] = as_output(FLOAT, [len(rows), *shape], flat.tobytes()) if rows else None
        changed = callback(self.pipe, i, timestep, tensors)
        for name, value in (changed or {}).items():
            self._replace(name, value, tensors)

    def _replace(self, name: str, value: Any, given: dict[str, Any]) -> None:
        """Takes a tensor that a callback returns."""
        if value is None or value is given.get(name) and name == "denoised":
            return
        shape, numbers = floats(value, name)
        count = len(self.steppers)
        one = len(numbers) // count
        rows = [numbers[i * one : (i + 1) * one] for i in range(count)]
        if name == "latents" and shape == [count, *self.shape]:
            for stepper, row in zip(self.steppers, rows):
                stepper.latents = row
        elif name == "prompt_embeds" and shape == [count, *self.vectors[0][0]]:
            self.vectors = [(shape[1:], row) for row in rows]
        elif name == "negative_prompt_embeds" and shape[1:] == list(self.vectors[0][0]):
            self.without = [(shape[1:], row) for row in rows]
        elif name != "denoised":
            raise InputError(
                f"it returned {name!r} of the shape {shape}",
                "callback_on_step_end",
                "Return tensors of the call with their shapes.",
            )
