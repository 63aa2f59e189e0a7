"""Reading ONNX files: protobuf wire format to Graph, weights left where they lie."""
from .reader import read_model
from .source import BytesSource, FileSource, JsBufferSource, Source, as_source

__all__ = ["read_model", "as_source", "Source", "FileSource", "BytesSource", "JsBufferSource"]
