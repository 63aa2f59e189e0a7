"""Adapters: their tensors, read from and written to files of PEFT's layout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ....errors import InputError, ModelError, memory_in_words, path_of
from ....json_text import parse_json, written_json
from ....logic.training.adapters import (
    PREFIX,
    check_magnitudes,
    check_pairs,
    half_of,
    magnitude_of,
    name_of,
    name_of_magnitude,
    name_of_saved,
    names_of,
    whole_names,
    written_config,
)
from ...declare.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16
from ...onnx.sink import write_folder
from ...onnx.source import FileSource, as_source
from ..safetensors import load_safetensors, safetensors_parts
from .config import CONFIG, LoraConfig

WEIGHTS = "adapter_model.safetensors"
MAX_CONFIG = 1 << 22  # bytes


@dataclass
class Adapter:
    """The tensors of an adapter. A module computes base(x) + scaling * B(A(dropout(x))); with DoRA
    the rows of W + scaling * B A are brought to its magnitudes.

    Tensors are `Tensor`s in a file, arrays, or what else `edgewise.compiler.onnx.sink.as_stored`
    takes.

    Attributes:
        config: its configuration.
        lora: {module: (A, B)}, A [r, in] and B [out, r]; of a convolution A [r, in, *kernel] and
            B [out, r, 1, ...].
        embeddings: {module: (A, B)}, A [r, rows] and B [width, r].
        saved: {parameter name: tensor} of modules_to_save and of trained biases, which replace the
            base's.
        magnitudes: {module: [out]} of DoRA.
    """

    config: LoraConfig
    lora: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    embeddings: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    magnitudes: dict[str, Any] = field(default_factory=dict)

    def of_part(self) -> Adapter:
        """The adapter with the whole names of its modules in the place of "all-linear": of a part
        of a model, such as its decoder.
        """
        fields = whole_names(self.config.to_dict(), [*self.lora, *self.embeddings])
        config = replace(self.config, target_modules=fields["target_modules"])
        return replace(self, config=config)

    @classmethod
    def of(cls, config: LoraConfig, tensors: Mapping[str, Any], where: str = "adapter") -> Adapter:
        """An adapter from the tensors of PEFT's file.

        Args:
            tensors: {name: tensor}, with or without the prefix "base_model.model.":
                MODULE.lora_A.weight, MODULE.lora_embedding_A, ... Others are `saved`.
            where: for messages.

        Raises:
            ModelError: one of a pair is missing. UnsupportedField: it is a variant of LoRA.
        """
        adapter = cls(config)
        named = {name: tensors[key] for key, name in names_of(list(tensors), where).items()}
        for name, x in named.items():
            half, module = half_of(name), magnitude_of(name)
            if module is not None:
                adapter.magnitudes[module] = x
            elif half is None:
                adapter.saved[name] = x
            elif half.is_a:
                kind = adapter.embeddings if half.embedding else adapter.lora
                kind[half.module] = x, named[name_of(replace(half, is_a=False))]
        return adapter

    def tensors(self) -> dict[str, Any]:
        """{PEFT's name without "base_model.model.": tensor}, the inverse of `of`."""
        out = {}
        for module, pair in self.lora.items():
            out[f"{module}.lora_A.weight"], out[f"{module}.lora_B.weight"] = pair
        for module, pair in self.embeddings.items():
            out[f"{module}.lora_embedding_A"], out[f"{module}.lora_embedding_B"] = pair
        for module, x in self.magnitudes.items():
            out[name_of_magnitude(module)] = x
        for name, x in self.saved.items():
            out[name_of_saved(name, [*self.lora, *self.embeddings])] = x
        return out


@memory_in_words
def load_adapter(source: str | os.PathLike[str] | dict[str, Any]) -> Adapter:
    """Reads an adapter. Its tensors stay in the file.

    Args:
        source: path of the folder or of the .safetensors file, or {file name: bytes, path or
            Source} with PEFT's two names.

    Raises:
        ModelError: a file is damaged or missing, or the two do not match.
        UnsupportedField: it needs what Edgewise does not have.
    """
    if isinstance(source, dict):
        missing = {CONFIG, WEIGHTS} - set(source)
        if missing:
            raise ModelError(
                f"{' and '.join(sorted(missing))} missing",
                "adapter",
                f"An adapter is {CONFIG} and {WEIGHTS}.",
            )
        config, weights = as_source(source[CONFIG], CONFIG), as_source(source[WEIGHTS], WEIGHTS)
    else:
        path = path_of(source, "adapter")
        folder, file = (
            (path, os.path.join(path, WEIGHTS))
            if os.path.isdir(path)
            else (os.path.dirname(path), path)
        )
        if not os.path.exists(file) and os.path.exists(os.path.join(folder, "adapter_model.bin")):
            raise ModelError(
                "it holds adapter_model.bin, a Python pickle, which may run any code",
                path,
                "Save it again with a recent PEFT, which writes safetensors.",
            )
        config, weights = FileSource(os.path.join(folder, CONFIG)), FileSource(file)
    values = parse_json(
        config.read_all(MAX_CONFIG), config.name, remedy="Is this PEFT's adapter_config.json?"
    )
    tensors, _ = load_safetensors(weights)
    for key, t in tensors.items():
        if t.dtype not in (FLOAT, FLOAT16, BFLOAT16, DOUBLE):
            raise ModelError(
                f"'{key}' is not a floating-point tensor", weights.name, "Is this a LoRA adapter?"
            )
    adapter = Adapter.of(LoraConfig.from_dict(values, config.name), tensors, weights.name)
    try:
        shapes = {n: list(t.shape) for n, t in adapter.tensors().items()}
        check_magnitudes(shapes, adapter.config.use_dora, weights.name)
        check_pairs(shapes, adapter.config.rank_of, weights.name)
    except InputError as e:  # a pattern of the file
        raise ModelError(e.what, config.name, e.remedy) from None
    return adapter


def adapter_parts(adapter: Adapter) -> dict[str, Iterable[Any]]:
    """The files of an adapter, {file name: bytes-like parts}.

    "all-linear" is replaced by the names of the adapted modules, as by PEFT.

    Raises:
        InputError: a tensor cannot be written.
    """
    config = written_config(adapter.config.to_dict(), [*adapter.lora, *adapter.embeddings])
    tensors = {PREFIX + name: x for name, x in adapter.tensors().items()}
    text = written_json(config, indent=2, sort_keys=True) + b"\n"
    return {WEIGHTS: safetensors_parts(tensors, {"format": "pt"}), CONFIG: [text]}


@memory_in_words
def save_adapter(
    adapter: Adapter, folder: str | os.PathLike[str] | None = None
) -> dict[str, bytes] | None:
    """Writes an adapter in PEFT's layout; each file is complete or not written at all.

    Args:
        adapter: to be written.
        folder: made if it is missing. None: returns {file name: bytes}.

    Raises:
        InputError: a tensor or the folder cannot be written.
    """
    return write_folder(adapter_parts(adapter), folder)
