"""Prefixes of prompts in safetensors files: their token ids, and the states after them.

A file holds whole pieces, as conversations that are kept do (kept.py): a prompt that begins with
the same tokens continues from the bits that reading it would give. It is for one model as it was
compiled, with one adapter. The states are not compared with the token ids, which would take as long
as reading them: a file of somebody else is to be trusted as a prompt of theirs is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, ModelError
from ..manifest.schema import Cache, Weight
from ..native import sha256, utf8_bytes, written
from ..personal.files import Stored
from .sliding import CacheWindow, first_of

FORMAT = "edgewise-prefix"
VERSION = "1"
IDS = "ids"
"""The tensor of the token ids."""

STATE = "state."
"""Before the names of states."""

PREFIX = "//prefix"
"""The part of a package with such a file. No file of a model has this name."""

SAVE_AGAIN = "Save it again with this model."
PROBES = ("a", "Z", "1 b")
"""Beginnings of texts that may follow a prefix."""


@dataclass(frozen=True)
class PrefixModel:
    """The model of a prefix.

    Attributes:
        capacity: most tokens of a sequence.
        vocab_size: of its vocabulary.
        cache_dtype: how keys and values are stored.
        caches: of a sequence.
        window: of those that are sliding; None: there are none.
        piece: tokens of a piece; None: it has no states.
        engine: hash of the engine's table.
        digest: `sum_of` its plans and weights.
        adapter: `sum_of` the values of the active adapter; "": there is none.
    """

    capacity: int
    vocab_size: int
    cache_dtype: str
    caches: Sequence[Cache]
    window: CacheWindow | None
    piece: int | None
    engine: int
    digest: str
    adapter: str


def weight_parts(weights: Sequence[Weight], sums: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """The weights of a manifest for `sum_of`. sums: checksums of each."""
    return [(f"weight {w['name']}", f"{w['bytes']} {' '.join(sums[w['name']])}") for w in weights]


def sum_of(parts: list[tuple[str, str]]) -> str:
    """A digest of parts, in any order; "": of none.

    Args:
        parts: name and digest of each.
    """
    if len(parts) == 0:
        return ""
    text = "\n".join(sorted([f"{name} {digest}" for name, digest in parts]))
    return sha256(bytes(utf8_bytes(text)))


def whole_pieces(count: int, piece: int | None, capacity: int) -> int:
    """How many of the tokens of a prefix are saved.

    Args:
        count: tokens of the prefix.
        piece: tokens of a piece; None: the model has no states.
        capacity: most tokens of a sequence.

    Raises:
        InputError: there are too few of them or too many, or the model has no states.
    """
    if piece is None:
        raise InputError(
            "the model has no states: each run reads the whole text",
            "save_prefix",
            "Export the model with past_key_values.",
        )
    if count > capacity:
        raise InputError(
            f"it has {count} tokens, a sequence at most {capacity}",
            "save_prefix",
            "Give less, or load the model with a larger capacity.",
        )
    if count < piece:
        raise InputError(
            f"it has {count} tokens; states are saved in whole pieces of {piece}",
            "save_prefix",
            "A prefix that is this short is read in no time: give it with each prompt.",
        )
    return count - count % piece


def continuations(given: str | list[dict[str, Any]]) -> list[str | list[dict[str, Any]]]:
    """Prompts that begin with a text or with messages, and are otherwise unlike.

    Args:
        given: the text or the messages.

    Raises:
        InputError: there are none.
    """
    if isinstance(given, str):
        text: str = given
        return [text + probe for probe in PROBES]
    messages: list[dict[str, Any]] = given
    if len(messages) == 0:
        raise InputError("there are no messages", "save_prefix", "Give at least one.")
    role = "assistant" if messages[-1].get("role") == "user" else "user"
    found: list[str | list[dict[str, Any]]] = []
    for probe in PROBES:
        last: dict[str, Any] = {"role": role, "content": probe}
        found.append([*messages, last])
    return found


def common(prompts: list[list[int]]) -> list[int]:
    """The token ids that all prompts begin with."""
    n = 0
    first = prompts[0]
    while n < len(first) and all(n < len(ids) and ids[n] == first[n] for ids in prompts):
        n += 1
    return first[:n]


def tensors_of(model: PrefixModel, count: int) -> list[tuple[str, Stored]]:
    """The tensors of a file.

    Args:
        model: that it is of.
        count: tokens.
    """
    found = [(IDS, Stored("int32", [count]))]
    for cache in model.caches:
        rows = cache.get("rows")
        first = first_of(cache, model.window, count)
        shape = [cache["bytes"]] if rows is None else [rows[0], count - first, rows[1]]
        found.append((STATE + cache["name"], Stored("uint8", shape)))
    return found


def metadata_of(model: PrefixModel, checksum: str) -> dict[str, str]:
    """The metadata of a file.

    Args:
        model: that it is of.
        checksum: `sum_of` the tensors.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "engine": str(model.engine),
        "model": model.digest,
        "cache_dtype": model.cache_dtype,
        "adapter": model.adapter,
        "sha256": checksum,
    }


def check_file(
    model: PrefixModel, metadata: Mapping[str, str], tensors: Mapping[str, Stored], where: str
) -> int:
    """Checks that a file is a prefix of a model, but for the bytes of its tensors.

    Args:
        model: that takes it.
        metadata: of the file.
        tensors: of the file.
        where: name of the file, for errors.

    Returns:
        its tokens

    Raises:
        ModelError: it is damaged, or no prefix. InputError: it is one of another model, adapter or
            version.
    """
    if metadata.get("format", "") != FORMAT:
        raise broken("it is no prefix", where)
    _check_model(model, metadata, where)
    ids = tensors.get(IDS)
    count = ids.shape[0] if ids is not None and len(ids.shape) == 1 else 0
    capacity, piece = model.capacity, model.piece
    if piece is None or count == 0 or count % piece != 0:
        raise broken(f"its {count} tokens are no whole pieces of {piece}", where)
    if count > capacity:
        raise broken(f"it has {count} tokens, a sequence at most {capacity}", where)
    expected = tensors_of(model, count)
    if len(tensors) != len(expected):
        raise broken("it has other tensors than the model has states", where)
    for name, wanted in expected:
        there = tensors.get(name)
        if there is None or there.dtype != wanted.dtype or list(there.shape) != wanted.shape:
            raise broken(f"its tensor '{name}' is missing or has another shape", where)
    return count


def _check_model(model: PrefixModel, metadata: Mapping[str, str], where: str) -> None:
    """Checks what a prefix was saved with."""
    version, dtype = metadata.get("version", ""), metadata.get("cache_dtype", "")
    if version != VERSION or metadata.get("engine", "") != str(model.engine):
        raise InputError("it was saved by another version of Edgewise", where, SAVE_AGAIN)
    if dtype != model.cache_dtype:
        raise InputError(
            f"its states are kept as {written(dtype)}, not as {written(model.cache_dtype)}",
            where,
            "Load the model with that cache_dtype, or save the prefix again.",
        )
    if metadata.get("model", "") != model.digest:
        raise InputError(
            "it is of another model, or of one that was compiled with other options",
            where,
            "Load the model that it was saved with: dtype and capacity count, too.",
        )
    if metadata.get("adapter", "?") != model.adapter:
        raise InputError(
            "it was saved with another adapter",
            where,
            "Set the adapter that was active then, with its scale; none, if none was.",
        )


def check_bytes(
    model: PrefixModel, ids: Sequence[int], checksum: str, metadata: Mapping[str, str], where: str
) -> None:
    """Checks the contents of a file that `check_file` took.

    Args:
        model: that takes it.
        ids: of the file.
        checksum: `sum_of` its tensors.
        metadata: of the file.
        where: name of the file, for errors.

    Raises:
        ModelError: they are damaged.
    """
    if checksum != metadata.get("sha256", ""):
        raise broken("its bytes differ from their checksum", where)
    size = model.vocab_size
    for i in ids:
        if i < 0 or i >= size:
            raise broken(f"it has the token {i}, the vocabulary {size}", where)


def broken(what: str, where: str) -> ModelError:
    """The error of a damaged file."""
    return ModelError(what, where, SAVE_AGAIN)
