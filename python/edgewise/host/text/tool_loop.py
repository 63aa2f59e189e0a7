"""Tools that are Python functions: what they take, and their runs. The rules are those of
logic/tools/loop.py.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import re
import threading
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...logic.tools.loop import (
    Ask,
    Result,
    Use,
    conversation,
    described,
    failed,
    limits_of,
    too_late,
)
from ..drive import drive

__all__ = ["run_tools"]

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}


def run_tools(
    answer: Callable[..., list[Any]],
    messages: Sequence[dict[str, Any]],
    tools: Mapping[str, Any],
    max_rounds: int | None,
    tool_timeout: float | None,
    time_limit: float | None,
    on_message: Callable[[dict[str, Any]], object] | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """A conversation with tools. answer: of the pipeline. The others: as of its method `run`."""
    if not isinstance(tools, Mapping) or not tools:
        raise InputError("there are no tools", "run", "Give tools={name: function}.")
    functions = {str(name): _function(name, tool) for name, tool in tools.items()}
    definitions = described([(name, _record(tool)) for name, tool in tools.items()])
    limits = limits_of(max_rounds, tool_timeout, time_limit, options)
    tell = on_message or (lambda message: None)

    def ask(request: Ask) -> dict[str, Any]:
        most = {} if request.max_time is None else {"max_time": request.max_time}
        (made,) = answer(request.messages, tools=definitions, **{**options, **most})
        message: dict[str, Any] = made["generated_text"][-1]
        tell(message)
        return message

    def use(request: Use) -> list[Result]:
        return _together([(functions[n], given) for n, given in request.calls], request.seconds)

    steps = conversation(messages, list(functions), limits, time.monotonic)
    made = drive(steps, lambda r: ask(r) if isinstance(r, Ask) else use(r))
    return {"generated_text": made.messages, "rounds": made.rounds, "ended": made.ended}


def _function(name: object, tool: Any) -> Callable[..., Any]:
    found = tool.get("execute") if isinstance(tool, Mapping) else tool
    if not callable(found):
        raise InputError(
            "it has no function",
            f"tools.{str(name)[:64]}",
            "Give a function, or {description, parameters, execute}.",
        )
    return found


def _together(
    calls: list[tuple[Callable[..., Any], dict[str, Any]]], seconds: float
) -> list[Result]:
    """The results of functions that run at once. Those that take longer go on by themselves."""
    done: queue.SimpleQueue[tuple[int, Result]] = queue.SimpleQueue()

    def work(i: int) -> None:
        function, given = calls[i]
        try:
            value = function(**given)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            done.put((i, Result(value)))
        except Exception as e:
            done.put((i, failed(str(e) or type(e).__name__)))

    for i in range(len(calls)):
        threading.Thread(target=work, args=(i,), daemon=True).start()
    found: dict[int, Result] = {}
    end = time.monotonic() + seconds
    while len(found) < len(calls):
        try:
            i, result = done.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        found[i] = result
    return [found.get(i) or too_late(seconds) for i in range(len(calls))]


async def _awaited(value: Any) -> Any:
    return await value


def _record(tool: Any) -> Any:
    """What a tool is described by: its own record, or the signature and docstring of a function."""
    if isinstance(tool, Mapping):
        return dict(tool)
    text = inspect.getdoc(tool) or ""
    about, _, rest = text.partition("\n\nArgs:\n")
    told = dict(re.findall(r"^ +(\w+)[^:\n]*:[ \n]*(.*(?:\n {6,}.*)*)", rest, re.MULTILINE))
    hints = typing.get_type_hints(tool)
    properties, required = {}, []
    for name, given in inspect.signature(tool).parameters.items():
        properties[name] = _schema(hints.get(name, given.annotation))
        if name in told:
            properties[name]["description"] = re.sub(r"\s+", " ", told[name]).strip()
        if given.default is given.empty:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    return {"description": about.strip(), "parameters": schema}


def _schema(hint: Any) -> dict[str, Any]:
    """The JSON schema of an annotation; {} for what it has no word for."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if origin is typing.Literal:
        return {"enum": list(inside)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(one) for one in inside]}
    if hint is type(None):
        return {"type": "null"}
    if origin in (list, tuple, set):
        return {"type": "array", "items": _schema(inside[0]) if inside else {}}
    return {"type": "object"} if hint is dict or origin is dict else {}
