"""Prefixes of prompts as files. logic/generation/prefix.py says what they hold."""

from __future__ import annotations

import os
from array import array
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ...compiler.declare.dtypes import CODE, NAME
from ...compiler.sums import source_sums
from ...compiler.training.safetensors import load_safetensors, save_safetensors
from ...errors import InputError
from ...logic.generation.prefix import (
    IDS,
    STATE,
    check_bytes,
    check_file,
    metadata_of,
    sum_of,
    tensors_of,
    weight_parts,
    whole_pieces,
)
from ...logic.native import int32_bytes
from ...logic.personal.files import Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...compiler.onnx.source import Source
    from ...compiler.package import Package
    from .decoder import DecoderModel


def digest_of(package: Package) -> str:
    """A digest of a language model. Reads all weights that have no checksums yet."""
    manifest = package.manifest
    plans = {p["file"]: package.file(p["file"]) or b"" for p in manifest["decoder"]["plans"]}
    sums = {
        w["name"]: w.get("sums") or source_sums(*package.weight(w), w["bytes"])
        for w in manifest["weights"]
    }
    return sum_of([*digests(plans), *weight_parts(manifest["weights"], sums)])


def digests(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, SHA-256) of bytes."""
    return [(name, sha256(data).hexdigest()) for name, data in values.items()]


def save(lm: DecoderModel, ids: list[int], target: Any) -> bytes | None:
    """Reads the whole pieces of a prefix, and writes their states to a file. The lock must be held.

    Args:
        lm: the model.
        ids: of the prefix.
        target: a path (the file is complete or not written at all), an object with `write`, or
            None: returns the bytes.
    """
    model = lm.prefix_model()
    count = whole_pieces(len(ids), model.piece, lm.max_length)
    piece, taken = model.piece or 1, lm.take(ids[: count + 1])
    sequence, done = (lm.open(), 0) if taken is None else (taken.sequence, taken.past)
    try:
        for end in range(done + piece, count + 1, piece):
            lm.forward(sequence, ids[done:end])
            done = end
            if taken is not None:
                lm.mark(taken, end, end == count)
        contents = {IDS: int32_bytes(ids[:count])}
        for cache in model.caches:
            buffer = lm.memory_of(sequence)[cache["name"]]
            parts = lm.spans_of(sequence, cache, count)
            contents[STATE + cache["name"]] = b"".join(
                lm.device.read(buffer, at, n) for at, n in parts
            )
    finally:
        if taken is None:
            lm.close(sequence)
        else:
            lm.give(taken, ids[:done], [])
    tensors = {
        name: (CODE[stored.dtype], tuple(stored.shape), contents[name])
        for name, stored in tensors_of(model, count)
    }
    return save_safetensors(tensors, target, metadata_of(model, sum_of(digests(contents))))


def load(lm: DecoderModel, source: str | os.PathLike[str] | bytes | Source) -> int:
    """Puts the states of a file among those that are kept. The lock must be held.

    Returns:
        its tokens
    """
    where = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "prefix"
    key = lm.kept_key()
    if lm.kept is None or key is None:
        raise InputError(
            "the model keeps no states", "load_prefix", "Load it with another cache_bytes than 0."
        )
    tensors, metadata = load_safetensors(source)
    stored = {name: Stored(NAME[t.dtype], list(t.shape)) for name, t in tensors.items()}
    model = lm.prefix_model()
    check_file(model, metadata, stored, where)
    contents = {name: bytes(t.bytes()) for name, t in tensors.items()}
    ids = array("i", contents[IDS]).tolist()
    check_bytes(model, ids, sum_of(digests(contents)), metadata, where)

    def fill(sequence: int) -> None:
        lm.reserve(sequence, len(ids))
        memory = lm.memory_of(sequence)
        lm.drop_before(sequence, len(ids))
        for cache in model.caches:
            data, done = memoryview(contents[STATE + cache["name"]]), 0
            for at, n in lm.spans_of(sequence, cache, len(ids)):
                lm.device.write(memory[cache["name"]], data[done : done + n], at)
                done += n
        lm.state(sequence)[1].extend(ids)

    lm.kept.put(key, ids, fill)
    return len(ids)
