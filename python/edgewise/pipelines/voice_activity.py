"""Public names of host/pipelines/voice_activity.py."""

from ..host.pipelines.voice_activity import (
    RATES,
    STATE,
    VoiceActivityPipeline,
    VoiceStream,
    rules_of,
)

__all__ = ["RATES", "STATE", "VoiceActivityPipeline", "VoiceStream", "rules_of"]
