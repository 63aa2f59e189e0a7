"""What the computing thread does for a request for embeddings."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterator
from typing import Any

from .jobs import Job
from .requests import Embedding


def embed(pipe: Any, request: Embedding, job: Job) -> Iterator[dict[str, Any]]:
    """Yields the answer's body.

    Vectors are those of the model's own files (1_Pooling and so on); for a model without them
    means of the tokens' states, with length 1.
    """
    options: dict[str, Any] = {}
    recipe = pipe.recipe
    own = recipe.poolings or recipe.others
    if not own and "sentence_embedding" not in pipe.session("model").outputs:
        options = {"pooling": "mean", "normalize": True}
    if request.dimensions is not None:
        options["dimensions"] = request.dimensions
    data, tokens = [], 0
    for i, text in enumerate(request.inputs):
        if job.is_set():
            return
        vector = pipe(text, **options)
        tokens += len(pipe.tokenizer.encode(text))
        data.append(
            {
                "object": "embedding",
                "index": i,
                "embedding": _base64(vector) if request.base64 else vector,
            }
        )
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    yield {"object": "list", "data": data, "model": request.model, "usage": usage}


def _base64(vector: list[float]) -> str:
    """float32, little-endian, as OpenAI's clients ask for."""
    values = array("f", vector)
    if values.itemsize != 4:
        raise AssertionError("float is not of 32 bits")
    return base64.b64encode(values.tobytes()).decode()
