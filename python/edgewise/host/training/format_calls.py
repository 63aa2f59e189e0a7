"""Pages' calls that write models and adapters in the formats of other libraries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...compiler.formats.files import ModelFiles
from ...compiler.onnx.sink import write_parts
from ...compiler.onnx.source import Source
from ...compiler.training.peft import CONFIG, WEIGHTS, load_adapter
from .card import CARD, TrainingRun, base_of, card, training_section
from .formats import HubModel, Parts
from .merge import LIBRARY, adapter_in


def call(files: Mapping[str, Source], options: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Answers a call of a page.

    Args:
        files: {name: Source} of the model, and of the adapter under PEFT's names.
        options: "format", "quantization" (a name or None), "adapter", whether the adapter's files
            are among them, "model_file", the name of the .onnx file; None: the adapter alone is
            written; "base_model" and "license" of the base, or None; and "run", what a card says
            of the training, or None.

    Returns:
        ("{}", {file name: bytes})
    """
    beside = {n: s for n, s in files.items() if n not in (CONFIG, WEIGHTS)}
    adapter = load_adapter({n: files[n] for n in (CONFIG, WEIGHTS)}) if options["adapter"] else None
    format_, quantization = options["format"], options.get("quantization")
    name = options.get("model_file")
    parts: Parts | dict[str, Parts]
    if name is None:
        assert adapter is not None
        parts = adapter_in(format_, adapter, ModelFiles(beside), quantization)
    else:
        merged = HubModel(files[name], ModelFiles(beside), adapter)
        parts = merged.parts(format_, quantization, os.path.splitext(os.path.basename(name))[0])
    if not isinstance(parts, Mapping):
        parts = {"adapter.gguf" if name is None else "model.gguf": parts}
    if isinstance(parts, dict) and "adapter.gguf" not in parts and "model.gguf" not in parts:
        parts[CARD] = [_card(ModelFiles(beside), options, name is None)]
    return "{}", {n: write_parts(None, p) or b"" for n, p in parts.items()}


def _card(beside: ModelFiles, options: Mapping[str, Any], alone: bool) -> bytes:
    """The model card of an export."""
    base = base_of(beside)
    base.id = options.get("base_model") or base.id
    if options.get("license"):
        base.license = {"license": options["license"]}
    run = options.get("run")
    training = training_section(TrainingRun(**run)) if run else ""
    return card(base, LIBRARY[options["format"]], training, adapter=alone)
