"""Text generation: configuration, the loop, streamers, tokenizers.

The choosing itself is core/sampling.
"""

from .config import GenerationConfig
from .generate import GenerateOutput, generate, generate_async, steps
from .streamers import TextIteratorStreamer, TextStreamer
from .tokenizer import ChatTemplate, Tokenizer

__all__ = [
    "ChatTemplate",
    "GenerateOutput",
    "GenerationConfig",
    "TextIteratorStreamer",
    "TextStreamer",
    "Tokenizer",
    "generate",
    "generate_async",
    "steps",
]
