"""What a model needs of sound: the samples that a graph gets, and that graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ....errors import InputError
from ....logic.speech.samples import total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ....logic.manifest.processor import AudioFields, SoundLength, SoundMask, SoundWindows
    from ...ir import Graph
    from .told import Told


@dataclass(frozen=True)
class Length:
    """How many samples the graph gets. What is added is zeros on the right.

    Attributes:
        exact: this many; None: as many as there are, and
        multiple: rounded up to a multiple of this;
        least: at least so many: fewer are refused;
        chunk, stride: rounded up to chunk + k * stride (chunk > 0).
        truncate: whether more than `exact` are cut; otherwise they are refused.
        repeat: fewer than `exact` are repeated first: "", "repeat" (and cut) or "repeatpad" (as
            often as they fit).
    """

    exact: int | None = None
    multiple: int = 1
    least: int = 1
    chunk: int = 0
    stride: int = 0
    truncate: bool = True
    repeat: str = ""


@dataclass(frozen=True)
class Mask:
    """A mask of ones and zeros [1, total], which is an input of the model.

    There are (padded samples - base) // hop + more steps, in groups of `group` (rounded up); a step
    is valid below (samples - base) // hop + valid, a group if its last step is.

    Attributes:
        name: "attention_mask" or "padding_mask".
    """

    name: str
    hop: int = 1
    base: int = 0
    valid: int = 0
    more: int = 0
    group: int = 1


@dataclass(frozen=True)
class Windows:
    """Overlapping parts of a recording, each of which the graph gets by itself. All in samples.

    Attributes:
        size: of the graph's input; zeros where there is no recording.
        before: how many of these lie before the part.
        span: of a part, without what lies around it.
        unit: parts begin at multiples of it;
        hop: from one part to the next, a multiple of `unit`.
        coverage: a last part with less than this share within the recording is left out.
    """

    size: int
    before: int
    span: int
    unit: int
    hop: int
    coverage: float


@dataclass(frozen=True)
class AudioProcessor:
    """A preprocessor_config.json of sound.

    Attributes:
        kind: its type, without "FeatureExtractor".
        sampling_rate: Hz.
        length: number of samples that the graph gets.
        build: makes the graph: input `audio`, float32 [1, samples]; if `frames` is set also
            `valid`, int64 [1]. Outputs: inputs of the model.
        channels: of the sound; several are [1, channels, samples].
        mask: a further input of the model.
        frames: (samples of a frame, hop): the graph has an input `valid`, the number of frames
            that lie within the sound.
        variants: {name: makes another graph}; Whisper's "clip".
        windows: parts that a recording is divided into, for voices.
        told: its features of sounds of any length, for language models.
    """

    kind: str
    sampling_rate: int
    length: Length
    build: Callable[[], Graph]
    channels: int = 1
    mask: Mask | None = None
    frames: tuple[int, int] | None = None
    variants: Mapping[str, Callable[[], Graph]] = field(default_factory=dict)
    windows: Windows | None = None
    told: Told | None = None

    def graph(self, variant: str = "") -> Graph:
        """The graph from samples to the model's inputs. Raises InputError: no such variant."""
        if variant and variant not in self.variants:
            raise InputError(
                f"{self.kind} has no variant {variant!r}", "processor", "Leave it out."
            )
        return self.variants[variant]() if variant else self.build()

    def total(self, count: int) -> int:
        """The number of samples that the graph gets for `count` samples.

        Raises:
            InputError: there are too few, or too many.
        """
        return total_of(self.description(), count)

    def description(self) -> AudioFields:
        """What happens before the graph, for packages: JSON that web/src/worker/pipelines reads."""
        out: AudioFields = {
            "type": self.kind,
            "sampling_rate": self.sampling_rate,
            "channels": self.channels,
            "length": cast("SoundLength", dict(vars(self.length))),
        }
        if self.mask is not None:
            out["mask"] = cast("SoundMask", dict(vars(self.mask)))
        if self.frames is not None:
            out["frames"] = self.frames
        if self.windows is not None:
            out["windows"] = cast("SoundWindows", dict(vars(self.windows)))
        return out
