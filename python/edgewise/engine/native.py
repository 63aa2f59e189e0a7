"""Public names of host/engine/native.py."""

from ..host.engine.native import NativeEngine, library_path

__all__ = ["NativeEngine", "library_path"]
