"""Public names of host/pipelines/voice_activity.py."""

from ..host.pipelines.voice_activity import STATE, VoiceActivityPipeline, VoiceStream
from ..logic.post.voice_activity import WINDOWS as RATES
from ..logic.post.voice_activity import rules_of

__all__ = ["RATES", "STATE", "VoiceActivityPipeline", "VoiceStream", "rules_of"]
