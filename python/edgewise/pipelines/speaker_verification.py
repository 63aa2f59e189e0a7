"""Public names of host/pipelines/speaker_verification.py."""

from ..host.pipelines.speaker_verification import SpeakerVerificationPipeline, equal_error_rate

__all__ = ["SpeakerVerificationPipeline", "equal_error_rate"]
