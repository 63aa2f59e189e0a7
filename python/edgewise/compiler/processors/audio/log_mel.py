"""Extractors of the Hann family: Whisper, CLAP, Parakeet."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import BOOL
from ..resampling import MAX_RATE
from . import spectrum
from .build import Builder, normalized, padded, size_less_one
from .fields import Fields
from .filters import Matrix, hann, mel_filters
from .processor import AudioProcessor, Length, Mask, Windows
from .told import Told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...ir import Graph

PER_LN = 1 / math.log(10)
MAX_SAMPLES = 1 << 25  # of a graph with a fixed size


def whisper(config: Mapping[str, Any]) -> AudioProcessor:
    """WhisperFeatureExtractor. The variant "clip" is for windows of a longer clip, whose
    normalization depends on the whole clip: it takes `audio` [1, n_samples + n_fft - hop_length],
    which begins n_fft / 2 samples before the window (the host reflects the clip at its ends), and
    `floor` [1], the clip's maximum - 8. It has a second output `maximum` [1], so a first pass
    with any floor finds the maximum.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "WhisperFeatureExtractor")
    f.common()
    f.only("dither", 0, 0.0)
    mels, fft = f.integer("feature_size", 80, 1, 1024), f.integer("n_fft", 400, 16, 1 << 14)
    rate, hop = f.integer("sampling_rate", 16000, 1000, MAX_RATE), f.integer("hop_length", 160)
    seconds = f.integer("chunk_length", 30, 1, 3600)
    f.refuse("hop_length", hop > fft // 2, "It must be at most n_fft / 2.")
    f.refuse("chunk_length", seconds * rate > MAX_SAMPLES, "Make it shorter.")
    masked = f.flag("return_attention_mask", False)
    f.unused("n_samples", "nb_max_frames")
    f.finish()
    build = partial(_whisper_graph, mels, fft, hop, rate, seconds * rate)
    return AudioProcessor(
        "Whisper",
        rate,
        Length(exact=seconds * rate),
        partial(build, clip=False),
        mask=Mask("attention_mask", hop, 1 - hop) if masked else None,
        variants={"clip": partial(build, clip=True)},
        told=Told(rate, mels, fft, fft, hop),
    )


def _whisper_graph(mels: int, fft: int, hop: int, rate: int, samples: int, clip: bool) -> Graph:
    b, frames = Builder("whisper"), samples // hop
    if clip:  # with what lies around it; the frame after the last one is not computed
        audio = b.input("audio", [1, samples + fft - hop])
    else:
        audio = padded(b, b.input("audio", [1, samples]), fft // 2, fft // 2 - hop)
    filters = mel_filters(fft // 2 + 1, mels, 0, 8000.0, rate, "slaney", slaney_norm=True)
    mel = b.op("Max", _mel(b, audio, hann(fft, True), fft, hop, filters), b.scalar(1e-10))
    log = b.op("Mul", b.op("Log", mel), b.scalar(PER_LN))
    maximum = b.op("ReduceMax", log, keepdims=0)
    if clip:
        floor = b.input("floor", [1])
        b.output("maximum", b.op("Reshape", maximum, b.indices(1)), [1])
    else:
        floor = b.op("Sub", maximum, b.scalar(8.0))
    above = b.op("Max", b.op("Unsqueeze", log, b.indices(0)), floor)
    out = b.op("Mul", b.op("Add", above, b.scalar(4.0)), b.scalar(0.25))
    rows = b.op("Transpose", out, perm=[0, 2, 1])
    b.output("input_features", rows, [1, mels, frames])
    return b.graph


def _mel(b: Builder, audio: str, window: list[float], fft: int, hop: int, filters: Matrix) -> str:
    """[frames, mels] of audio [1, n]."""
    rows = spectrum.frames(b, audio, len(window), hop)
    return spectrum.mel(b, spectrum.power(b, rows, window, fft), filters)


def resemblyzer(config: Mapping[str, Any]) -> AudioProcessor:
    """Filter banks of Resemblyzer's speaker encoder, librosa's `melspectrogram` without a
    logarithm: {"feature_extractor_type": "ResemblyzerFeatureExtractor"}. A recording is divided
    into parts of 1.6 s, 1.3 of which begin each second, as by VoiceEncoder.embed_utterance.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "ResemblyzerFeatureExtractor")
    f.only("sampling_rate", 16000)
    f.finish()
    frames = 160
    size = 400 + 160 * (frames - 1)

    def build() -> Graph:
        b = Builder("resemblyzer")
        audio = b.input("audio", [1, size])
        filters = mel_filters(201, 40, 0, 8000.0, 16000, "slaney", slaney_norm=True)
        mel = _mel(b, audio, hann(400, True), 400, 160, filters)
        b.output("mels", b.op("Unsqueeze", mel, b.indices(0)), [1, frames, 40])
        return b.graph

    windows = Windows(size, 200, 160 * frames, 160, 160 * 77, 0.75)
    return AudioProcessor("Resemblyzer", 16000, Length(exact=size), build, windows=windows)


def clap(config: Mapping[str, Any]) -> AudioProcessor:
    """ClapFeatureExtractor. Of a longer clip with truncation "rand_trunc" the beginning is used,
    where transformers takes a random part; with "fusion", which mixes random parts, a longer clip
    is refused.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "ClapFeatureExtractor")
    f.common()
    mels, fft = f.integer("feature_size", 64, 1, 1024), f.integer("fft_window_size", 1024, 16)
    rate, hop = f.integer("sampling_rate", 48000, 1000, MAX_RATE), f.integer("hop_length", 480)
    seconds = f.integer("max_length_s", 10, 1, 3600)
    low = f.number("frequency_min", 0, 0, rate)
    high = f.number("frequency_max", 14000, 0, rate)
    f.refuse("frequency_max", high <= low, "It must be above frequency_min.")
    f.refuse("max_length_s", seconds * rate > MAX_SAMPLES, "Make it shorter.")
    fusion = f.choice("truncation", "fusion", "fusion", "rand_trunc") == "fusion"
    repeat = f.choice("padding", "repeatpad", "repeatpad", "repeat", "pad")
    f.only("return_attention_mask", False)
    f.unused("top_db", "nb_max_samples", "nb_frequency_bins", "chunk_length_s", "n_fft")
    f.finish()
    samples = seconds * rate
    length = Length(exact=samples, truncate=not fusion, repeat=repeat if repeat != "pad" else "")

    def build() -> Graph:
        b = Builder("clap")
        audio = padded(b, b.input("audio", [1, samples]), fft // 2, fft // 2)
        scale = "htk" if fusion else "slaney"
        filters = mel_filters(fft // 2 + 1, mels, low, high, rate, scale, slaney_norm=not fusion)
        mel = b.op("Max", _mel(b, audio, hann(fft, True), fft, hop, filters), b.scalar(1e-10))
        decibel = b.op("Mul", b.op("Log", mel), b.scalar(10 * PER_LN))
        rows = b.op("Unsqueeze", decibel, b.indices(0, 1))
        frames = samples // hop + 1
        if fusion:
            rows = b.op("Concat", rows, rows, rows, rows, axis=1)
            # transformers marks one clip of a batch without longer ones
            b.output("is_longer", b.constant([True], [1, 1], BOOL), [1, 1], BOOL)
        b.output("input_features", rows, [1, 4 if fusion else 1, frames, mels])
        return b.graph

    return AudioProcessor("Clap", rate, length, build)


def parakeet(config: Mapping[str, Any]) -> AudioProcessor:
    """ParakeetFeatureExtractor.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "ParakeetFeatureExtractor")
    f.common()
    mels, fft = f.integer("feature_size", 80, 1, 1024), f.integer("n_fft", 512, 16, 1 << 14)
    frame, hop = f.integer("win_length", 400, 2, fft), f.integer("hop_length", 160)
    rate = f.integer("sampling_rate", 16000, 1000, MAX_RATE)
    emphasis = f.optional("preemphasis", 0, 1, 0.97)
    f.only("return_attention_mask", True, False)  # it is always returned
    f.finish()

    def build() -> Graph:
        b = Builder("parakeet")
        audio = b.input("audio", [1, "samples"])
        if emphasis is not None:
            before = b.op("Pad", audio, b.indices(0, 1, 0, -1))
            audio = b.op("Sub", audio, b.op("Mul", before, b.scalar(emphasis)))
        start = (fft - frame) // 2  # torch.stft centres a shorter window
        left = fft // 2 - start
        audio = padded(b, audio, left, frame - left, "constant")
        filters = mel_filters(fft // 2 + 1, mels, 0, rate / 2, rate, "slaney", slaney_norm=True)
        mel = _mel(b, audio, hann(frame, False), fft, hop, filters)
        mel = b.op("Add", mel, b.scalar(2.0**-24))
        log = b.op("Unsqueeze", b.op("Log", mel), b.indices(0))
        # The last frame is padding: statistics are without it, and it becomes zero.
        kept = b.op("Slice", log, b.indices(0), b.indices(-1), b.indices(1))
        even = normalized(b, kept, 1, 1e-5, sample=size_less_one(b, kept, 1), inside=False)
        out = b.op("Pad", even, b.indices(0, 0, 0, 0, 1, 0))
        b.output("input_features", out, [1, "frames", mels])
        return b.graph

    mask = Mask("attention_mask", hop, more=1)
    return AudioProcessor("Parakeet", rate, Length(least=2 * hop), build, mask=mask)
