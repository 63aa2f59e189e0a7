"""Reading and writing ONNX files: protobuf wire format to Graph and back, weights left where they
lie.
"""

from .reader import read_model
from .source import BytesSource, FileSource, JsBufferSource, Source, as_source

__all__ = [
    "read_model",
    "ModelEditor",
    "as_source",
    "Source",
    "FileSource",
    "BytesSource",
    "JsBufferSource",
]


def __getattr__(name):  # running models needs no writer
    if name == "ModelEditor":
        from .writer import ModelEditor

        return ModelEditor
    raise AttributeError(f"module 'edgewise.onnx' has no attribute '{name}'")
