"""Public names of host/pipelines/text_generation.py."""

from ..host.pipelines.text_generation import TextGenerationPipeline

__all__ = ["TextGenerationPipeline"]
