"""Bodies of requests, checked, besides those for text (logic/openai/requests.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ...json_text import parse_json_object
from ...logic.openai.requests import Bound, check_fields, model_of, number
from .options import Limits
from .refusals import Refusal


@dataclass
class Embedding:
    """A request for embeddings.

    Attributes:
        model: name of a model.
        inputs: texts, or token ids.
        base64: whether vectors are sent as base64 of float32.
        dimensions: how many numbers of each vector, or None for all.
    """

    model: str
    inputs: list[str]
    base64: bool
    dimensions: int | None


def parse_body(data: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises Refusal."""
    try:
        body = parse_json_object(data, "the body", InputError, "Send a JSON object in UTF-8.")
    except InputError as e:
        raise Refusal(str(e), code="invalid_json") from None
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = "a text has one half of a surrogate pair, which is no character"
        raise Refusal(text, code="invalid_json") from None
    return body


def parse_embedding(body: dict[str, Any], limits: Limits) -> Embedding:
    """A request to /v1/embeddings. Raises Refusal."""
    check_fields(body, ("model", "input", "encoding_format", "dimensions"))
    given = body.get("input")
    inputs = [given] if isinstance(given, str) else given
    if not isinstance(inputs, list) or not inputs:
        raise Refusal("give a text, or a list of texts", param="input")
    if not all(isinstance(text, str) and text for text in inputs):
        raise Refusal("give texts that are not empty; token ids are not taken", param="input")
    if len(inputs) > limits.inputs:
        raise Refusal(
            f"there are {len(inputs)} texts, at most {limits.inputs} are taken", param="input"
        )
    encoding = body.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise Refusal('it is "float" or "base64"', param="encoding_format")
    dimensions = number(body, Bound("dimensions", True, 1, 1 << 20))
    wanted = None if dimensions is None else int(dimensions)
    return Embedding(model_of(body), inputs, encoding == "base64", wanted)
