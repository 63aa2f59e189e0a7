"""Which tools an answer calls, and the format that this gives the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ..native import written
from .definitions import tools_of
from .families import Family

CALLS = "calls"
"""The type of the format, which grammar.py reads."""


def check_given(response_format: Any) -> None:
    """Raises InputError for the format of calls, which is not for callers: their tools give it."""
    if isinstance(response_format, dict) and response_format.get("type") == CALLS:
        raise InputError('there is no type "calls"', "response_format", "Give tools.")


def choice_of(given: Any, names: Sequence[str], where: str = "tool_choice") -> str:
    """Which tools an answer calls: "auto", "none", "required", or the name of one after ":".

    Args:
        given: None, one of these words, {"type": "function", "function": {"name"}}, or {"name"}.
        names: of the tools.
        where: for errors.

    Raises:
        InputError: it is something else, or there is no such tool.
    """
    if given is None:
        return "auto"
    if given in ("auto", "none", "required"):
        word: str = given
        return word
    inner: Any = given.get("function") if isinstance(given, dict) else None
    named: Any = inner if isinstance(inner, dict) else given
    name: Any = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str):
        raise InputError(
            f"it is {written(given)}",
            where,
            'It can be "auto", "none", "required" or {"type": "function", "function": {"name"}}.',
        )
    if name not in names:
        raise InputError(f"there is no tool {name[:100]}", where, f"There are {', '.join(names)}.")
    return ":" + name


def chosen_tools(
    tools: Any, given: Any, followed: bool = False
) -> tuple[list[dict[str, Any]] | None, str]:
    """The tools of a call, and its choice as `choice_of` returns it; no tools for "none".

    Args:
        tools: as `tools_of` takes them, or None.
        given: the call's tool_choice, or None.
        followed: whether the caller wants to be told of the answer's parts.

    Raises:
        InputError: there is a choice, or it is followed, and there are no tools; or one is wrong.
    """
    found, wanted = _chosen(tools, given)
    if followed and found is None:
        raise InputError("on_delta needs tools", "pipeline", "Take the text from streamer.")
    return found, wanted


def _chosen(tools: Any, given: Any) -> tuple[list[dict[str, Any]] | None, str]:
    if tools is None:
        if given is not None and given not in ("auto", "none"):
            raise InputError("there are no tools", "tool_choice", "Give tools.")
        return None, "none"
    found = tools_of(tools)
    names: list[str] = [tool["function"]["name"] for tool in found]
    wanted = choice_of(given, names)
    return (None if wanted == "none" else found), wanted


def calls_format(
    family: Family,
    tools: Sequence[Mapping[str, Any]],
    choice_: str,
    parallel: bool,
    thinking: bool,
    marks: Sequence[str],
    template: str,
) -> dict[str, Any] | None:
    """The format of answers to a chat with tools; None: any text.

    Args:
        family: of the model.
        tools: as `tools_of` returns them.
        choice_: of `choice_of`.
        parallel: whether an answer may have several calls; of a named tool it has one.
        thinking: whether the prompt has begun the reasoning.
        marks: of `all_marks`, those that are tokens.
        template: the chat template.
    """
    functions: list[dict[str, Any]] = [tool["function"] for tool in tools]
    strict = any(f.get("strict") is True for f in functions)
    if choice_ == "none" or (choice_ == "auto" and parallel and not strict):
        return None
    parameters: list[Any] = []
    for function in functions:
        free: dict[str, Any] = {"type": "object"}
        loose = choice_ == "auto" and function.get("strict") is not True
        one: dict[str, Any] = {
            "name": function["name"],
            "parameters": free if loose else function["parameters"],
        }
        name: str = function["name"]
        if choice_ in ("auto", "required", ":" + name):
            parameters.append(one)
    return {
        "type": CALLS,
        "family": family.name,
        "functions": parameters,
        "required": choice_ != "auto",
        "parallel": parallel and not choice_.startswith(":"),
        "thinking": thinking,
        "marks": list(marks),
        "blocks": "```json" in template,
    }


def format_with(calls: dict[str, Any] | None, given: Any) -> Any:
    """The format of an answer. calls: of `calls_format`. given: the call's response_format.

    Raises:
        InputError: both are needed.
    """
    if calls is None or given is None:
        return given if calls is None else calls
    raise InputError(
        "response_format and calls of tools that are constrained exclude each other",
        "response_format",
        'Leave it out, or use tool_choice "auto" without strict tools.',
    )
