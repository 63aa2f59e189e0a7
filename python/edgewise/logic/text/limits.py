"""Limits of tokenizer.json and chat templates, which are untrusted programs.

Real tokenizers stay far below them: the largest known ones have 65,536 added tokens, patterns of
3,000 characters and normalizers of 20 steps.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextLimits:
    """The limits, by name."""

    file_bytes: int = 1 << 28  # tokenizer.json
    config_bytes: int = 1 << 24  # each of the other JSON files
    depth: int = 64  # nested objects and lists, in tokenizer.json
    components: int = 256  # normalizers, pre-tokenizers, post-processors and decoders in total
    content_chars: int = 1000  # what a component inserts for one match
    growth: int = 10_000  # how many times longer a text may become by normalizing or decoding it
    text_chars: int = 1 << 28  # length of a text times that growth, where it grows
    added_tokens: int = 200_000
    added_token_chars: int = 1024
    token_chars: int = 10_000  # of the vocabulary
    # WordPiece's max_input_chars_per_word: its work grows with the square
    word_chars: int = 10_000
    regex_chars: int = 20_000
    regex_depth: int = 40  # nested groups
    regex_states: int = 100_000  # the pattern with its counted repetitions written out
    template_chars: int = 1 << 18  # a chat template's source
    # in it in a row: the page's parser takes quadratic time for them
    template_spaces: int = 4096
    # loop iterations, macro calls, calls and operations of a rendering
    template_steps: int = 1_000_000
    template_chars_made: int = 1 << 24  # the longest text of a rendering
    template_chars_total: int = 1 << 28  # all texts of a rendering in total
    template_items_total: int = 1 << 24  # all lists of a rendering in total
    template_seconds: int = 30


LIMITS = TextLimits()
COPY = "Copy the tokenizer's files again from the model they belong to."
"""What to do about a file beyond a limit, for errors."""
