"""Packages of models of several graphs, as `edgewise build --task` makes them."""

from __future__ import annotations

from pathlib import Path

from edgewise.host.session.open import folder_files, name_in
from edgewise.task_package import compile_task


def packed(model: Path, task: str, **options: object) -> Path:
    """The package of a folder or an .onnx file, which is written beside it."""
    files, root = folder_files(str(model))
    chosen = name_in(root, str(model)) if model.is_file() else None
    made = model.with_name(f"{model.stem}.edge")
    compile_task(files, task, model_file=chosen, **options).save(str(made))
    return made


def places(model: Path, task: str, **options: object) -> list[Path]:
    """A model as its folder, and as its package."""
    return [model, packed(model, task, **options)]
