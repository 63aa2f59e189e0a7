"""Checkpoint files of a Trainer: safetensors with metadata that describes the run.

The metadata also holds a SHA-256 of the file, computed with zeros in place of the digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

from ....compiler.ir import Tensor
from ....compiler.onnx.sink import source_pieces
from ....compiler.onnx.source import Source, as_source
from ....compiler.training.safetensors import load_safetensors, safetensors_parts, save_safetensors
from ....errors import ModelError

FORMAT = "edgewise-checkpoint-3"
RENAMED = "edgewise-checkpoint-2"  # older: the field first_update was called begun
UNSUMMED = "edgewise-checkpoint-1"  # older still: no digest either
ZEROS = "0" * 64


def save_checkpoint(
    states: Mapping[str, Any], run: Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    """Writes a checkpoint, complete or not at all.

    Args:
        states: tensors, as safetensors_parts takes them.
        run: description of the run, as JSON values.
        path: of the file.
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
    """Reads a file of `save_checkpoint`.

    Returns:
        ({name: Tensor}, description of the run)

    Raises:
        ModelError: the file is damaged, or not a checkpoint.
    """
    source = as_source(path, "checkpoint")
    tensors, metadata = load_safetensors(source)
    try:
        run = json.loads(metadata.get("edgewise", "null"))
    except (ValueError, RecursionError):
        run = None
    if not isinstance(run, dict) or run.get("format") not in (FORMAT, RENAMED, UNSUMMED):
        raise ModelError(
            "it is not a checkpoint of a Trainer",
            os.fspath(source.name),
            "Give a file that Trainer.save has written.",
        )
    if run["format"] != UNSUMMED and _digest(source, run.get("sha256")) != run.get("sha256"):
        raise ModelError(
            "it does not match its checksum",
            os.fspath(source.name),
            "The file is damaged: resume from another one.",
        )
    if run["format"] != FORMAT:
        run["first_update"] = run.pop("begun", 0)
    return tensors, run


def _digest(source: Source, stated: object) -> str:
    """The SHA-256 of a file, with zeros in place of the digest that it states."""
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
