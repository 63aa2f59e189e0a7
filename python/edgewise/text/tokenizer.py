"""Public names of host/text/tokenizer.py."""

from ..host.text.tokenizer import ChatTemplate, Tokenizer

__all__ = ["ChatTemplate", "Tokenizer"]
