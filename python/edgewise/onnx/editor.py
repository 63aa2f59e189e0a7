"""Public names of compiler/onnx/editor.py."""

from ..compiler.onnx.editor import MAX_MODEL, GraphField, ModelEditor

__all__ = ["GraphField", "MAX_MODEL", "ModelEditor"]
