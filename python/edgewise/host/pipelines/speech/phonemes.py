"""Functions that make phonemes of texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ....logic.speech.english import Alphabet, English

__all__ = ["english_phonemizer"]


def english_phonemizer(
    lexicon: str | os.PathLike[str] = "", *, alphabet: Alphabet = "espeak"
) -> Callable[[str], str]:
    """A function that makes phonemes of English texts, for `phonemizer=` of text-to-speech.

    Words that are not in the lexicon are made of their parts or letters. Numbers, amounts of money
    and times become words.

    Args:
        lexicon: the path of a file (a Path) with lines `word TAB phonemes`, words in small letters,
            phonemes in IPA as espeak-ng writes them, a mark of stress before its vowel; or its
            text. Default: about a hundred common words.
        alphabet: "espeak" for Piper's voices and VITS, "kokoro" for Kokoro.

    Raises:
        InputError: a line has no tab, or the alphabet is not known. OSError: the file cannot be
            read.
    """
    if isinstance(lexicon, os.PathLike):
        lexicon = Path(lexicon).read_text(encoding="utf-8")
    return English(lexicon, alphabet).phonemes
