"""How a family of language models that hear writes sounds into prompts: from config.json,
processor_config.json and preprocessor_config.json to a SoundRule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...logic.multimodal.families.sounds import SoundRule
from .audio import AudioProcessor

Fields = Mapping[str, Any]
HIDDEN = (("hidden_size", 1280),)  # and its default


def sound_rule(processor: AudioProcessor, config: Fields, settings: Fields) -> SoundRule:
    """The rule of a model.

    Args:
        processor: of sound.
        config, settings: contents of config.json and processor_config.json.

    Raises:
        InputError: its family is not known, or a number is not valid.
    """
    size = processor.length.exact
    kind = config.get("model_type")
    if processor.kind != "Whisper" or size is None:
        raise InputError(
            f"its features are those of {processor.kind}",
            "preprocessor_config.json",
            "Models hear windows of WhisperFeatureExtractor.",
        )
    audio = config.get("audio_config")
    audio = audio if isinstance(audio, dict) else {}
    positions = _number(audio, "max_source_positions", 1500)
    hop = size // (2 * positions)
    if kind == "voxtral":
        wide, narrow = (_number(audio, n, d) for n, d in (("intermediate_size", 5120), *HIDDEN))
        group = max(1, wide // narrow)  # of positions, side by side
        return {
            "placeholder": "[AUDIO]",
            "token": "[AUDIO]",
            "first": "[BEGIN_AUDIO]",
            "last": "",
            "size": size,
            "several": True,
            "count": positions // group,
            "steps": [],
        }
    if kind == "qwen2_audio":
        token = settings.get("audio_token")
        token = token if isinstance(token, str) and token else "<|AUDIO|>"
        return {
            "placeholder": token,
            "token": token,
            "first": "",
            "last": "",
            "size": size,
            "several": False,
            "count": (positions - 2) // 2 + 1,
            # frames of features, of the encoder, and after pooling
            "steps": [(hop, hop - 1, 0), (2, -1, 1), (2, -2, 1)],
        }
    raise InputError(
        f"the family {kind!r} is not known",
        "config.json",
        "Models that hear are Voxtral's and Qwen2-Audio's.",
    )


def _number(fields: Fields, name: str, default: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= 1 << 20:
        raise InputError(f"`{name}` is {value!r}", "config.json", "It must be an integer.")
    return value
