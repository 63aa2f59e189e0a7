"""Public names of host/pipelines/feature_extraction.py."""

from ..host.pipelines.feature_extraction import FeatureExtractionPipeline, TextIndex

__all__ = ["FeatureExtractionPipeline", "TextIndex"]
