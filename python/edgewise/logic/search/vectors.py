"""An index of vectors: how they are kept in the engine (core/search/nearest.h) and in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import InputError, ModelError
from ..native import listed, written
from ..personal.files import Stored

PRECISIONS = ("float32", "int8")
BLOCK = 128
"""Numbers of a vector of bytes that share a scale: EW_NEAREST_BLOCK."""
MAX_SIZE = 65536
"""Most numbers of a vector: EW_NEAREST_MAX_SIZE."""
MAX_PART = 1 << 28
"""Most bytes of a part that is made for vectors to come."""
MIN_PART = 64
"""Fewest vectors that a part has room for."""
FORMAT = "edgewise-index"
VERSION = "1"
SAME = 0.9
"""Cosine that a text keeps between one precision of a model and another."""
SAVE_AGAIN = "Save the index again with `save`."


@dataclass(frozen=True)
class IndexFile:
    """What a file says of an index.

    Attributes:
        precision: of PRECISIONS.
        count: number of vectors.
        size: numbers of each.
        texts: whether it has their texts.
    """

    precision: str
    count: int
    size: int
    texts: bool


def check_precision(value: object) -> str:
    """A precision. Raises InputError."""
    for known in PRECISIONS:
        if value == known:
            return known
    raise InputError(f"it is {written(value)}", "precision", f"Use {', '.join(PRECISIONS)}.")


def check_size(size: int, before: int, where: str) -> None:
    """Checks the numbers of a vector.

    Args:
        size: of new vectors, or of a query.
        before: of the vectors that are there; 0: there are none.
        where: of the error.

    Raises:
        InputError: it is another one, or not allowed.
    """
    if not 1 <= size <= MAX_SIZE:
        raise InputError(
            f"they have {size} numbers", where, f"A vector has from 1 to {MAX_SIZE} numbers."
        )
    if before and size != before:
        raise InputError(
            f"they have {size} numbers, those in the index {before}",
            where,
            "Embed queries and documents with the same model and dimensions.",
        )


def not_finite(where: str) -> InputError:
    """The error of vectors that cannot be compared."""
    return InputError(
        "they have numbers that are not finite", where, "Leave out vectors with NaN or infinity."
    )


def blocks_of(size: int) -> int:
    """Scales of a vector of bytes."""
    return (size + BLOCK - 1) // BLOCK


def row_bytes(size: int, precision: str) -> int:
    """Bytes of a vector, without its scales."""
    return 4 * size if precision == "float32" else BLOCK * blocks_of(size)


def room_of(count: int, more: int, size: int, precision: str) -> int:
    """How many vectors a new part has room for: as many as there are, so that there are few parts.

    Args:
        count: of vectors that are there.
        more: of new ones.
        size: numbers of each.
        precision: of PRECISIONS.
    """
    most = max(1, MAX_PART // row_bytes(size, precision))
    return min(max(more, count, MIN_PART), max(more, most))


def tensors_of(file: IndexFile, text_bytes: int) -> list[tuple[str, Stored]]:
    """The tensors of a file.

    Args:
        file: what it says.
        text_bytes: bytes of the JSON list of texts, if it has them.
    """
    if file.precision == "float32":
        found = [("vectors", Stored("float32", [file.count, file.size]))]
    else:
        blocks = blocks_of(file.size)
        found = [
            ("vectors", Stored("int8", [file.count, BLOCK * blocks])),
            ("scales", Stored("float32", [file.count, blocks])),
        ]
    if file.texts:
        found.append(("texts", Stored("uint8", [text_bytes])))
    return found


def metadata_of(file: IndexFile) -> dict[str, str]:
    """The metadata of a file."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "precision": file.precision,
        "count": str(file.count),
        "size": str(file.size),
    }


def index_file(metadata: Mapping[str, str], tensors: Mapping[str, Stored], where: str) -> IndexFile:
    """What a file says of an index.

    Args:
        metadata: of the file.
        tensors: of the file.
        where: name of the file, for errors.

    Raises:
        ModelError: it is damaged, or none of an index.
    """
    if metadata.get("format", "") != FORMAT or metadata.get("version", "") != VERSION:
        raise broken("it is no index of this version", where)
    precision = metadata.get("precision", "")
    count = _number(metadata.get("count", ""))
    size = _number(metadata.get("size", ""))
    if precision not in PRECISIONS or count is None or size is None or size > MAX_SIZE:
        raise broken("its metadata are not valid", where)
    if (count == 0) != (size == 0):
        raise broken("its metadata are not valid", where)
    texts = tensors.get("texts")
    text_bytes = texts.shape[0] if texts is not None and len(texts.shape) == 1 else 0
    found = IndexFile(precision, count, size, texts is not None)
    expected = tensors_of(found, text_bytes)
    if len(tensors) != len(expected):
        raise broken("it has other tensors than an index", where)
    for name, wanted in expected:
        there = tensors.get(name)
        if there is None or there.dtype != wanted.dtype or list(there.shape) != wanted.shape:
            raise broken(f"its tensor '{name}' is missing or has another shape", where)
    return found


def check_texts(texts: object, count: int, where: str) -> list[str]:
    """The texts of a file, one for each vector. Raises ModelError."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise broken("its texts are no list of texts", where)
    found: list[str] = texts
    if len(found) != count:
        raise broken(f"it has {len(found)} texts for {count} vectors", where)
    return found


def saved_texts(texts: Sequence[str] | None, count: int) -> list[str] | None:
    """The texts that are saved with vectors. Raises InputError: they are not one for each."""
    if texts is None:
        return None
    found = listed(texts)
    if found is None or not all(isinstance(text, str) for text in found):
        raise InputError("it is no list of texts", "texts", "Give one text for each vector.")
    if len(found) != count:
        raise InputError(
            f"there are {len(found)} texts for {count} vectors",
            "texts",
            "Give one text for each vector.",
        )
    return found


def need_texts(texts: list[str] | None, count: int) -> list[str]:
    """The texts of an index that is searched by text. Raises InputError: it has none."""
    if texts is None and count:
        raise InputError(
            "it has vectors without texts", "load_index", "Load it with VectorIndex instead."
        )
    return [] if texts is None else texts


def check_same(score: float) -> None:
    """Checks that the model of an index is the one that it was made with.

    Args:
        score: cosine of a text of the index as it was embedded then, and now.

    Raises:
        InputError: it is another one, or has other options.
    """
    if not (score >= SAME and score <= 2 - SAME):  # more: they have not the length 1
        raise InputError(
            "its vectors were made with another model or other options",
            "load_index",
            "Give the model and the options of the embedding that it was made with.",
        )


def broken(what: str, where: str) -> ModelError:
    """The error of a damaged file."""
    return ModelError(what, where, SAVE_AGAIN)


def _number(text: str) -> int | None:
    """A count of at most 10 digits."""
    if not 1 <= len(text) <= 10 or not all(c in "0123456789" for c in text):
        return None
    return int(text)
