"""Public names of host/pipelines/fill_mask.py."""

from ..host.pipelines.fill_mask import FillMaskPipeline

__all__ = ["FillMaskPipeline"]
