"""`edgewise.text`, a public name of host/text: configuration, the loop, streamers, tokenizers."""

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
