"""Public names of compiler/onnx/__init__.py."""

from ..compiler.onnx import BytesSource, FileSource, JsBufferSource, Source, as_source, read_model
from ..compiler.onnx import __getattr__ as __getattr__

__all__ = ["BytesSource", "FileSource", "JsBufferSource", "Source", "as_source", "read_model"]
