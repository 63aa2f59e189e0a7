"""Public names of compiler/onnx/source.py."""

from ..compiler.onnx.source import (
    BytesSource,
    FileSource,
    JsBufferSource,
    LazyFileSource,
    MissingFile,
    Source,
    as_source,
    missing_file,
)

__all__ = [
    "BytesSource",
    "FileSource",
    "JsBufferSource",
    "LazyFileSource",
    "MissingFile",
    "Source",
    "as_source",
    "missing_file",
]
