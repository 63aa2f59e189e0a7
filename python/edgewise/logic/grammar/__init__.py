"""Formats of generated text: JSON schemas, regular expressions and grammars."""
