"""Reading ONNX files: protobuf wire format to Graph, weights left where they lie."""
from .reader import read_model
from .source import BytesSource, FileSource, Source

__all__ = ["read_model", "Source", "FileSource", "BytesSource"]
