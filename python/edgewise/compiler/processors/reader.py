"""preprocessor_config.json -> processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .audio import EXTRACTORS, AudioProcessor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["audio_processor", "voice_settings"]

PART = [160, 40]  # frames and mels that Resemblyzer's encoder takes


def audio_processor(config: Mapping[str, Any]) -> AudioProcessor:
    """The processor of sound that a configuration describes.

    Args:
        config: contents of preprocessor_config.json; of a processor_config.json the part
            `feature_extractor`.

    Raises:
        InputError: its type is not supported, or a field is unknown or not valid.
    """
    config = config.get("feature_extractor", config) if isinstance(config, dict) else {}
    config = config if isinstance(config, dict) else {}
    kind = config.get("feature_extractor_type")
    if not isinstance(kind, str) or kind not in EXTRACTORS:
        raise InputError(
            f"the feature extractor {kind!r} is not supported"
            if kind
            else "there is no feature_extractor_type",
            "preprocessor_config.json",
            f"Supported are {', '.join(EXTRACTORS)}.",
        )
    return EXTRACTORS[kind](config)


def voice_settings(shapes: Sequence[Sequence[int | str | None]]) -> dict[str, Any]:
    """The settings of a model of voices that has no preprocessor_config.json, by its inputs: those
    of Resemblyzer's encoder, which is published without; {} for others.

    Args:
        shapes: of the inputs; what is no integer is of any size.
    """
    if len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][2] != PART[1]:
        return {}
    frames = shapes[0][1]
    if isinstance(frames, int) and frames != PART[0]:
        return {}
    return {"feature_extractor_type": "ResemblyzerFeatureExtractor"}
