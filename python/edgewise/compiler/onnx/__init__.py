"""Reading and writing of ONNX files; weights stay in the files."""

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


def __getattr__(name: str) -> object:  # running models needs no editor
    if name == "ModelEditor":
        from .editor import ModelEditor

        return ModelEditor
    raise AttributeError(f"module 'edgewise.onnx' has no attribute '{name}'")
