"""Packages that generate and train, from a model folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...compiler.package import Package
from ...compiler.schema.training import LANGUAGE_MODEL
from ...compiler.targets import CPU, Target
from ...compiler.training.package import compile_training_package
from ...errors import NoSuchFile, memory_in_words
from ..hub import local_path
from ..session.open import folder_files, name_in


@memory_in_words
def compile_model_for_training(
    path: str | os.PathLike[str],
    kinds: Sequence[str],
    dtype: str | None = None,
    capacity: int | None = None,
    *,
    batch: int = LANGUAGE_MODEL.batch_size,
    sequence: int = LANGUAGE_MODEL.sequence_length,
    r: int | None = None,
    lora_alpha: float | None = None,
    learning_rate: float | None = None,
    training: Mapping[str, Any] | None = None,
    cache_dtype: str | None = None,
    target: Target = CPU,
) -> Package:
    """A Package that can generate and train: what `edgewise build --train` writes.

    Args:
        path: of a model folder or an .onnx file, or the id of a model of the hub.
        kinds: "lora" and "full".
        dtype, capacity, cache_dtype, target: as compile.compile_package's.
        batch: rows of a step.
        sequence: tokens of a row.
        r, lora_alpha: of the adapters. None: the defaults of language models.
        learning_rate: of AdamW, the default of pages. None: 2e-3 for adapters, 3e-4 for all
            parameters.
        training: more options, of compiler.training.package.training_programs.

    Raises:
        InputError: there is no such file.
    """
    path = local_path(path, dtype)
    if not os.path.exists(path):
        raise NoSuchFile(
            "there is no such file or folder", str(path), "Give a model folder or an .onnx file."
        )
    files, root = folder_files(path)
    model_file = name_in(root, path) if os.path.isfile(path) else None
    options = {
        "adapter": list(kinds),
        "batch_size": batch,
        "sequence_length": sequence,
        "r": r,
        "lora_alpha": lora_alpha,
        "learning_rate": learning_rate,
        **(training or {}),
    }
    return compile_training_package(
        files,
        options,
        dtype,
        capacity,
        model_file=model_file,
        cache_dtype=cache_dtype,
        target=target,
    )
