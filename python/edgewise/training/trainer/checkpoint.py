"""Checkpoint files of a Trainer: safetensors whose metadata describes the run and holds a SHA-256
of the whole file, taken with zeros in its place.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

from ...errors import ModelError
from ...ir import Tensor
from ...onnx.sink import source_pieces
from ...onnx.source import Source, as_source
from ..safetensors import load_safetensors, safetensors_parts, save_safetensors

FORMAT = "edgewise-checkpoint-2"
UNSUMMED = "edgewise-checkpoint-1"  # of versions that wrote no sum: read without a check
ZEROS = "0" * 64


def save_checkpoint(
    states: Mapping[str, Any], run: Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    """Writes a file, complete or not at all. states: as safetensors_parts' tensors, with bytes.
    run: what JSON can hold.
    """

    def metadata(digest: str) -> dict[str, str]:
        return {"edgewise": json.dumps({"format": FORMAT, "sha256": digest, **run})}

    digest = hashlib.sha256()
    for part in safetensors_parts(states, metadata(ZEROS)):
        digest.update(part)
    save_safetensors(states, path, metadata(digest.hexdigest()))


def load_checkpoint(
    path: Source | str | os.PathLike[str] | bytes,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """({name: Tensor}, run) of a file that `save_checkpoint` wrote.

    Raises ModelError: it is damaged, or another file.
    """
    source = as_source(path, "checkpoint")
    tensors, metadata = load_safetensors(source)
    try:
        run = json.loads(metadata.get("edgewise", "null"))
    except (ValueError, RecursionError):
        run = None
    if not isinstance(run, dict) or run.get("format") not in (FORMAT, UNSUMMED):
        raise ModelError(
            "it is no checkpoint of a Trainer",
            os.fspath(source.name),
            "Give a file that Trainer.save has written.",
        )
    if run["format"] == FORMAT and _digest(source, run.get("sha256")) != run.get("sha256"):
        raise ModelError(
            "it is not what its checksum says",
            os.fspath(source.name),
            "The file is damaged: resume from another one.",
        )
    return tensors, run


def _digest(source: Source, stated: object) -> str:
    (size,) = struct.unpack("<Q", source.read(0, 8))
    header = source.read(0, 8 + size)
    if isinstance(stated, str):
        header = header.replace(
            f'\\"sha256\\": \\"{stated}\\"'.encode("utf-8", "replace"),
            f'\\"sha256\\": \\"{ZEROS}\\"'.encode(),
            1,
        )
    digest = hashlib.sha256(header)
    for part in source_pieces(source, 8 + size, source.size - 8 - size):
        digest.update(part)
    return digest.hexdigest()
