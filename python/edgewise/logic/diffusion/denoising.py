"""The loop of a diffusion model over its steps and pictures."""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .guidance import guided
from .options import DrawOptions
from .stepper import Schedule, Stepper, weighted

__all__ = [
    "Denoise",
    "Denoising",
    "Draw",
    "Inpainted",
    "Request",
    "Row",
    "Stepped",
    "for_decoder",
    "groups",
]


@dataclass(frozen=True)
class Draw:
    """Normal numbers for an image: those of draw `number` of its seed. The answer: as many as it
    has latents.
    """

    image: int
    number: int
    kind: Literal["draw"] = "draw"


@dataclass(frozen=True)
class Row:
    """What the model is run on.

    Attributes:
        image: whose prompt it gets.
        negative: whether it gets the negative prompt instead.
        sample: the latents; of a model that inpaints also the mask and the latents of what is kept.
        timestep: of the step.
    """

    image: int
    negative: bool
    sample: Sequence[float]
    timestep: float


@dataclass(frozen=True)
class Denoise:
    """A run of the model. The answer: its output for each row."""

    rows: list[Row]
    kind: Literal["denoise"] = "denoise"


@dataclass(frozen=True)
class Stepped:
    """A step is done. The answer: whether the steps that are left are skipped.

    Attributes:
        step: from 0 on.
        steps: how many there are.
        timestep: of the step.
        expected: for each image, the latents that the model expects at the end; empty where nobody
            wants them.
    """

    step: int
    steps: int
    timestep: float
    expected: list[Sequence[float]]
    kind: Literal["stepped"] = "stepped"


Request = Draw | Denoise | Stepped


@dataclass(frozen=True)
class Inpainted:
    """The pictures of inpainting.

    Attributes:
        encoded: what the encoder of the VAE gives for each: latents, or means and logarithms of
            variances.
        without: the same for the pictures without what is made anew, if the model takes it.
        mask: of the latents: 1 where they are made anew, else 0.
        channels: of latents.
        factor: factor of latents that the decoder divides by.
        model: whether the model takes the mask and the latents of what is kept; else the latter
            are put back after each step.
    """

    encoded: Sequence[Sequence[float]]
    without: Sequence[Sequence[float]]
    mask: Sequence[float]
    channels: int
    factor: float
    model: bool


@dataclass(frozen=True)
class Kept:
    """Latents of an image's picture, and its noise."""

    picture: Sequence[float]
    noise: Sequence[float]


class Denoising:
    """The steps of one call.

    Args:
        schedule: the steps.
        images: how many there are.
        guided: whether the model is run for the negative prompt, too.
        options: of the call.
        every: after so many steps, what the model expects is told; 0: never.

    Attributes:
        steppers: of the images; their latents may be replaced between steps.
        guided: as given; may be changed between steps.
    """

    def __init__(
        self, schedule: Schedule, images: int, guided: bool, options: DrawOptions, every: int = 0
    ) -> None:
        self.schedule = schedule
        self.images = images
        self.guided = guided
        self.options = options
        self.every = every
        self.steppers: list[Stepper] = []
        self._inpainted: Inpainted | None = None
        self._kept: list[Kept] = []
        self._drawn = [0] * images

    def from_noise(
        self, latents: Sequence[Sequence[float]] | None
    ) -> Generator[Request, Any, list[Sequence[float]]]:
        """The latents of each image after the last step.

        Args:
            latents: given ones that the images begin with; None: noise.
        """
        rows: list[Sequence[float]] = []
        for image in range(self.images):
            row: Sequence[float]
            if latents is None:
                row = yield from self._draw(image)
            else:
                row = latents[image]
            rows.append(weighted([row], [self.schedule.sigma]))
        return (yield from self._run(rows))

    def from_pictures(
        self, encoded: Sequence[Sequence[float]], size: int, factor: float
    ) -> Generator[Request, Any, list[Sequence[float]]]:
        """The latents of each image after the last step of image-to-image.

        Args:
            encoded: what the encoder of the VAE gives for each picture: latents, or means and
                logarithms of variances.
            size: numbers of an image's latents.
            factor: factor of latents that the decoder divides by.
        """
        rows: list[Sequence[float]] = []
        for image in range(self.images):
            row = encoded[image % len(encoded)]
            picture = yield from self._latents(image, row, size, factor)
            rows.append(picture)
        for image in range(self.images):
            noise = yield from self._draw(image)
            rows[image] = weighted([rows[image], noise], self.schedule.start)
        return (yield from self._run(rows))

    def from_masked(
        self, inpainted: Inpainted, latents: Sequence[Sequence[float]] | None
    ) -> Generator[Request, Any, list[Sequence[float]]]:
        """The latents of each image after the last step of inpainting.

        Args:
            inpainted: the pictures.
            latents: given noise; None: it is drawn.
        """
        size, factor = len(inpainted.mask) * inpainted.channels, inpainted.factor
        rows: list[Sequence[float]] = []
        full = self.options.strength == 1
        for image in range(self.images):
            picture: Sequence[float] = []
            if not inpainted.model or (not full and latents is None):
                row = inpainted.encoded[image % len(inpainted.encoded)]
                picture = yield from self._latents(image, row, size, factor)
            noise: Sequence[float]
            if latents is None:
                noise = yield from self._draw(image)
            else:
                noise = latents[image]
            if full or latents is not None:
                rows.append(weighted([noise], [self.schedule.sigma]))
            else:
                rows.append(weighted([picture, noise], self.schedule.start))
            # diffusers encodes what is kept for models that do not take it, too: the draw counts
            others = inpainted.without if inpainted.model else inpainted.encoded
            row = others[image % len(others)]
            kept = yield from self._latents(image, row, size, factor)
            if inpainted.model:
                picture = kept
            self._kept.append(Kept(picture, noise))
        self._inpainted = inpainted
        return (yield from self._run(rows))

    def _latents(
        self, image: int, row: Sequence[float], size: int, factor: float
    ) -> Generator[Request, Any, Sequence[float]]:
        """Latents of what the encoder gives for a picture."""
        if len(row) != size:
            noise = yield from self._draw(image)
            row = sampled(row, noise, size)
        return weighted([row], [factor])

    def _blend(self, at: int, image: int) -> None:
        """Puts what is kept of a picture into the latents after step `at`, with the noise of the
        next one.
        """
        inpainted = self._inpainted
        if inpainted is None or inpainted.model:
            return
        steps, kept, stepper = self.schedule.steps, self._kept[image], self.steppers[image]
        start = steps[at + 1].start if at + 1 < len(steps) else (1.0, 0.0)
        picture = weighted([kept.picture, kept.noise], start)
        mask, made = inpainted.mask, stepper.latents
        count = len(mask)
        stepper.latents = array(
            "f",
            [(1 - mask[i % count]) * x + mask[i % count] * made[i] for i, x in enumerate(picture)],
        )

    def _draw(self, image: int) -> Generator[Request, Any, Sequence[float]]:
        number = self._drawn[image]
        self._drawn[image] = number + 1
        noise: Sequence[float] = yield Draw(image, number)
        return noise

    def _run(self, rows: list[Sequence[float]]) -> Generator[Request, Any, list[Sequence[float]]]:
        """The loop. rows: the latents that the images begin with."""
        self.steppers = [Stepper(self.schedule, row) for row in rows]
        steps = self.schedule.steps
        for at, step in enumerate(steps):
            outputs = yield from self._outputs(step.timestep)
            expected: list[Sequence[float]] = []
            if self.every and (at + 1) % self.every == 0:
                expected = [s.clean(outputs[i]) for i, s in enumerate(self.steppers)]
            for image, stepper in enumerate(self.steppers):
                noise: Sequence[float] | None = None
                if step.noise:
                    noise = yield from self._draw(image)
                stepper.step(outputs[image], noise)
                self._blend(at, image)
            ended: bool = yield Stepped(at, len(steps), step.timestep, expected)
            if ended:
                break
        return [stepper.latents for stepper in self.steppers]

    def _outputs(self, timestep: float) -> Generator[Request, Any, list[Sequence[float]]]:
        """The model's output for each image, with guidance."""
        rows: list[Row] = []
        both = self.guided
        for image, stepper in enumerate(self.steppers):
            sample: Sequence[float] = stepper.scaled()
            if self._inpainted is not None and self._inpainted.model:
                sample = [*sample, *self._inpainted.mask, *self._kept[image].picture]
            if both:
                rows.append(Row(image, True, sample, timestep))
            rows.append(Row(image, False, sample, timestep))
        made: list[Sequence[float]] = yield Denoise(rows)
        if not both:
            return made
        return [
            guided(made[2 * i], made[2 * i + 1], self.options.scale, self.options.rescale)
            for i in range(self.images)
        ]


def sampled(row: Sequence[float], noise: Sequence[float], size: int) -> list[float]:
    """Latents of what the encoder of a VAE gives.

    Args:
        row: means, then logarithms of variances.
        noise: normal numbers.
        size: numbers of the latents.
    """
    made: list[float] = []
    for i in range(size):
        log = min(max(row[size + i], -30.0), 20.0)
        made.append(row[i] + math.exp(log / 2) * noise[i])
    return made


def for_decoder(latents: Sequence[float], factor: float, shift: float) -> array[float]:
    """What the decoder of a VAE takes for latents.

    Args:
        latents: of an image.
        factor: that they are divided by.
        shift: then added.
    """
    return array("f", [x / factor + shift for x in latents])


def groups(rows: int, together: int) -> list[list[int]]:
    """The rows of each run of a graph that takes so many together; the last one fills a run."""
    return [[min(at + i, rows - 1) for i in range(together)] for at in range(0, rows, together)]
