"""Parts of sentences that are too long to be spoken at once."""

from __future__ import annotations

from collections.abc import Sequence

MARKS = (".!?…", ";:", ",—", " ")


def parts_of(units: Sequence[str], most: int) -> list[list[str]]:
    """Parts of at most `most` units (characters or phonemes), cut after punctuation or a space if
    there is one; what is left for two parts near its middle, since models refuse very short ones.
    """
    parts: list[list[str]] = []
    rest = list(units)
    while len(rest) > most:
        count = len(rest)
        last, end = most, most
        if count < 2 * most:
            last, end = min(most, (2 * count + 2) // 3), (count + 1) // 2
        for marks in MARKS:
            i = last - 1
            while i >= last // 2 and rest[i] not in marks:
                i -= 1
            if i >= max(last // 2, 1):
                end = i + 1
                break
        parts.append(rest[:end])
        rest = rest[end:]
    if any(unit.strip() for unit in rest):
        parts.append(rest)
    return parts
