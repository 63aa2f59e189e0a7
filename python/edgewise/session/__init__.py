"""Running models: `InferenceSession` for any graph, `CausalLM` for text generation with a cache."""

from .inference import InferenceSession, NodeArg, RunOptions, SessionOptions

__all__ = ["InferenceSession", "NodeArg", "RunOptions", "SessionOptions"]
