"""Sound before a model: reading, resampling, and the graphs of transformers' feature extractors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .kaldi import seamless, spectrogram_transformer, wespeaker
from .log_mel import clap, parakeet, resemblyzer, whisper
from .processor import AudioProcessor, Length, Mask, Windows
from .told import granite_speech, qwen3_asr
from .waveform import dac, encodec, moonshine, of_frames, pyannote, speecht5, wav2vec2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["EXTRACTORS", "AudioProcessor", "Length", "Mask", "Windows", "of_frames"]

EXTRACTORS: dict[str, Callable[[Mapping[str, Any]], AudioProcessor]] = {
    "ASTFeatureExtractor": spectrogram_transformer,
    "ClapFeatureExtractor": clap,
    "DacFeatureExtractor": dac,
    "EncodecFeatureExtractor": encodec,
    "GraniteSpeechFeatureExtractor": granite_speech,
    "MoonshineFeatureExtractor": moonshine,
    "ParakeetFeatureExtractor": parakeet,
    "PyAnnoteFeatureExtractor": pyannote,
    "Qwen3ASRFeatureExtractor": qwen3_asr,
    "ResemblyzerFeatureExtractor": resemblyzer,
    "SeamlessM4TFeatureExtractor": seamless,
    "SnacFeatureExtractor": dac,
    "SpeechT5FeatureExtractor": speecht5,
    "Wav2Vec2FeatureExtractor": wav2vec2,
    "WeSpeakerFeatureExtractor": wespeaker,
    "WhisperFeatureExtractor": whisper,
}
"""{feature_extractor_type: makes its processor}"""
