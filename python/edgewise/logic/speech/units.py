"""Units of sentences (characters or phonemes) that models speak, and their ids. Mirrors
transformers' VitsTokenizer and Piper's phoneme_ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import InputError


def vits_text(
    text: str, vocabulary: Mapping[str, int], normalize: bool, language: str | None
) -> str:
    """A text as VITS reads it, before characters that it does not know are left out.

    Args:
        text: any.
        vocabulary: {token: id}.
        normalize: whether it is in lower case, but for what is in the vocabulary as it is.
        language: of the model.
    """
    if normalize:
        text = _lower(text, vocabulary)
    return text.replace("ț", "ţ") if language == "ron" else text


def _lower(text: str, vocabulary: Mapping[str, int]) -> str:
    # As in transformers, tokens of several characters keep their case.
    long = [token for token in vocabulary if len(token) > 1]
    characters = list(text)
    made: list[str] = []
    i = 0
    while i < len(characters):
        found = characters[i] if characters[i] in vocabulary else ""
        for token in long:
            if "".join(characters[i : i + len(token)]) == token:
                found = token
                break
        made.append(found or characters[i].lower())
        i += max(len(found), 1)
    return "".join(made)


def known_text(text: str, vocabulary: Mapping[str, int]) -> str:
    """The characters of a text that are in a vocabulary, without spaces at the ends."""
    return "".join([c for c in text if c in vocabulary]).strip()


def vits_ids(
    units: Sequence[str], vocabulary: Mapping[str, int], unknown: str, add_blank: bool
) -> list[int]:
    """The ids of characters.

    Args:
        units: characters.
        vocabulary: {token: id}.
        unknown: the token for others.
        add_blank: whether 0 is before, between and after them.

    Raises:
        InputError: a character is unknown, and so is the token for such ones.
    """
    ids = [0] if add_blank and units else []
    for unit in units:
        token = unit if unit in vocabulary else unknown
        if token not in vocabulary:
            raise InputError(
                f"the model does not know the character {unit!r}", "text", "Replace it in the text."
            )
        ids.append(vocabulary[token])
        if add_blank:
            ids.append(0)
    return ids


def piper_ids(units: Sequence[str], vocabulary: Mapping[str, list[int]]) -> list[int]:
    """The ids of phonemes, with those of their beginning, of what is between, and of their end."""
    blank = vocabulary["_"]
    ids = [*vocabulary["^"], *blank]
    for unit in units:
        ids += vocabulary[unit]
        ids += blank
    return [*ids, *vocabulary["$"]]


def piper_room(most: int, vocabulary: Mapping[str, list[int]]) -> int:
    """Phonemes that surely have at most so many ids."""
    ends = len(vocabulary["^"]) + len(vocabulary["_"]) + len(vocabulary["$"])
    longest = 1
    for ids in vocabulary.values():
        longest = max(longest, len(ids))
    return (most - ends) // (longest + len(vocabulary["_"]))
