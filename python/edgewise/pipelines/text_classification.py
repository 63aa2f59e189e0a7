"""Public names of host/pipelines/text_classification.py."""

from ..host.pipelines.text_classification import (
    TextClassificationPipeline,
    ZeroShotClassificationPipeline,
)

__all__ = ["TextClassificationPipeline", "ZeroShotClassificationPipeline"]
