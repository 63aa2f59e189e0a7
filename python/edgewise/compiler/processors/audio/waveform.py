"""Extractors whose models take samples: wav2vec2 and its relatives, codecs, pyannote."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..resampling import MAX_RATE
from .build import Builder, normalized
from .fields import Fields
from .processor import AudioProcessor, Length, Mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...ir import Graph


def _samples(name: str, normalize: bool = False) -> Callable[[], Graph]:
    """Makes the graph that passes samples [1, n] on, if asked with zero mean and variance 1."""

    def build() -> Graph:
        b = Builder("waveform")
        audio = b.input("audio", [1, "samples"])
        out = normalized(b, audio, 1, 1e-7, inside=True) if normalize else audio
        b.output(name, out, [1, "samples"])
        return b.graph

    return build


def _channels(channels: int, name: str = "input_values") -> Callable[[], Graph]:
    """Makes the graph of models that take [1, channels, n]."""

    def build() -> Graph:
        b = Builder("channels")
        if channels == 1:
            audio = b.op("Unsqueeze", b.input("audio", [1, "samples"]), b.indices(1))
        else:
            audio = b.input("audio", [1, channels, "samples"])
        b.output(name, audio, [1, channels, "samples"])
        return b.graph

    return build


def wav2vec2(config: Mapping[str, Any]) -> AudioProcessor:
    """Wav2Vec2FeatureExtractor, also of HuBERT, WavLM, UniSpeech, Data2Vec and Moonshine.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f, rate = _mono(config, "Wav2Vec2FeatureExtractor")
    normalize = f.flag("do_normalize", True)
    mask = Mask("attention_mask") if f.flag("return_attention_mask", False) else None
    f.finish()
    build = _samples("input_values", normalize)
    return AudioProcessor("Wav2Vec2", rate, Length(), build, mask=mask)


def moonshine(config: Mapping[str, Any]) -> AudioProcessor:
    """MoonshineFeatureExtractor of transformers.js: the samples.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f, rate = _mono(config, "MoonshineFeatureExtractor")
    f.only("do_normalize", False)
    mask = Mask("attention_mask") if f.flag("return_attention_mask", False) else None
    f.finish()
    return AudioProcessor("Moonshine", rate, Length(), _samples("input_values"), mask=mask)


def of_frames(processor: AudioProcessor, config: Mapping[str, Any]) -> AudioProcessor:
    """The processor of Moonshine for streams, whose encoder takes whole frames: silence after the
    samples completes the last one, and the mask leaves it out. Other processors are unchanged.

    Args:
        processor: of the samples.
        config: the model's.
    """
    if config.get("model_type") != "moonshine_streaming":
        return processor
    encoder = config.get("encoder_config")
    f = Fields(encoder if isinstance(encoder, dict) else {}, "config.json's encoder_config")
    rate = f.integer("sample_rate", 16000, 1000, MAX_RATE)
    frame = max(1, round(rate * f.number("frame_ms", 5.0, 0.1, 1000) / 1000))
    length = Length(multiple=frame, least=frame)
    return dataclasses.replace(processor, length=length, mask=Mask("attention_mask"))


def speecht5(config: Mapping[str, Any]) -> AudioProcessor:
    """SpeechT5FeatureExtractor of inputs (its targets, spectrograms, are for training).

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f, rate = _mono(config, "SpeechT5FeatureExtractor")
    normalize = f.flag("do_normalize", False)
    mask = Mask("attention_mask") if f.flag("return_attention_mask", True) else None
    f.unused("num_mel_bins", "hop_length", "win_length", "win_function", "frame_signal_scale")
    f.unused("fmin", "fmax", "mel_floor", "reduction_factor", "sample_size", "sample_stride")
    f.unused("n_fft", "n_freqs")
    f.finish()
    build = _samples("input_values", normalize)
    return AudioProcessor("SpeechT5", rate, Length(), build, mask=mask)


def encodec(config: Mapping[str, Any]) -> AudioProcessor:
    """EncodecFeatureExtractor: padded to whole chunks where the model works in chunks.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "EncodecFeatureExtractor")
    f.common()
    channels = f.integer("feature_size", 1, 1, 2)
    rate = f.integer("sampling_rate", 24000, 1000, MAX_RATE)
    seconds, overlap = f.optional("chunk_length_s", 1e-3, 3600), f.optional("overlap", 0, 0.999)
    f.only("return_attention_mask", True, False)  # the mask is called padding_mask
    f.finish()
    length = Length()
    if seconds is not None and overlap is not None:
        chunk = int(seconds * rate)
        length = Length(chunk=chunk, stride=max(1, int((1.0 - overlap) * chunk)))
    mask = Mask("padding_mask")
    return AudioProcessor("Encodec", rate, length, _channels(channels), channels, mask)


def dac(config: Mapping[str, Any]) -> AudioProcessor:
    """DacFeatureExtractor, and SnacFeatureExtractor of transformers.js: padded to whole hops.

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f = Fields(config, "DacFeatureExtractor")
    f.common()
    f.only("feature_size", 1)
    rate, hop = f.integer("sampling_rate", 16000, 1000, MAX_RATE), f.integer("hop_length", 512)
    f.only("return_attention_mask", True, False)  # the mask is called padding_mask
    f.finish()
    mask = Mask("padding_mask")
    return AudioProcessor("Dac", rate, Length(multiple=hop), _channels(1), mask=mask)


def pyannote(config: Mapping[str, Any]) -> AudioProcessor:
    """PyAnnoteFeatureExtractor of transformers.js: samples [1, 1, n].

    Raises:
        InputError: a field is unknown or has a value that is not supported.
    """
    f, rate = _mono(config, "PyAnnoteFeatureExtractor")
    f.only("return_attention_mask", False)
    f.unused("offset", "step")  # of its post-processing
    f.finish()
    return AudioProcessor("PyAnnote", rate, Length(), _channels(1))


def _mono(config: Mapping[str, Any], name: str) -> tuple[Fields, int]:
    """The fields of an extractor of one channel, and its sampling rate."""
    f = Fields(config, name)
    f.common()
    f.only("feature_size", 1)
    return f, f.integer("sampling_rate", 16000, 1000, MAX_RATE)
