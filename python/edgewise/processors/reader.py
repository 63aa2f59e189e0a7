"""Public names of compiler/processors/reader.py."""

from ..compiler.processors.reader import audio_processor

__all__ = ["audio_processor"]
