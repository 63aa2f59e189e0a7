"""Public names of host/pipelines/vectors.py."""

from ..host.pipelines.vectors import VectorIndex

__all__ = ["VectorIndex"]
