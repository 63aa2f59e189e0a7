"""Merges an adapter into the model that it was trained beside."""

from __future__ import annotations

import os
from typing import Any

from ...compiler.training.peft import load_adapter
from ...errors import memory_in_words
from .trainer import Trainer


@memory_in_words
def merge_adapter(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str] | dict[str, Any],
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: str | None = None,
    external_data: str | None = None,
) -> bytes | None:
    """Writes a language model with a LoRA adapter merged into its weights, as an ONNX file.

    Mirrors PEFT's `PeftModel.merge_and_unload`. The adapter may have been trained beside another
    precision of the same model: an adapter trained in a page on 4-bit weights is merged into the
    float model by `dtype="fp32"`. Quantized weights stay as they are; beside them the adapter is
    added as nodes.

    Args:
        model: folder in the layout of the Hugging Face hub, or an .onnx file.
        adapter: folder with PEFT's adapter_config.json and adapter_model.safetensors, the latter
            file, or {file name: bytes}.
        path: of the file to write. None: the bytes are returned.
        dtype: which .onnx file of the folder, as `Trainer`'s argument of this name.
        external_data: name of a file beside `path` for the weights; needed from 2 GB on.

    Returns:
        The file's bytes if there is no `path`.

    Raises:
        ModelError: a file is missing or damaged.
        InputError: the adapter does not fit the model.
        UnsupportedField: it is a variant of LoRA that Edgewise does not have.
    """
    loaded = load_adapter(adapter)
    trainer = Trainer(model, adapters=loaded.config, dtype=dtype, batch_size=1, sequence_length=1)
    try:
        trainer.load_adapter(loaded)
        return trainer.export(path, external_data)
    finally:
        trainer.free()
