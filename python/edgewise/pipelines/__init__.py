"""`pipeline(task, model)`: a model with its tokenizer, as in transformers."""

from __future__ import annotations

import os
from typing import Any

from ..errors import InputError
from .text_generation import TextGenerationPipeline

__all__ = ["TextGenerationPipeline", "pipeline"]

TASKS = {"text-generation": TextGenerationPipeline}


def pipeline(
    task: str,
    model: str | os.PathLike[str] | Any,
    tokenizer: str | os.PathLike[str] | Any = None,
    **options: Any,
) -> TextGenerationPipeline:
    """Creates a pipeline for a task. Mirrors transformers' `pipeline`.

    Example: `pipeline("text-generation", "models/smollm2")("Once upon a time", max_new_tokens=32)`

    Args:
        task: "text-generation".
        model: path of a model folder, an .onnx or an .edge file; the id of a model of the hub,
            such as "HuggingFaceTB/SmolLM2-135M-Instruct" (needs `edgewise[hub]`); or a loaded
            decoder (edgewise.CausalLM).
        tokenizer: default: the one beside the model. A path, or any object with encode(text) and
            decode(ids, skip_special_tokens=).
        **options: how to load the model; see edgewise.CausalLM.

    Raises:
        InputError, ModelError, PackageError, UnsupportedOp, TokenizerError.
    """
    if task not in TASKS:
        raise InputError(
            f"there is no pipeline for {task!r}", "pipeline", f"There are: {', '.join(TASKS)}."
        )
    return TASKS[task](model, tokenizer, **options)
