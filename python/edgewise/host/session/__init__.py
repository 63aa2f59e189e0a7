"""Runs models: `InferenceSession` any graph, `DecoderModel` language models with their caches."""

from .face.node_arg import NodeArg
from .face.options import RunOptions, SessionOptions
from .inference import InferenceSession

__all__ = ["InferenceSession", "NodeArg", "RunOptions", "SessionOptions"]
