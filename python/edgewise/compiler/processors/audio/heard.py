"""Features of models that hear recordings of any length: filter banks of NeMo, of Kaldi as k2's
models take them, and of GigaAM. Samples after the sound do not count, so a plan for longer sounds
gives the same features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...declare.dtypes import BOOL, DOUBLE, FLOAT, INT32, INT64
from . import spectrum
from .build import Builder
from .filters import hann, mel_filters, povey
from .processor import Length

if TYPE_CHECKING:
    from ...ir import Graph

EPSILON = 1e-5  # of the deviation


@dataclass(frozen=True)
class Recipe:
    """How samples become features.

    Attributes:
        kind: "nemo": emphasis of the sound, zeros around it, each filter with mean 0 and
            deviation 1; "kaldi": frames without their mean and with emphasis, the sound mirrored
            at its ends; "gigaam": neither; the sound is reflected where `around` is not 0;
            "samples": none.
        rate: Hz.
        mels: number of filters.
        fft, frame, hop: samples of the transform, of a window and from one to the next.
        around: samples before the first sample of the sound.
        emphasis: of the sound or of a frame.
        coarse: whether windows and filters are bfloat16, as in GigaAM 3's files.
        normalized: whether each filter of "nemo" gets mean 0 and deviation 1.
    """

    kind: Literal["nemo", "kaldi", "gigaam", "samples"]
    rate: int = 16000
    mels: int = 80
    fft: int = 512
    frame: int = 400
    hop: int = 160
    around: int = 256
    emphasis: float = 0.97
    coarse: bool = False
    normalized: bool = True

    @property
    def length(self) -> Length:
        """How many samples there must be."""
        least = {"nemo": 2 * self.hop, "samples": 1}.get(self.kind, self.frame)
        return Length(least=least, multiple=1 if self.kind == "samples" else self.hop)

    def frames(self, count: str | int, b: Builder | None = None) -> str | int:
        """The number of frames of so many samples: of a number, or of a tensor of a graph."""
        shift = {"nemo": 0, "samples": 0, "kaldi": self.hop // 2}.get(
            self.kind, 2 * self.around - self.frame
        )
        more = 0 if self.kind in ("nemo", "samples", "kaldi") else 1
        hop = 1 if self.kind == "samples" else self.hop
        if isinstance(count, int):
            return (count + shift) // hop + more
        assert b is not None
        found = b.op("Div", b.op("Add", count, b.indices(shift)), b.indices(hop))
        return b.op("Add", found, b.indices(more)) if more else found


def nemo(mels: int = 80, emphasis: float = 0.97) -> Recipe:
    """Features of NeMo's Conformers: Parakeet, Canary, Nemotron."""
    return Recipe("nemo", mels=mels, emphasis=emphasis)


KALDI = Recipe("kaldi", around=120)
GIGAAM = {
    "v2": Recipe("gigaam", mels=64, fft=400, around=200, emphasis=0.0),
    "v3": Recipe("gigaam", mels=64, fft=320, frame=320, around=0, emphasis=0.0, coarse=True),
}


@dataclass(frozen=True)
class Wanted:
    """The inputs of a model that the graph makes.

    Attributes:
        features: name and type, and whether filters are before frames in its shape.
        length: name and type of the number of frames; None: there is none.
        mask: name and type of ones for the frames of the sound, then zeros; None: there is none.
    """

    features: tuple[str, int]
    turned: bool
    length: tuple[str, int] | None
    mask: tuple[str, int] | None


def heard(recipe: Recipe, wanted: Wanted) -> Graph:
    """The graph from `audio`, [1, n] or rows of a hop [n / hop, hop], and `valid` [1], the number
    of samples of the sound, to the inputs of a model.
    """
    b = Builder("features")
    unit = recipe.length.multiple
    audio = b.input("audio", [1, "samples"] if unit == 1 else ["hops", unit])
    if unit > 1:
        audio = b.op("Reshape", audio, b.indices(1, -1))
    valid = b.input("valid", [1], INT64)
    count = str(recipe.frames(valid, b))
    if recipe.kind == "samples":
        rows, size = audio, b.op("Shape", audio, start=1, end=2)
    else:
        make = {"nemo": _nemo, "kaldi": _kaldi, "gigaam": _gigaam}[recipe.kind]
        table = make(b, recipe, audio, valid)
        size = b.op("Shape", table, start=0, end=1)
        inside = below(b, size, count)
        if recipe.kind == "nemo" and recipe.normalized:
            table = _normalized(b, table, inside, count)
        kept = b.op("Mul", table, b.op("Unsqueeze", inside, b.indices(1)))
        rows = b.op("Unsqueeze", kept, b.indices(0))
    name, dtype = wanted.features
    shape: list[int | str] = [1, "frames", recipe.mels]
    if recipe.kind == "samples":
        shape = [1, "samples"]
    elif wanted.turned:
        rows, shape = b.op("Transpose", rows, perm=[0, 2, 1]), [1, recipe.mels, "frames"]
    b.output(name, rows if dtype == FLOAT else b.op("Cast", rows, to=dtype), shape, dtype)
    if wanted.length is not None:
        name, dtype = wanted.length
        b.output(name, count if dtype == INT64 else b.op("Cast", count, to=dtype), [1], dtype)
    if wanted.mask is not None:
        name, dtype = wanted.mask
        ones = b.op("Unsqueeze", below(b, size, count), b.indices(0))
        b.output(name, b.op("Cast", ones, to=dtype), [1, "frames"], dtype)
    return b.graph


MASKS = (BOOL, INT32, INT64, FLOAT)  # types of a mask


def _counting(b: Builder, size: str) -> str:
    """[0, 1, ...], as many as the number [1] says."""
    zero, one = b.constant([0], [], INT64), b.constant([1], [], INT64)
    return b.op("Range", zero, b.op("Squeeze", size), one)


def below(b: Builder, size: str, count: str) -> str:
    """Ones, as many as count [1] says, and zeros: float32, size [1] in all."""
    return b.op("Cast", b.op("Less", _counting(b, size), count), to=FLOAT)


def _nemo(b: Builder, recipe: Recipe, audio: str, valid: str) -> str:
    """Logarithms [frames, mels]: torch.stft centres a window that is shorter than its transform."""
    size = b.op("Shape", audio, start=1, end=2)
    if recipe.emphasis:
        before = b.op("Pad", audio, b.indices(0, 1, 0, -1))
        audio = b.op("Sub", audio, b.op("Mul", before, b.scalar(recipe.emphasis)))
    audio = b.op("Mul", audio, below(b, size, valid))
    left = recipe.around - (recipe.fft - recipe.frame) // 2
    audio = b.op("Pad", audio, b.indices(0, left, 0, recipe.frame - left))
    filters = mel_filters(
        recipe.fft // 2 + 1,
        recipe.mels,
        0,
        recipe.rate / 2,
        recipe.rate,
        "slaney",
        slaney_norm=True,
    )
    frames = spectrum.frames(b, audio, recipe.frame, recipe.hop)
    power = spectrum.power(b, frames, hann(recipe.frame, False), recipe.fft)
    return b.op("Log", b.op("Add", spectrum.mel(b, power, filters), b.scalar(2.0**-24)))


def _normalized(b: Builder, table: str, inside: str, count: str) -> str:
    """Each filter with mean 0 and deviation 1 over the frames of the sound."""
    number = b.op("Cast", count, to=FLOAT)
    rows, axes = b.op("Unsqueeze", inside, b.indices(1)), b.indices(0)
    total = b.op("ReduceSum", b.op("Mul", table, rows), axes, keepdims=1)
    centred = b.op("Mul", b.op("Sub", table, b.op("Div", total, number)), rows)
    squares = b.op("ReduceSum", b.op("Mul", centred, centred), axes, keepdims=1)
    variance = b.op("Div", squares, b.op("Sub", number, b.scalar(1.0)))
    deviation = b.op("Add", b.op("Sqrt", variance), b.scalar(EPSILON))
    return b.op("Div", centred, deviation)


def around(b: Builder, audio: str, valid: str, before: int, after: int, edge: int) -> str:
    """The sound [1, n] with samples before and after it, mirrored at its ends. edge: 1: the last
    sample is there twice; 0: once.
    """
    size = b.op("Add", b.op("Shape", audio, start=1, end=2), b.indices(before + after))
    at = b.op("Sub", _counting(b, size), b.indices(before))
    at = b.op("Where", b.op("Less", at, b.indices(0)), b.op("Sub", b.indices(-edge), at), at)
    last = b.op("Sub", valid, b.indices(1))
    back = b.op("Sub", b.op("Add", b.op("Mul", last, b.indices(2)), b.indices(edge)), at)
    at = b.op("Where", b.op("Greater", at, last), back, at)
    at = b.op("Min", b.op("Max", at, b.indices(0)), last)
    return b.op("Gather", audio, at, axis=1)


def _kaldi(b: Builder, recipe: Recipe, audio: str, valid: str) -> str:
    """Logarithms [frames, mels]; in float64 up to there, since float32 leaves three digits where
    speech has little energy.
    """
    after = recipe.frame // 2
    audio = around(b, audio, valid, recipe.around, after, 1)
    frames = spectrum.frames(b, b.op("Cast", audio, to=DOUBLE), recipe.frame, recipe.hop)
    frames = b.op("Sub", frames, b.op("ReduceMean", frames, b.indices(1), keepdims=1))
    first = b.op("Slice", frames, b.indices(0), b.indices(1), b.indices(1))
    before = b.op("Slice", frames, b.indices(0), b.indices(-1), b.indices(1))
    before = b.op("Concat", first, before, axis=1)
    emphasis = b.constant([recipe.emphasis], [], DOUBLE)
    frames = b.op("Sub", frames, b.op("Mul", before, emphasis))
    power = spectrum.power(b, frames, povey(recipe.frame), recipe.fft, dtype=DOUBLE)
    filters = mel_filters(recipe.fft // 2 + 1, recipe.mels, 20, 7600, recipe.rate, "kaldi")
    mel = b.op("Cast", spectrum.mel(b, power, filters, DOUBLE), to=FLOAT)
    return b.op("Log", b.op("Max", mel, b.scalar(2.0**-23)))


def _gigaam(b: Builder, recipe: Recipe, audio: str, valid: str) -> str:
    """Logarithms [frames, mels]."""
    if recipe.around:
        audio = around(b, audio, valid, recipe.around, recipe.around, 0)
    frames = spectrum.frames(b, audio, recipe.frame, recipe.hop)
    window = hann(recipe.frame, True)
    filters = mel_filters(recipe.fft // 2 + 1, recipe.mels, 0, recipe.rate / 2, recipe.rate, "htk")
    if recipe.coarse:
        window, filters = _bfloat16(window), [_bfloat16(row) for row in filters]
    power = spectrum.power(b, frames, window, recipe.fft)
    mel = b.op("Max", spectrum.mel(b, power, filters), b.scalar(1e-9))
    return b.op("Log", b.op("Min", mel, b.scalar(1e9)))


def _bfloat16(values: list[float]) -> list[float]:
    """The nearest bfloat16 of numbers from 0 to 1; the even one of two."""
    found = []
    for value in values:
        mantissa, exponent = math.frexp(value)
        found.append(math.ldexp(round(mantissa * 256), exponent - 8))
    return found


def samples_of(recipe: Recipe, subsampling: int) -> int:
    """Samples of a frame of an encoder's output."""
    return math.prod((1 if recipe.kind == "samples" else recipe.hop, subsampling))
