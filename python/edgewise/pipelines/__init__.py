"""Public names of host/pipelines/__init__.py."""

from ..host.pipelines import __getattr__ as __getattr__
from ..host.pipelines import pipeline

__all__ = ["pipeline"]
