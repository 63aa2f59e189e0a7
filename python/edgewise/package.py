"""Public names of compiler/package.py."""

from .compiler.package import MAGIC, SUM, Package, SourceRange

__all__ = ["MAGIC", "Package", "SUM", "SourceRange"]
