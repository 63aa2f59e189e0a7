"""Words of tokens. Mirrors `_combine_tokens_into_words` of transformers'
tokenization_whisper.py, which follows openai/whisper's tokenizer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[list[int]], str]

PREPENDED = "\"'“¡¿([{-"
APPENDED = "\"'.。,，!！?？:：”)]}、"
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_WITHOUT_SPACES = ("chinese", "japanese", "thai", "lao", "myanmar", "cantonese")
_BROKEN = "\ufffd"


def words_of(
    tokens: Sequence[int], decode: Decode, eos: int, language: str | None = None
) -> tuple[list[str], list[list[int]]]:
    """Groups tokens into words.

    Args:
        tokens: ids of text.
        decode: from ids to text.
        eos: id of the first special token.
        language: name; None: one that has spaces between words.

    Returns:
        (words with the spaces before them, for each the indices of its tokens)
    """
    words, indices = _by_character(tokens, decode)
    if language not in _WITHOUT_SPACES:
        words, indices = _by_space(words, indices, tokens, eos)
    _merge(words, indices)
    kept = [i for i, word in enumerate(words) if word]
    return [words[i] for i in kept], [indices[i] for i in kept]


def _by_character(tokens: Sequence[int], decode: Decode) -> tuple[list[str], list[list[int]]]:
    """Splits wherever tokens decode to whole characters."""
    whole = decode(list(tokens))
    words: list[str] = []
    indices: list[list[int]] = []
    current: list[int] = []
    offset = 0
    for i in range(len(tokens)):
        current.append(i)
        text = decode([tokens[j] for j in current])
        at = offset + text.index(_BROKEN) if _BROKEN in text else -1
        if at < 0 or (at < len(whole) and whole[at] == _BROKEN):
            words.append(text)
            indices.append(current)
            current = []
            offset += len(text)
    return words, indices


def _by_space(
    parts: list[str], indices: list[list[int]], tokens: Sequence[int], eos: int
) -> tuple[list[str], list[list[int]]]:
    """Joins parts up to the next space or punctuation."""
    words: list[str] = []
    joined: list[list[int]] = []
    for part, at in zip(parts, indices):
        alone = part.strip() in _PUNCTUATION
        if tokens[at[0]] >= eos or part.startswith(" ") or alone or not words:
            words.append(part)
            joined.append(list(at))
        else:
            words[-1] += part
            joined[-1] += at
    return words, joined


def _merge(words: list[str], indices: list[list[int]]) -> None:
    """Merges punctuation into the word after or before it; what is merged becomes empty."""
    i, j = len(words) - 2, len(words) - 1
    while i >= 0:
        if words[i].startswith(" ") and words[i].strip() in PREPENDED:
            words[j], indices[j] = words[i] + words[j], indices[i] + indices[j]
            words[i], indices[i] = "", []
        else:
            j = i
        i -= 1
    i, j = 0, 1
    while j < len(words):
        if not words[i].endswith(" ") and words[j] in APPENDED:
            words[i], indices[i] = words[i] + words[j], indices[i] + indices[j]
            words[j], indices[j] = "", []
        else:
            i = j
        j += 1
