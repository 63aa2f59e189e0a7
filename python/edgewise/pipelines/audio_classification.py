"""Public names of host/pipelines/audio_classification.py."""

from ..host.pipelines.audio_classification import AudioClassificationPipeline

__all__ = ["AudioClassificationPipeline"]
