"""Public names of host/text/generate.py."""

from ..host.text.generate import (
    GenerateOutput,
    Tokens,
    generate,
    generate_async,
    model_defaults,
    steps,
)

__all__ = ["GenerateOutput", "Tokens", "generate", "generate_async", "model_defaults", "steps"]
