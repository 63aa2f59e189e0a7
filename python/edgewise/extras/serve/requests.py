"""Requests, checked. Everything in them is untrusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...json_text import parse_json_object
from .options import Limits
from .refusals import Refusal

Prompt = str | list[int]
MESSAGES = 2048

# Fields that have no effect here, or only on bookkeeping.
IGNORED = {"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"}
SAMPLING = {
    "temperature": (float, 0.0, 100.0),
    "top_p": (float, 0.0, 1.0),
    "top_k": (int, -1, 1 << 20),
    "min_p": (float, 0.0, 1.0),
    "repetition_penalty": (float, 1e-3, 100.0),
    "presence_penalty": (float, -2.0, 2.0),
    "frequency_penalty": (float, -2.0, 2.0),
    "seed": (int, -(2**63), 2**63 - 1),
}
COMMON = {
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "n",
    "stop",
    "logit_bias",
    "logprobs",
    *SAMPLING,
    *IGNORED,
}
CHAT = COMMON | {
    "messages",
    "max_completion_tokens",
    "top_logprobs",
    "response_format",
    "continue_final_message",
    "add_generation_prompt",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
}
COMPLETION = COMMON | {"prompt", "best_of", "echo", "suffix"}


@dataclass
class Generation:
    """A request for text.

    Attributes:
        model: name of a model or adapter.
        chat: whether it came as messages.
        prompts: texts or token ids; for a chat its messages as the only one.
        fields: of GenerationConfig that the request sets.
        max_tokens: None: as many as there is room for.
        continues: of a chat: whether the last message is continued.
        n: sequences of each prompt.
        stop: strings that end a sequence, and are not part of it.
        logprobs: alternatives of each token, or None for no log-probabilities.
        stream: whether the text is sent as it comes. usage: whether with a last event of counts.
    """

    model: str
    chat: bool
    prompts: list[Any]
    fields: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    continues: bool = False
    n: int = 1
    stop: list[str] = field(default_factory=list)
    logprobs: int | None = None
    stream: bool = False
    usage: bool = False


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


def parse_chat(body: dict[str, Any], limits: Limits) -> Generation:
    """A request to /v1/chat/completions. Raises Refusal."""
    _known(body, CHAT)
    for name in ("tools", "tool_choice"):
        if body.get(name) not in (None, [], "none"):
            raise Refusal(f"this server calls no tools; remove `{name}`", param=name)
    if (body.get("response_format") or {"type": "text"}) != {"type": "text"}:
        raise Refusal("answers are plain text; remove the field", param="response_format")
    messages = _messages(body.get("messages"))
    final = messages[-1]["role"] == "assistant"
    continues = _flag(body, "continue_final_message", final)
    if continues and not final:
        raise Refusal(
            "the last message is not the assistant's; there is nothing to continue",
            param="continue_final_message",
        )
    if _flag(body, "add_generation_prompt", not continues) == continues:
        raise Refusal(
            "it has to be the opposite of continue_final_message", param="add_generation_prompt"
        )
    most = _number(body, "max_completion_tokens", int, 1, 1 << 30)
    request = _common(body, limits, True, [messages])
    request.continues = continues
    request.max_tokens = request.max_tokens if most is None else most
    top = _number(body, "top_logprobs", int, 0, limits.logprobs)
    if _flag(body, "logprobs", False):
        request.logprobs = top or 0
    elif top is not None:
        raise Refusal("it needs `logprobs: true`", param="top_logprobs")
    return request


def parse_completion(body: dict[str, Any], limits: Limits) -> Generation:
    """A request to /v1/completions. Raises Refusal."""
    _known(body, COMPLETION)
    for name in ("echo", "suffix"):
        if body.get(name):
            raise Refusal(f"this server does not have `{name}`; remove it", param=name)
    if body.get("best_of") not in (None, body.get("n", 1)):
        raise Refusal("it can only equal `n`", param="best_of")
    request = _common(body, limits, False, _prompts(body.get("prompt"), limits))
    request.logprobs = _number(body, "logprobs", int, 0, limits.logprobs)
    if request.max_tokens is None:
        request.max_tokens = 16  # OpenAI's default
    return request


def parse_embedding(body: dict[str, Any], limits: Limits) -> Embedding:
    """A request to /v1/embeddings. Raises Refusal."""
    _known(body, {"model", "input", "encoding_format", "dimensions", *IGNORED})
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
    dimensions = _number(body, "dimensions", int, 1, 1 << 20)
    return Embedding(_model(body), inputs, encoding == "base64", dimensions)


def _known(body: dict[str, Any], names: set[str]) -> None:
    if unknown := [name for name, value in body.items() if name not in names and value is not None]:
        name = str(unknown[0])[:60]
        raise Refusal(
            f"there is no field {name!r}; remove it", param=name, code="unknown_parameter"
        )


def _model(body: dict[str, Any]) -> str:
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise Refusal("name a model; /v1/models lists them", param="model")
    return name


def _common(body: dict[str, Any], limits: Limits, chat: bool, prompts: list[Any]) -> Generation:
    """What both kinds of requests have."""
    n = _number(body, "n", int, 1, limits.choices) or 1
    if n * len(prompts) > limits.choices:
        raise Refusal(
            f"{n * len(prompts)} sequences were asked for, at most {limits.choices} are made",
            param="n",
        )
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refusal("it is not an object", param="stream_options")
    fields: dict[str, Any] = {}
    for name, (kind, low, high) in SAMPLING.items():
        if (value := _number(body, name, kind, low, high)) is not None:
            fields[name] = value
    if bias := _bias(body.get("logit_bias")):
        fields["logit_bias"] = bias
    return Generation(
        model=_model(body),
        chat=chat,
        prompts=prompts,
        fields=_sampling(fields),
        max_tokens=_number(body, "max_tokens", int, 1, 1 << 30),
        n=n,
        stop=_stops(body.get("stop"), limits),
        stream=_flag(body, "stream", False),
        usage=_flag(options, "include_usage", False),
    )


def _sampling(fields: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's sampling as transformers': a temperature of 0 is greedy, and top_k -1 off."""
    if fields.get("top_k") == -1:
        fields["top_k"] = 0
    if fields.get("temperature") == 0 or fields.get("top_p") == 0:
        for name in ("temperature", "top_p", "top_k", "min_p"):
            fields.pop(name, None)
        fields["do_sample"] = False
    elif fields.keys() & {"temperature", "top_p", "top_k", "min_p"}:
        fields["do_sample"] = True
    return fields


def _number(
    body: dict[str, Any], name: str, kind: Callable[[Any], Any], low: float, high: float
) -> Any:
    """A number within bounds; None if it is missing or null."""
    value = body.get(name)
    if value is None:
        return None
    good = type(value) is int or kind is float and type(value) is float
    if not good or not low <= value <= high:
        what = "an integer" if kind is int else "a number"
        raise Refusal(f"`{name}` has to be {what} from {low} to {high}", param=name)
    return kind(value)


def _flag(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise Refusal(f"`{name}` has to be true or false", param=name)
    return value


def _stops(given: Any, limits: Limits) -> list[str]:
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise Refusal("give a text or a list of texts, none empty", param="stop")
    if len(stops) > limits.stops or any(len(s) > limits.stop_chars for s in stops):
        raise Refusal(
            f"at most {limits.stops} texts of {limits.stop_chars} characters are taken",
            param="stop",
        )
    return stops


def _bias(given: Any) -> dict[int, float]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > 1024:
        raise Refusal("it maps at most 1024 token ids to numbers", param="logit_bias")
    out = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise Refusal(f"{key[:40]!r} is not a token id", param="logit_bias")
        if type(value) not in (int, float) or not -100 <= value <= 100:
            raise Refusal("its numbers are from -100 to 100", param="logit_bias")
        out[int(key)] = float(value)
    return out


def _prompts(given: Any, limits: Limits) -> list[Prompt]:
    """A text, token ids, or a list of either."""

    def ids(x: Any) -> bool:
        return isinstance(x, list) and bool(x) and all(type(i) is int for i in x)

    prompts = [given] if isinstance(given, str) or ids(given) else given
    if (
        not isinstance(prompts, list)
        or not prompts
        or not all(isinstance(p, str) or ids(p) for p in prompts)
    ):
        raise Refusal("give a text, a list of token ids, or a list of either", param="prompt")
    if len(prompts) > limits.choices:
        raise Refusal(
            f"there are {len(prompts)} prompts, at most {limits.choices} are taken", param="prompt"
        )
    return prompts


def _messages(given: Any) -> list[dict[str, str]]:
    """[{"role", "content"}], with contents as texts."""
    if not isinstance(given, list) or not given or len(given) > MESSAGES:
        raise Refusal(f"give a list of 1 to {MESSAGES} messages", param="messages")
    messages = []
    for i, message in enumerate(given):
        where = f"messages[{i}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refusal(f"{where} has no role", param="messages")
        content = message.get("content")
        if isinstance(content, list):
            if not all(
                isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str)
                for p in content
            ):
                raise Refusal(f"{where} contains something else than text", param="messages")
            content = "".join(p["text"] for p in content)
        if not isinstance(content, str):
            raise Refusal(f"{where} has no content of text", param="messages")
        messages.append({"role": message["role"], "content": content})
    return messages
