"""Definitions of tools, and messages with calls, as chat templates take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ..native import listed, written
from .bodies import arguments_of_text
from .values import json_of

MAX_TOOLS = 128
MAX_NAME = 64

_FORM = 'Give {"name": ..., "description": ..., "parameters": {JSON schema}}.'


def tools_of(given: Any) -> list[dict[str, Any]]:
    """Definitions in OpenAI's form.

    Args:
        given: a list of {name, description, parameters} or {type: "function", function}.

    Raises:
        InputError: it is something else.
    """
    items = listed(given)
    if items is None or not 0 < len(items) <= MAX_TOOLS:
        raise InputError(f"tools are not a list of 1 to {MAX_TOOLS}", "tools", _FORM)
    found: list[dict[str, Any]] = []
    names: set[str] = set()
    for i, item in enumerate(items):
        tool = _tool(item, f"tools[{i}]")
        name: str = tool["name"]
        if name in names:
            raise InputError(f"two tools have the name {name}", "tools", "Name them differently.")
        names.add(name)
        whole: dict[str, Any] = {"type": "function", "function": tool}
        found.append(whole)
    return found


def _tool(item: Any, where: str) -> dict[str, Any]:
    inner: Any = item.get("function") if isinstance(item, dict) else None
    tool: Any = item if inner is None else inner
    if not isinstance(tool, dict):
        raise InputError("it is no object", where, _FORM)
    if isinstance(item, dict) and inner is not None and item.get("type") not in (None, "function"):
        raise InputError(f"its type is {written(item.get('type'))}", where, 'Use "function".')
    name: Any = tool.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not _is_name(name):
        raise InputError(
            f"its name is {written(name)}", where, f"Use up to {MAX_NAME} letters, digits, _ . -"
        )
    description: Any = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise InputError("its description is no text", where, _FORM)
    parameters: Any = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InputError("its parameters are no JSON schema", where, _FORM)
    properties: dict[str, Any] = {}
    nothing: dict[str, Any] = {"type": "object", "properties": properties}
    return {
        **tool,
        "description": "" if description is None else description,
        "parameters": nothing if parameters is None else parameters,
    }


def _is_name(name: str) -> bool:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
    return all(c in letters for c in name)


def check_used(plain: str | None, rendered: str) -> None:
    """Checks that a template uses tools.

    Args:
        plain: the prompt without them; None: the template refused that.
        rendered: with them.

    Raises:
        InputError: they are the same.
    """
    if plain == rendered:
        raise InputError(
            "the model's chat template does not use tools",
            "tools",
            "Leave tools out, describe them in a message, or take a model that was trained with"
            " them.",
        )


IN_SYSTEM = ("message['tools']", 'message["tools"]', "message.tools")
"""Parts of templates that read tools from the system's message, as Phi-4-mini's."""


def messages_for(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    template: str = "",
) -> list[dict[str, Any]]:
    """Messages as templates take them: calls have arguments as objects, and the system's message
    has the tools as JSON, if the template reads them there.

    Args:
        messages: of the chat.
        tools: as `tools_of` returns them, or None.
        template: the chat template.
    """
    made = [_message(m) for m in messages]
    if tools is None or not any(part in template for part in IN_SYSTEM):
        return made
    functions: list[Any] = [tool["function"] for tool in tools]
    first: dict[str, Any] = {"role": "system", "content": ""}
    if len(made) > 0 and made[0].get("role") == "system":
        first = made[0]
        made = made[1:]
    whole: dict[str, Any] = {**first, "tools": json_of(functions)}
    return [whole, *made]


def without_tools(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of `messages_for` without the tools."""
    made: list[dict[str, Any]] = []
    for message in messages:
        one: dict[str, Any] = {k: v for k, v in message.items() if k != "tools"}
        made.append(one)
    return made


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = listed(message.get("tool_calls"))
    if calls is None:
        return message
    made: list[Any] = []
    for call in calls:
        function: Any = call.get("function") if isinstance(call, dict) else None
        given: Any = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(given, str):
            read: dict[str, Any] = {**function, "arguments": arguments_of_text(given)}
            one: dict[str, Any] = {**call, "function": read}
            made.append(one)
        else:
            made.append(call)
    return {**message, "tool_calls": made}


def count_calls(messages: Sequence[dict[str, Any]]) -> int:
    """The number of calls in a chat."""
    count = 0
    for message in messages:
        calls = listed(message.get("tool_calls"))
        count += 0 if calls is None else len(calls)
    return count
