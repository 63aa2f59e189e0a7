"""Removal of spaces before punctuation from decoded texts."""

from __future__ import annotations


def clean_up(text: str) -> str:
    """clean_up_tokenization of transformers' tokenization_utils_base.py."""
    for old, new in (
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ):
        text = text.replace(old, new)
    return text
