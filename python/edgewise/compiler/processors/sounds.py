"""How a family of language models that hear writes sounds into prompts: from config.json,
processor_config.json and preprocessor_config.json to a SoundRule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InputError
from ...logic.multimodal.families.sounds import SoundRule
from .audio import AudioProcessor
from .audio.told import Told

Fields = Mapping[str, Any]
HIDDEN = (("hidden_size", 1280),)  # and its default


def sound_rule(
    processor: AudioProcessor, config: Fields, settings: Fields
) -> tuple[SoundRule, Told | None]:
    """The rule of a model, and its features if the encoder hears sounds of any length.

    Args:
        processor: of sound.
        config, settings: contents of config.json and processor_config.json.

    Raises:
        InputError: its family is not known, or a number is not valid.
    """
    kind = config.get("model_type")
    kind = kind if isinstance(kind, str) else ""
    if kind in _ANY:
        return _ANY[kind](processor, config, settings)
    size = processor.length.exact
    if kind not in ("voxtral", "qwen2_audio"):
        raise InputError(
            f"the family {config.get('model_type')!r} is not known",
            "config.json",
            "Models that hear are Voxtral's, Qwen2-Audio's, Ultravox', Granite Speech's and"
            " Qwen3-ASR's.",
        )
    if processor.kind != "Whisper" or size is None:
        raise _features(processor, "windows of WhisperFeatureExtractor")
    audio = _inner(config, "audio_config")
    positions = _number(audio, "max_source_positions", 1500)
    hop = size // (2 * positions)
    if kind == "voxtral":
        wide, narrow = (_number(audio, n, d) for n, d in (("intermediate_size", 5120), *HIDDEN))
        group = max(1, wide // narrow)  # of positions, side by side
        rule = _rule("[AUDIO]", count=positions // group, size=size, several=True)
        rule["first"] = "[BEGIN_AUDIO]"
        return rule, None
    token = _text(settings, "audio_token", "<|AUDIO|>")
    rule = _rule(token, count=(positions - 2) // 2 + 1, size=size)
    # frames of features, of the encoder, and after pooling
    rule["steps"] = [(hop, hop - 1, 0), (2, -1, 1), (2, -2, 1)]
    return rule, None


def _ultravox(
    processor: AudioProcessor, config: Fields, settings: Fields
) -> tuple[SoundRule, Told | None]:
    """Ultravox: Whisper's encoder without the silence of its windows."""
    told = processor.told
    if processor.kind != "Whisper" or told is None:
        raise _features(processor, "those of WhisperFeatureExtractor")
    token = _text(settings, "audio_placeholder", "<|audio|>")
    positions = _number(_inner(config, "audio_config"), "max_source_positions", 1500)
    rule = _rule(token, size=2 * positions * told.hop, several=True)
    return _any(rule, told, flat=True), told


def _granite_speech(
    processor: AudioProcessor, config: Fields, settings: Fields
) -> tuple[SoundRule, Told | None]:
    if processor.kind != "GraniteSpeech" or processor.told is None:
        raise _features(processor, "those of GraniteSpeechFeatureExtractor")
    rule = _rule(_text(settings, "audio_token", "<|audio|>"))
    return _any(rule, processor.told, flat=True), processor.told


def _qwen3_asr(
    processor: AudioProcessor, config: Fields, settings: Fields
) -> tuple[SoundRule, Told | None]:
    """Qwen3-ASR: convolutions of blocks of 100 frames, and attention within windows of blocks."""
    if processor.told is None or processor.kind not in ("Qwen3ASR", "Whisper"):
        raise _features(processor, "those of Qwen3ASRFeatureExtractor")
    told = processor.told
    audio = _inner(_inner(config, "thinker_config") or config, "audio_config")
    block = 2 * _number(audio, "n_window", 50)
    if told.block == 1:  # WhisperFeatureExtractor, as in the repositories of Qwen
        told = Told(told.rate, told.mels, told.fft, told.frame, told.hop, block=block, least=8000)
    if told.block != block:
        raise InputError(
            f"its features have blocks of {told.block} frames, the encoder of {block}",
            "preprocessor_config.json",
            "Do config.json and preprocessor_config.json belong together?",
        )
    rule = _rule(_text(settings, "audio_token", "<|audio_pad|>"))
    rule["steps"] = [(told.hop, 0, 0), *[(2, -1, 1)] * 3]
    return _any(rule, told, block), told


_ANY: Mapping[str, Callable[..., tuple[SoundRule, Told | None]]] = {
    "ultravox": _ultravox,
    "granite_speech": _granite_speech,
    "qwen3_asr": _qwen3_asr,
}


def _rule(token: str, *, count: int = 0, size: int = 0, several: bool = False) -> SoundRule:
    return {
        "placeholder": token,
        "token": token,
        "first": "",
        "last": "",
        "size": size,
        "several": several,
        "count": count,
        "steps": [],
    }


def _any(rule: SoundRule, told: Told, block: int = 0, flat: bool = False) -> SoundRule:
    """The rule of an encoder of any length."""
    rule["any_length"] = {
        "unit": told.unit,
        "extra": told.extra,
        "least": told.least,
        "most": 0,
        "block": block,
    }
    rule["flat"] = flat
    return rule


def _features(processor: AudioProcessor, wanted: str) -> InputError:
    return InputError(
        f"its features are those of {processor.kind}",
        "preprocessor_config.json",
        f"The model's are {wanted}.",
    )


def _inner(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _text(fields: Fields, name: str, default: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) and value else default


def _number(fields: Fields, name: str, default: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= 1 << 20:
        raise InputError(f"`{name}` is {value!r}", "config.json", "It must be an integer.")
    return value
