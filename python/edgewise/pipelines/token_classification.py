"""Public names of host/pipelines/token_classification.py."""

from ..host.pipelines.token_classification import TokenClassificationPipeline

__all__ = ["TokenClassificationPipeline"]
