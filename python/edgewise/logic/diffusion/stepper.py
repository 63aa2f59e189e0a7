"""The steps of a scheduler, and how they are applied."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Factors", "Pair", "Schedule", "Step", "Stepper", "weighted"]

Pair = tuple[float, float]
Factors = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        timestep: input of the model.
        scale: the model's input is the latents times this.
        convert: (of the latents, of the model's output); their sum is kept, as "output" below.
        samples: ((age, factor), ...) of latents, where age 0 are the present ones.
        outputs: ((age, factor), ...) of kept outputs, where age 0 is this step's.
        noise: factor of new noise; 0: none is drawn.
        clean: (of the latents, of the model's output); their sum is the picture that the model
            expects.
        start: (of a picture's latents, of noise); their sum is the picture with the noise of this
            step.
    """

    timestep: float
    scale: float
    convert: Pair
    samples: Factors
    outputs: Factors
    noise: float
    clean: Pair
    start: Pair


@dataclass(frozen=True)
class Schedule:
    """All steps of a call.

    Attributes:
        steps: in their order.
        sigma: factor of the noise that latents begin with.
        start: (of a picture's latents, of noise); their sum is what image-to-image begins with.
    """

    steps: tuple[Step, ...]
    sigma: float
    start: Pair


class Stepper:
    """Applies the steps of a schedule to one picture's latents.

    Args:
        schedule: the steps.
        latents: float32 numbers, flat.

    Attributes:
        latents: the present ones. They may be replaced between steps.
        at: number of the next step.
    """

    def __init__(self, schedule: Schedule, latents: Sequence[float]) -> None:
        self.steps, self.at = schedule.steps, 0
        self.latents = array("f", latents)
        self.samples: list[Sequence[float]] = []  # the latest first
        self.outputs: list[Sequence[float]] = []

    def scaled(self) -> array[float]:
        """The model's input."""
        scale = self.steps[self.at].scale
        return self.latents if scale == 1 else array("f", [scale * x for x in self.latents])

    def clean(self, output: Sequence[float]) -> array[float]:
        """The picture that the model expects at this step.

        Args:
            output: of the model.
        """
        return weighted((self.latents, output), self.steps[self.at].clean)

    def step(self, output: Sequence[float], noise: Sequence[float] | None) -> None:
        """Replaces the latents by the next ones.

        Args:
            output: of the model.
            noise: normal numbers, if the step's factor of noise is not 0.
        """
        now = self.steps[self.at]
        kept = (
            output if now.convert == (0.0, 1.0) else weighted((self.latents, output), now.convert)
        )
        self.samples = [self.latents, *self.samples[:1]]
        self.outputs = [kept, *self.outputs[:4]]
        parts = [(self.samples[age], factor) for age, factor in now.samples]
        parts += [(self.outputs[age], factor) for age, factor in now.outputs]
        if now.noise and noise is not None:
            parts.append((noise, now.noise))
        self.latents = weighted([p for p, _ in parts], [f for _, f in parts])
        self.at += 1


def weighted(vectors: Sequence[Sequence[float]], factors: Sequence[float]) -> array[float]:
    """The sum of vectors times factors, from the first to the last, in float64."""
    first, factor = vectors[0], factors[0]
    total = [factor * x for x in first]
    for k in range(1, len(vectors)):
        vector, factor = vectors[k], factors[k]
        total = [t + factor * vector[i] for i, t in enumerate(total)]
    return array("f", total)
