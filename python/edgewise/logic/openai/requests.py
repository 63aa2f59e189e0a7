"""Requests of OpenAI's API, checked. Everything in them is untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError, RequestError
from ..native import listed, written
from ..tools.choice import check_given, chosen_tools

MAX_MESSAGES = 2048
MAX_BIASES = 1024

IGNORED = ("user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key")
"""Fields that have no effect here, or only on bookkeeping."""

INT64 = 2.0**63


@dataclass(frozen=True)
class Bound:
    """The numbers that a field can be."""

    name: str
    whole: bool
    low: float
    high: float


SAMPLING = (
    Bound("temperature", False, 0.0, 100.0),
    Bound("top_p", False, 0.0, 1.0),
    Bound("top_k", True, -1, 1 << 20),
    Bound("min_p", False, 0.0, 1.0),
    Bound("repetition_penalty", False, 1e-3, 100.0),
    Bound("presence_penalty", False, -2.0, 2.0),
    Bound("frequency_penalty", False, -2.0, 2.0),
    Bound("seed", True, -INT64, INT64),
)

COMMON = ("model", "stream", "stream_options", "max_tokens", "n", "stop", "logit_bias", "logprobs")
CHAT = (
    "messages",
    "max_completion_tokens",
    "top_logprobs",
    "response_format",
    "continue_final_message",
    "add_generation_prompt",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
)
COMPLETION = ("prompt", "best_of", "echo", "suffix")


@dataclass(frozen=True)
class TextLimits:
    """What one request may ask for.

    Attributes:
        tokens: new tokens of a sequence.
        choices: sequences of a request (prompts times `n`).
        stops: stop strings.
        stop_chars: characters of one.
        logprobs: alternatives of a token.
    """

    tokens: int = 4096
    choices: int = 16
    stops: int = 16
    stop_chars: int = 500
    logprobs: int = 20


LIMITS = TextLimits()


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
        stream: whether the text is sent as it comes.
        usage: whether with a last event of counts.
        tools: definitions as tools_of returns them, or None.
        tool_choice: as the request has it.
        wanted: the same, of choice_of.
        parallel: whether an answer may have several calls.
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
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    wanted: str = "none"
    parallel: bool = True


def parse_chat(body: Mapping[str, Any], limits: TextLimits) -> Generation:
    """A request to /v1/chat/completions.

    Raises:
        RequestError: it cannot be answered.
    """
    check_fields(body, [*COMMON, *CHAT])
    messages = _messages(body.get("messages"))
    final = messages[-1]["role"] == "assistant"
    goes_on = flag(body, "continue_final_message", final)
    if goes_on and not final:
        raise RequestError(
            "the last message is not the assistant's; there is nothing to continue",
            "continue_final_message",
        )
    if flag(body, "add_generation_prompt", not goes_on) == goes_on:
        raise RequestError(
            "it has to be the opposite of continue_final_message", "add_generation_prompt"
        )
    most = number(body, Bound("max_completion_tokens", True, 1, 1 << 30))
    request = common(body, limits, True, [messages])
    request.continues = goes_on
    take_tools(request, body.get("tools"), body.get("tool_choice"))
    request.parallel = flag(body, "parallel_tool_calls", True)
    wanted: Any = body.get("response_format")
    if wanted is not None and not isinstance(wanted, dict):
        raise RequestError("it is not an object", "response_format")
    check_given(wanted)
    if wanted is not None and wanted.get("type") != "text":
        request.fields["response_format"] = wanted
    request.max_tokens = request.max_tokens if most is None else int(most)
    top = number(body, Bound("top_logprobs", True, 0, limits.logprobs))
    if flag(body, "logprobs", False):
        request.logprobs = 0 if top is None else int(top)
    elif top is not None:
        raise RequestError("it needs `logprobs: true`", "top_logprobs")
    return request


def take_tools(request: Generation, tools: Any, given: Any) -> None:
    """Sets the tools of a request. given: its tool_choice. Raises RequestError."""
    none = listed(tools)
    if tools is None or (none is not None and len(none) == 0):
        tools = None
        given = None if given == "auto" else given
    try:
        request.tools, request.wanted = chosen_tools(tools, given)
    except InputError as e:
        raise RequestError(f"{e.what}; {e.remedy}", e.where.partition("[")[0]) from None
    request.tool_choice = given


def parse_completion(body: Mapping[str, Any], limits: TextLimits) -> Generation:
    """A request to /v1/completions.

    Raises:
        RequestError: it cannot be answered.
    """
    check_fields(body, [*COMMON, *COMPLETION])
    for name in ("echo", "suffix"):
        if not _is_empty(body.get(name)):
            raise RequestError(f"there is no `{name}` here; remove it", name)
    best = body.get("best_of")
    if best is not None and best != (1 if body.get("n") is None else body.get("n")):
        raise RequestError("it can only equal `n`", "best_of")
    request = common(body, limits, False, _prompts(body.get("prompt"), limits))
    top = number(body, Bound("logprobs", True, 0, limits.logprobs))
    request.logprobs = None if top is None else int(top)
    if request.max_tokens is None:
        request.max_tokens = 16  # OpenAI's default
    return request


def check_fields(body: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises RequestError if there is a field of another name."""
    for name, value in body.items():
        if value is None or name in names or name in IGNORED:
            continue
        if not any(name == bound.name for bound in SAMPLING):
            short = name[:60]
            raise RequestError(
                f"there is no field '{short}'; remove it", short, "unknown_parameter"
            )


def model_of(body: Mapping[str, Any]) -> str:
    """The name of the model. Raises RequestError."""
    name = body.get("model")
    if not isinstance(name, str) or not name:
        raise RequestError("name a model; /v1/models lists them", "model")
    return name


def check_length(count: int, room: int, request: Generation) -> None:
    """Raises RequestError if a prompt of `count` tokens leaves nothing of a context."""
    if count >= room:
        raise RequestError(
            f"the prompt has {count} tokens, and the model's context {room}; shorten it",
            "messages" if request.chat else "prompt",
            "context_length_exceeded",
        )


def _is_empty(value: Any) -> bool:
    items = listed(value)
    return (
        value is None
        or value is False
        or value in ("", "none")
        or (items is not None and len(items) == 0)
    )


def common(
    body: Mapping[str, Any], limits: TextLimits, chat: bool, prompts: list[Any]
) -> Generation:
    """What all kinds of requests have. Raises RequestError."""
    asked = number(body, Bound("n", True, 1, limits.choices))
    n = 1 if asked is None else int(asked)
    if n * len(prompts) > limits.choices:
        raise RequestError(
            f"{n * len(prompts)} sequences were asked for, at most {limits.choices} are made", "n"
        )
    options: Any = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise RequestError("it is not an object", "stream_options")
    fields: dict[str, Any] = {}
    for bound in SAMPLING:
        value = number(body, bound)
        if value is not None:
            fields[bound.name] = value
    bias = _bias(body.get("logit_bias"))
    if bias is not None:
        fields["logit_bias"] = bias
    most = number(body, Bound("max_tokens", True, 1, 1 << 30))
    return Generation(
        model=model_of(body),
        chat=chat,
        prompts=prompts,
        fields=_sampling(fields),
        max_tokens=None if most is None else int(most),
        n=n,
        stop=_stops(body.get("stop"), limits),
        stream=flag(body, "stream", False),
        usage=options is not None and flag(options, "include_usage", False),
    )


def _sampling(fields: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's sampling as transformers': a temperature of 0 is greedy, and top_k -1 off."""
    shapes = ("temperature", "top_p", "top_k", "min_p")
    if fields.get("top_k") == -1:
        fields["top_k"] = 0
    if fields.get("temperature") == 0 or fields.get("top_p") == 0:
        kept: dict[str, Any] = {k: v for k, v in fields.items() if k not in shapes}
        kept["do_sample"] = False
        return kept
    if any(name in fields for name in shapes):
        fields["do_sample"] = True
    return fields


def number(body: Mapping[str, Any], bound: Bound) -> float | None:
    """A number within bounds; None if it is missing or null. Raises RequestError."""
    value: Any = body.get(bound.name)
    if value is None:
        return None
    real = isinstance(value, int) or (not bound.whole and isinstance(value, float))
    if not real or isinstance(value, bool) or not bound.low <= value <= bound.high:
        what = "an integer" if bound.whole else "a number"
        raise RequestError(
            f"`{bound.name}` has to be {what} from {written(bound.low)} to {written(bound.high)}",
            bound.name,
        )
    found: float = value
    return found


def flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    """A field that is true or false; None: its default. Raises RequestError."""
    value: Any = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError(f"`{name}` has to be true or false", name)
    return value


def _stops(given: Any, limits: TextLimits) -> list[str]:
    stops = [] if given is None else [given] if isinstance(given, str) else listed(given)
    if stops is None or not all(isinstance(s, str) and len(s) > 0 for s in stops):
        raise RequestError("give a text or a list of texts, none empty", "stop")
    if len(stops) > limits.stops or any(len(s) > limits.stop_chars for s in stops):
        raise RequestError(
            f"at most {limits.stops} texts of {limits.stop_chars} characters are taken", "stop"
        )
    return stops


def _bias(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, dict) or len(given) > MAX_BIASES:
        raise RequestError(f"it maps at most {MAX_BIASES} token ids to numbers", "logit_bias")
    out: dict[str, Any] = {}
    for key, value in given.items():
        if not _is_id(key):
            raise RequestError(f"'{str(key)[:40]}' is not a token id", "logit_bias")
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not -100 <= value <= 100:
            raise RequestError("its numbers are from -100 to 100", "logit_bias")
        out[str(int(key))] = value
    return out


def _is_id(key: Any) -> bool:
    return isinstance(key, str) and 0 < len(key) < 10 and all(c in "0123456789" for c in key)


def _is_ids(given: Any) -> bool:
    ids = listed(given)
    if ids is None or len(ids) == 0:
        return False
    return all(isinstance(i, int) and not isinstance(i, bool) for i in ids)


def _prompts(given: Any, limits: TextLimits) -> list[Any]:
    """A text, token ids, or a list of either."""
    one = isinstance(given, str) or _is_ids(given)
    prompts = [given] if one else listed(given)
    if (
        prompts is None
        or len(prompts) == 0
        or not all(isinstance(p, str) or _is_ids(p) for p in prompts)
    ):
        raise RequestError("give a text, a list of token ids, or a list of either", "prompt")
    if len(prompts) > limits.choices:
        raise RequestError(
            f"there are {len(prompts)} prompts, at most {limits.choices} are taken", "prompt"
        )
    return prompts


def _messages(given: Any) -> list[dict[str, Any]]:
    """[{"role", "content"}] with contents as texts, calls of tools, and reasoning."""
    items = listed(given)
    if items is None or not 0 < len(items) <= MAX_MESSAGES:
        raise RequestError(f"give a list of 1 to {MAX_MESSAGES} messages", "messages")
    messages: list[dict[str, Any]] = []
    for i, message in enumerate(items):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RequestError(f"messages[{i}] has no role", "messages")
        calls = _calls(message.get("tool_calls"), f"messages[{i}]")
        content: Any = message.get("content")
        if content is None and len(calls) > 0:
            content = ""
        made: dict[str, Any] = {"role": message["role"]}
        made["content"] = _content(content, f"messages[{i}]")
        for name in ("tool_call_id", "name", "reasoning_content"):
            if isinstance(message.get(name), str):
                made[name] = message[name]
        if len(calls) > 0:
            made["tool_calls"] = calls
        messages.append(made)
    _name_results(messages)
    return messages


def _calls(given: Any, where: str) -> list[Any]:
    """The calls of a message: {"id", "type", "function": {"name", "arguments"}}."""
    items = listed(given)
    if given is not None and items is None:
        raise RequestError(f"{where}: its tool_calls are no list", "messages")
    for item in items or []:
        function: Any = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(f"{where}: a call has no function with a name", "messages")
        if not isinstance(function.get("arguments"), (str, dict)):
            raise RequestError(f"{where}: a call has no arguments of text", "messages")
    return items or []


def _name_results(messages: list[dict[str, Any]]) -> None:
    """Results get the names of the tools, which some templates write."""
    names: dict[str, str] = {}
    for message in messages:
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        for call in calls:
            function: dict[str, Any] = call["function"]
            names[str(call.get("id"))] = function["name"]
        key = str(message.get("tool_call_id"))
        if message["role"] == "tool" and "name" not in message and key in names:
            message["name"] = names[key]


def _content(given: Any, where: str) -> str:
    """The text of a message."""
    parts = listed(given)
    if parts is None:
        if not isinstance(given, str):
            raise RequestError(f"{where} has no content of text", "messages")
        return given
    texts: list[str] = []
    for part in parts:
        text: Any = part.get("text") if isinstance(part, dict) else None
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(text, str):
            raise RequestError(f"{where} contains something else than text", "messages")
        texts.append(text)
    return "".join(texts)
