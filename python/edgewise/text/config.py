"""Public names of host/text/config.py."""

from ..host.text.config import GenerationConfig

__all__ = ["GenerationConfig"]
