"""Public names of compiler/package.py."""

from .compiler.package import Package, SourceRange
from .logic.manifest.package import MAGIC, SUM

__all__ = ["MAGIC", "Package", "SUM", "SourceRange"]
