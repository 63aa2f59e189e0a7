"""Public names of compiler/processors/audio/__init__.py."""

from ...compiler.processors.audio import EXTRACTORS, AudioProcessor, Length, Mask, Windows

__all__ = ["AudioProcessor", "EXTRACTORS", "Length", "Mask", "Windows"]
