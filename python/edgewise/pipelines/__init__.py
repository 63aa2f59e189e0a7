"""`pipeline(task, model)`: a model, its tokenizer and a loop, as transformers has it."""

from ..errors import InputError
from .text_generation import TextGenerationPipeline

__all__ = ["TextGenerationPipeline", "pipeline"]

TASKS = {"text-generation": TextGenerationPipeline}


def pipeline(task, model, tokenizer=None, **options):
    """pipeline("text-generation", "models/smollm2")("Once upon a time", max_new_tokens=32)

    task       "text-generation" model      path of a model directory, an .onnx or an .edge file, or
    a loaded decoder (edgewise.CausalLM) tokenizer  by default the one that lies with the model; a
    path, or any object with encode(text) and decode(ids, skip_special_tokens=) options    for
    loading the model: see edgewise.CausalLM

    Raises InputError, ModelError, PackageError, UnsupportedOp, TokenizerError.
    """
    if task not in TASKS:
        raise InputError(
            f"there is no pipeline for {task!r}", "pipeline", f"There are: {', '.join(TASKS)}."
        )
    return TASKS[task](model, tokenizer, **options)
