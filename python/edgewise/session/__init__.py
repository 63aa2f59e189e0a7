"""Runs models: `InferenceSession` any graph, `DecoderModel` language models with their caches."""

from .inference import InferenceSession, NodeArg, RunOptions, SessionOptions

__all__ = ["InferenceSession", "NodeArg", "RunOptions", "SessionOptions"]
