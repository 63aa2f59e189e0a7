"""Extractors of the family of Kaldi's filter banks: frames of 25 ms every 10 ms, each without its
mean and with pre-emphasis, as a natural logarithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ..resampling import MAX_RATE
from . import spectrum
from .build import Builder, normalized, size_less_one
from .fields import Fields
from .filters import hamming, hann, mel_filters, povey
from .processor import AudioProcessor, Length, Mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...ir import Graph

FRAME, HOP, FFT = 400, 160, 512
EMPHASIS = 0.97
FLOOR = 1.192092955078125e-07
INT16 = 32768.0  # Kaldi's samples are integers


def _filter_bank(
    b: Builder, audio: str, window: list[float], mels: int, rate: int, scale: float
) -> str:
    """[1, frames, mels]. A frame x becomes (x[i] - m) - p (x[i - 1] - m), where m is its mean, and
    (1 - p) (x[0] - m).

    Up to the logarithm it is computed in float64: where speech has little energy, float32 leaves
    three digits of it.
    """
    frames = spectrum.frames(b, b.op("Cast", audio, to=DOUBLE), FRAME, HOP)
    frames = b.op("Sub", frames, b.op("ReduceMean", frames, b.indices(1), keepdims=1))
    first = b.op("Slice", frames, b.indices(0), b.indices(1), b.indices(1))
    shifted = b.op("Slice", frames, b.indices(0), b.indices(-1), b.indices(1))
    before = b.op("Concat", first, shifted, axis=1)
    emphasized = b.op("Sub", frames, b.op("Mul", before, b.constant([EMPHASIS], [], DOUBLE)))
    power = spectrum.power(b, emphasized, window, FFT, scale=scale, dtype=DOUBLE)
    filters = mel_filters(FFT // 2 + 1, mels, 20, rate // 2, rate, "kaldi")
    mel = spectrum.mel(b, power, filters, DOUBLE)
    log = b.op("Log", b.op("Max", b.op("Cast", mel, to=FLOAT), b.scalar(FLOOR)))
    return b.op("Unsqueeze", log, b.indices(0))


def spectrogram_transformer(config: Mapping[str, Any]) -> AudioProcessor:
    """ASTFeatureExtractor: frames beyond the end of the sound are 0 before normalization.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "ASTFeatureExtractor")
    f.common()
    f.only("feature_size", 1)
    rate, mels = f.integer("sampling_rate", 16000, 1000, MAX_RATE), f.integer("num_mel_bins", 128)
    frames = f.integer("max_length", 1024, 1, 1 << 16)
    normalize = f.flag("do_normalize", True)
    mean, std = f.number("mean", -4.2677393, -1e6, 1e6), f.number("std", 4.5689974, 1e-6, 1e6)
    f.only("return_attention_mask", False)
    f.finish()
    samples = FRAME + HOP * (frames - 1)

    def build() -> Graph:
        b = Builder("spectrogram_transformer")
        audio, valid = b.input("audio", [1, samples]), b.input("valid", [1], INT64)
        bank = _filter_bank(b, audio, hann(FRAME, False), mels, rate, 1.0)
        number = b.constant(range(frames), [1, frames, 1], INT64)
        x = b.op("Where", b.op("Less", number, valid), bank, b.scalar(0.0))
        if normalize:
            x = b.op("Mul", b.op("Sub", x, b.scalar(mean)), b.scalar(1 / (2 * std)))
        b.output("input_values", x, [1, frames, mels])
        return b.graph

    length = Length(exact=samples, least=FRAME)
    return AudioProcessor("AST", rate, length, build, frames=(FRAME, HOP))


def seamless(config: Mapping[str, Any]) -> AudioProcessor:
    """SeamlessM4TFeatureExtractor: `stride` frames are one row of the result.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "SeamlessM4TFeatureExtractor")
    mels = f.integer("num_mel_bins", 80, 1, 1024)
    padding = f.number("padding_value", 0, -1e6, 1e6)
    f.only("padding_side", "right")
    rate = f.integer("sampling_rate", 16000, 1000, MAX_RATE)
    f.only("stride", 2)
    f.only("return_attention_mask", True, False)  # it is always returned
    f.unused("feature_size")
    f.finish()

    def build() -> Graph:
        b = Builder("seamless")
        audio = b.input("audio", [1, "samples"])
        bank = _filter_bank(b, audio, povey(FRAME), mels, rate, INT16)
        even = normalized(b, bank, 1, 1e-7, sample=size_less_one(b, bank, 1), inside=True)
        # A frame of padding is added, and cut off where there is an even number without it.
        more = b.op("Pad", even, b.indices(0, 0, 0, 0, 1, 0), b.scalar(padding))
        shape = b.op("Shape", more, start=1, end=2)
        pairs = b.op("Div", shape, b.indices(2))
        cut = b.op("Slice", more, b.indices(0), b.op("Mul", pairs, b.indices(2)), b.indices(1))
        out = b.op("Reshape", cut, b.op("Concat", b.indices(1), pairs, b.indices(2 * mels), axis=0))
        b.output("input_features", out, [1, "pairs", 2 * mels])
        return b.graph

    mask = Mask("attention_mask", HOP, FRAME, 1, 1, 2)
    return AudioProcessor("SeamlessM4T", rate, Length(least=FRAME + HOP), build, mask=mask)


def wespeaker(config: Mapping[str, Any]) -> AudioProcessor:
    """WeSpeakerFeatureExtractor of transformers.js: Hamming's window, without the mean of each
    filter over time.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "WeSpeakerFeatureExtractor")
    f.common()
    rate, mels = f.integer("sampling_rate", 16000, 1000, MAX_RATE), f.integer("num_mel_bins", 80)
    f.only("fbank_centering_span", None)
    f.only("min_num_frames", 9)
    f.only("return_attention_mask", False)
    f.unused("feature_size")
    f.finish()

    def build() -> Graph:
        b = Builder("wespeaker")
        audio = b.input("audio", [1, "samples"])
        bank = _filter_bank(b, audio, hamming(FRAME), mels, rate, INT16)
        out = b.op("Sub", bank, b.op("ReduceMean", bank, b.indices(1), keepdims=1))
        b.output("input_features", out, [1, "frames", mels])
        return b.graph

    return AudioProcessor("WeSpeaker", rate, Length(least=FRAME + 8 * HOP), build)
