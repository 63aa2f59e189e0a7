"""Several documents in one row: short ones fill the room that padding would take. They do not see
each other (compiler/training/packing.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from .data import IGNORED, Row, token_rows

DOCUMENT = -101  # label of a document's first token, which is not predicted


def packed(rows: Sequence[Row], sequence: int, pad: int) -> list[Row]:
    """Puts documents together: the longest first, each into the row with the least room that it
    fits into (best fit decreasing, as TRL's packing strategy "bfd").

    Args:
        rows: documents of at most `sequence` tokens, without padding.
        sequence: tokens of a row.
        pad: id of padding, which follows the last document, as in a row of its own.
    """
    by_length: list[list[int]] = [[] for size in range(sequence + 1)]
    for i in range(len(rows)):
        by_length[len(rows[i][0])].append(i)
    made: list[Row] = []
    with_room: list[list[int]] = [[] for size in range(sequence + 1)]  # numbers of rows, by room
    for length in range(sequence, 0, -1):
        for i in by_length[length]:
            room = length
            while room <= sequence and not with_room[room]:
                room += 1
            if room > sequence:
                made.append(([], []))
                at = len(made) - 1
                left = sequence - length
            else:
                at = with_room[room].pop()
                left = room - length
            ids, labels = made[at]
            ids.extend(rows[i][0])
            labels.append(DOCUMENT)
            labels.extend(rows[i][1][1:])
            with_room[left].append(at)
    for ids, labels in made:
        missing = sequence - len(ids)
        ids.extend([pad] * missing)
        labels.extend([IGNORED] * missing)
    return made


def rows_of_texts(
    texts: Sequence[Sequence[int]],
    sequence: int,
    end: int | None,
    pad: int,
    where: str,
    packing: bool,
) -> list[Row]:
    """The rows of texts: cut from one stream (`token_rows`), or with each text as a document, of
    which a part that fills a row is one of its own.

    Args:
        texts, sequence, end, pad, where: as of `token_rows`.
        packing: whether texts are documents.

    Raises:
        InputError: the texts have fewer than two tokens.
    """
    if not packing:
        return token_rows(texts, sequence, end, pad, where)
    documents: list[Row] = []
    for text in texts:
        if len(text) > 1 or len(text) == 1 and end is not None and text[0] != end:
            documents.extend(documents_of(token_rows([text], sequence, end, pad, where)))
    if not documents:
        return token_rows(texts, sequence, end, pad, where)
    return packed(documents, sequence, pad)


def documents_of(rows: Sequence[Row]) -> list[Row]:
    """Rows without the padding at their ends."""
    made: list[Row] = []
    for ids, labels in rows:
        end = len(labels)
        while end and labels[end - 1] == IGNORED:
            end -= 1
        if end:
            made.append((ids[:end], labels[:end]))
    return made


__all__ = ["DOCUMENT", "documents_of", "packed", "rows_of_texts"]
