"""Tokenizers that a package describes by more than a tokenizer.json, and texts of candidates."""
