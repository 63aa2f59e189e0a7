"""Edgewise: runs and trains ONNX models, in a web page as on a desktop."""

from __future__ import annotations

from .arrays import Array
from .errors import EdgewiseError
from .session import InferenceSession, RunOptions, SessionOptions

__version__ = "0.1.0"


def __getattr__(name: str) -> object:  # imported on first use, to keep `import edgewise` fast
    if name in ("pipeline", "TextGenerationPipeline"):
        from . import pipelines

        return getattr(pipelines, name)
    if name in ("generate", "GenerationConfig", "TextStreamer", "TextIteratorStreamer"):
        from . import text

        return getattr(text, name)
    if name in ("Trainer", "LoraConfig", "merge_adapter"):
        from . import training

        return getattr(training, name)
    if name == "personalize":
        from .pipelines.personal import personalize

        return personalize
    if name == "open_engine":
        from .devices import open_engine

        return open_engine
    if name == "CausalLM":
        from .training.adapters import CausalLM

        return CausalLM
    raise AttributeError(f"module 'edgewise' has no attribute '{name}'")


__all__ = [
    "Array",
    "CausalLM",
    "EdgewiseError",
    "GenerationConfig",
    "InferenceSession",
    "LoraConfig",
    "RunOptions",
    "SessionOptions",
    "TextGenerationPipeline",
    "TextIteratorStreamer",
    "TextStreamer",
    "Trainer",
    "generate",
    "merge_adapter",
    "open_engine",
    "personalize",
    "pipeline",
]
