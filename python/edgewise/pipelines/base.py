"""Public names of host/pipelines/base.py."""

from ..host.pipelines.base import Pipeline

__all__ = ["Pipeline"]
