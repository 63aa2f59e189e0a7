"""Merges an adapter into the model that it was trained beside, and converts adapters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...compiler.formats.files import ModelFiles
from ...compiler.onnx.sink import write_folder, write_parts
from ...compiler.training.peft import Adapter, adapter_parts, load_adapter
from ...errors import InputError, NoSuchFile, memory_in_words, path_of
from ..hub import local_path
from ..session.open import folder_files
from .card import CARD, base_of, card, may_write, section_of
from .formats import (
    FORMATS,
    HubModel,
    Parts,
    adapter_gguf,
    adapter_mlx,
    config_of,
    hub_adapter,
    type_for,
)
from .trainer import Trainer
from .trainer.options import TrainedModel

ADAPTER_FORMATS = ("gguf", "mlx", "peft")


@memory_in_words
def merge_adapter(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str] | dict[str, Any] | None,
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: str | None = None,
    external_data: str | None = None,
    format: str | None = None,
    quantization: str | None = None,
) -> bytes | dict[str, bytes] | None:
    """Writes a language model with a LoRA adapter merged into its weights.

    Mirrors PEFT's `PeftModel.merge_and_unload`. The adapter may have been trained beside another
    precision of the same model: an adapter trained in a page on 4-bit weights is merged into the
    float model by `dtype="fp32"`.

    In an .onnx file quantized weights stay as they are; beside them the adapter is added as nodes.
    The other formats have weights under transformers' names, quantized ones as the numbers that
    they stand for. Folders get a model card, README.md. They are written for the families of
    `model_type` llama, mistral, smollm3, qwen2, qwen3, olmo2 and granite, whose config.json is
    beside the model.

    Args:
        model: folder in the layout of the Hugging Face hub, or an .onnx file.
        adapter: folder with PEFT's adapter_config.json and adapter_model.safetensors, the latter
            file, or {file name: bytes}. None: the model as it is, in another format.
        path: of the file to write, of a folder for "safetensors" and "mlx". None: bytes are
            returned.
        dtype: which .onnx file of the folder, as `Trainer`'s argument of this name.
        external_data: name of a file beside `path` for the weights of an .onnx file; needed from
            2 GB on.
        format: "onnx"; "gguf", a file of llama.cpp with the tokenizer; "safetensors", a folder
            that transformers' `from_pretrained` loads; "mlx", the same for mlx_lm. None: "gguf" if
            the path ends in ".gguf", else "onnx".
        quantization: type of the matrices: "f32" or "f16"; in a GGUF file also "q8_0" or "q4_0"
            (the embedding and the output layer then have 8 bits). Default: "f16" in a GGUF file,
            else that of the file's float weights.

    Returns:
        If there is no `path`: the file's bytes, or {file name: bytes} of a folder.

    Raises:
        ModelError: a file is missing or damaged.
        InputError: the adapter does not fit the model, or an option is wrong.
        UnsupportedField: it is a variant of LoRA that Edgewise does not have, or the format has
            nothing for a part of the model.
    """
    format_ = _format_of(format, path)
    loaded = None if adapter is None else load_adapter(adapter)
    if format_ == "onnx":
        if quantization is not None:
            raise InputError(
                f"an .onnx file is not written as {quantization!r}",
                "quantization",
                "Choose the file with dtype, or write a GGUF file.",
            )
        if loaded is None:
            raise InputError(
                "there is no adapter to merge", "adapter", "Give one, or another format."
            )
        return _onnx(model, loaded, path, dtype, external_data)
    if external_data is not None:
        raise InputError(
            f"{format_} has no external data", "external_data", "Leave it out, or use 'onnx'."
        )
    given = TrainedModel(model, dtype)
    source = given.graph.source
    assert source is not None
    merged = HubModel(source, ModelFiles(given.files), loaded)
    name = os.path.basename(os.path.abspath(given.path or "model"))
    parts = merged.parts(format_, quantization, name)
    if isinstance(parts, dict) and may_write(path):
        base = base_of(merged.files, model)
        training = "" if adapter is None else section_of(_card_beside(adapter))
        parts[CARD] = [card(base, LIBRARY[format_], training, adapter=False)]
    return written(parts, path)


LIBRARY = {"safetensors": "transformers", "mlx": "mlx", "peft": "peft"}


def _card_beside(adapter: str | os.PathLike[str] | dict[str, Any]) -> str:
    """The card of an adapter; "" if there is none."""
    if isinstance(adapter, dict):
        data = adapter.get(CARD, b"")
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
    folder = adapter if os.path.isdir(adapter) else os.path.dirname(adapter)
    try:
        with open(os.path.join(folder, CARD), encoding="utf-8", errors="replace") as f:
            return f.read(1 << 20)
    except OSError:
        return ""


def _onnx(
    model: str | os.PathLike[str],
    adapter: Adapter,
    path: str | os.PathLike[str] | None,
    dtype: str | None,
    external_data: str | None,
) -> bytes | None:
    trainer = Trainer(model, adapters=adapter.config, dtype=dtype, batch_size=1, sequence_length=1)
    try:
        trainer.load_adapter(adapter)
        return trainer.export(path, external_data)
    finally:
        trainer.free()


def _format_of(format: str | None, path: str | os.PathLike[str] | None) -> str:
    if format is None:
        return "gguf" if path is not None and path_of(path, "path").endswith(".gguf") else "onnx"
    if format not in FORMATS:
        raise InputError(
            f"{format!r} is not a format", "format", f"Use one of {', '.join(FORMATS)}."
        )
    return format


def written(
    parts: Parts | Mapping[str, Parts], path: str | os.PathLike[str] | None
) -> bytes | dict[str, bytes] | None:
    """Writes a file, or the files of a folder. Args and result: as merge_adapter's."""
    return write_folder(parts, path) if isinstance(parts, Mapping) else write_parts(path, parts)


@memory_in_words
def convert_adapter(
    adapter: str | os.PathLike[str] | dict[str, Any],
    model: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    format: str = "gguf",
    quantization: str | None = None,
) -> bytes | dict[str, bytes] | None:
    """Writes a LoRA adapter for another library, beside whose own copy of the base it is used.

    Names become those of transformers: an adapter that was trained on a matrix which an exporter
    fused (queries, keys and values) becomes one of each part. A folder gets a model card,
    README.md.

    Args:
        adapter: as merge_adapter's.
        model: folder of the base, for its config.json.
        path: of the file of "gguf", of a folder for others. None: bytes are returned.
        format: "gguf" (llama.cpp's `--lora`), "mlx" (mlx_lm's `--adapter-path`) or "peft".
        quantization: "f16" or "f32", of "gguf". Default: "f32".

    Returns:
        As merge_adapter.

    Raises:
        As merge_adapter.
    """
    files = _files_of(model)
    parts = adapter_in(format, load_adapter(adapter), files, quantization)
    if isinstance(parts, dict) and may_write(path):
        training = section_of(_card_beside(adapter))
        parts[CARD] = [card(base_of(files, model), LIBRARY[format], training, adapter=True)]
    return written(parts, path)


def adapter_in(
    format_: str, adapter: Adapter, files: ModelFiles, quantization: str | None = None
) -> Parts | dict[str, Parts]:
    """The files of convert_adapter as parts."""
    if format_ not in ADAPTER_FORMATS:
        raise InputError(
            f"{format_!r} is not a format of adapters",
            "format",
            f"Use one of {', '.join(ADAPTER_FORMATS)}.",
        )
    config = config_of(files)
    if format_ == "gguf":
        type_ = type_for(quantization or "f32", "adapter", False)
        return adapter_gguf(adapter, config, type_, "adapter")
    if quantization is not None:
        raise InputError(
            f"{format_} has float32 adapters", "quantization", "Leave it out, or use 'gguf'."
        )
    if format_ == "mlx":
        return adapter_mlx(adapter, config)
    return dict(adapter_parts(hub_adapter(adapter, config)))


def _files_of(model: str | os.PathLike[str]) -> ModelFiles:
    path = local_path(model, None)
    if not os.path.exists(path):
        raise NoSuchFile(
            "there is no such file or folder", str(path), "Give the folder of the base model."
        )
    files, _ = folder_files(path)
    return ModelFiles(files)


__all__ = ["convert_adapter", "merge_adapter"]
