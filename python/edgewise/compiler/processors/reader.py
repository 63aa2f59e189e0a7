"""preprocessor_config.json -> processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .audio import EXTRACTORS, AudioProcessor

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["audio_processor"]


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
