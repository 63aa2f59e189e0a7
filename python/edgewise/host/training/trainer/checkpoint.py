"""Checkpoint files of a Trainer: safetensors with metadata that describes the run.

The metadata also holds a SHA-256 of the file, computed with zeros in place of the digest. Another
Trainer goes on from a file only if its run is the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Collection, Mapping
from typing import Any

from ....compiler.declare.dtypes import NAME
from ....compiler.ir import Tensor
from ....compiler.onnx.sink import source_pieces
from ....compiler.onnx.source import Source, as_source
from ....compiler.training.program import State
from ....compiler.training.safetensors import load_safetensors, safetensors_parts, save_safetensors
from ....errors import ModelError
from ....logic.training import checkpoints
from ....logic.training.checkpoints import check_same_run, is_kept
from ....logic.training.run import UNKNOWN
from ....logic.training.safetensors import TensorInfo
from .options import Options

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


def kept_states(states: Mapping[str, State]) -> dict[str, State]:
    """The states that a checkpoint holds."""
    return {n: s for n, s in states.items() if is_kept(s.kind)}


def check_run(
    run: dict[str, Any], options: Options, changed: Collection[str], path: object
) -> None:
    """Checks a checkpoint's description of its run.

    Args:
        run: of load_checkpoint.
        options: of the trainer that goes on.
        changed: names of what may differ.
        path: of the file, for messages.

    Raises:
        ModelError: it is not a checkpoint of a Trainer. InputError: it belongs to another run.
    """

    def count(name: str, otherwise: object = None, least: int | None = 0) -> bool:
        value = run.get(name, otherwise)
        return type(value) is int and (least is None or value >= least)

    if not (
        count("first_update")
        and count("first_epoch", 0)
        and count("runs")
        and count("epoch")
        and count("cursor")
        and count("seed", least=None)
        and count("best_step", 0, UNKNOWN)
        and _are_evaluations(run.get("evaluations", []))
    ):
        raise ModelError(
            "it is not a checkpoint of a Trainer",
            str(path),
            "Give a file that Trainer.save has written.",
        )
    mine = json.loads(json.dumps(options.record()))
    theirs = dict(run)
    for name in (*changed, *(() if options.is_lm else ("sequence_length",))):
        mine.pop(name, None)
        theirs.pop(name, None)
    for name in ("schedule", "warmup_steps"):  # not in files of old versions
        if name not in run:
            mine.pop(name, None)
    if "learning_rate" in changed:
        for described in (mine, theirs):
            if isinstance(described.get("optimizer"), dict):
                described["optimizer"] = {**described["optimizer"], "lr": None}
    check_same_run(
        mine,
        theirs,
        (),
        str(path),
        "Make the trainer as it was made for the run; what may change can be named in `changed`.",
    )


def _are_evaluations(value: object) -> bool:
    """Whether a value of JSON is [[updates, loss], ...]."""
    return isinstance(value, list) and all(
        isinstance(x, list) and len(x) == 2 and type(x[0]) is int and isinstance(x[1], (int, float))
        for x in value
    )


def check_tensors(
    tensors: Mapping[str, Tensor], states: Mapping[str, State], path: str | os.PathLike[str]
) -> None:
    """Raises InputError unless a checkpoint has exactly the tensors of `states`."""
    found, wanted = (
        {n: TensorInfo(NAME[x.dtype], list(x.shape), x.nbytes) for n, x in those.items()}
        for those in (tensors, states)
    )
    checkpoints.check_tensors(found, wanted, str(path))
