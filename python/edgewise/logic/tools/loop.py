"""A conversation in which the model calls tools until it answers.

What tools return is data: it is text in messages, in which special tokens are text (guard.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import listed, written
from .values import Unread, json_of

MAX_RESULT = 100_000
"""Characters of a result."""
ROUNDS = 10
TOOL_SECONDS = 60.0
MAX_SECONDS = 1_000_000.0
"""Of a limit: clocks of hosts take no longer times."""
MIN_SECONDS = 0.001

_FORM = "Give {name: function} or {name: {description, parameters, execute}}."


@dataclass(frozen=True)
class Ask:
    """The model answers messages, in so many seconds at most; None: there is no limit. The answer:
    its message.
    """

    messages: list[dict[str, Any]]
    max_time: float | None
    kind: Literal["ask"] = "ask"


@dataclass(frozen=True)
class Use:
    """Tools that are called at once: (name, arguments), each for so many seconds at most.

    The answer: a `Result` of each, in this order.
    """

    calls: list[tuple[str, dict[str, Any]]]
    seconds: float
    kind: Literal["use"] = "use"


@dataclass(frozen=True)
class Result:
    """What a tool gave: a value, or what went wrong in words."""

    value: Any
    error: str = ""


@dataclass
class Limits:
    """Limits of a conversation.

    Attributes:
        rounds: answers of the model.
        seconds: of a tool.
        total: seconds of all; None: there is no limit.
        answer: seconds of an answer, as the caller gave it.
    """

    rounds: int = ROUNDS
    seconds: float = TOOL_SECONDS
    total: float | None = None
    answer: float | None = None


@dataclass
class Conversation:
    """How a conversation went.

    Attributes:
        messages: all of them.
        rounds: answers of the model.
        ended: "answer", or the limit: "rounds" or "time".
    """

    messages: list[dict[str, Any]]
    rounds: int
    ended: Literal["answer", "rounds", "time"]


def limits_of(rounds: Any, seconds: Any, total: Any, options: Mapping[str, Any]) -> Limits:
    """Limits that were given. None: the usual ones.

    Args:
        rounds, seconds, total: as of Limits.
        options: of each call of the model.

    Raises:
        InputError: one is wrong, or the options give no conversation.
    """
    made = Limits()
    if rounds is not None:
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise InputError(f"it is {written(rounds)}", "max_rounds", "Give 1 or more.")
        made.rounds = rounds
    if seconds is not None:
        made.seconds = seconds_of(seconds, "tool_timeout", False)
    check_options(options)
    if total is not None:
        made.total = seconds_of(total, "time_limit", True)
    most: Any = options.get("max_time")
    if isinstance(most, (int, float)):
        made.answer = most
    return made


def seconds_of(given: Any, name: str, may_be_zero: bool) -> float:
    """The seconds of a limit. name: of the limit, for errors. Raises InputError."""
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not given >= 0:
        raise InputError(f"it is {written(given)}", name, "Give seconds.")
    if given == 0 and not may_be_zero:
        raise InputError("it is 0", name, "Give seconds.")
    seconds: float = given
    return min(seconds, MAX_SECONDS)


def check_options(options: Mapping[str, Any]) -> None:
    """Raises InputError for options of a call that give no conversation."""
    if options.get("return_full_text") is False or options.get("return_tensors"):
        raise InputError(
            "a conversation needs the whole chat",
            "run",
            "Leave return_full_text and return_tensors out, and take the last message.",
        )
    several: Any = options.get("num_return_sequences")
    if several is not None and several != 1:
        raise InputError(
            f"num_return_sequences is {written(several)}, and a conversation has one answer",
            "run",
            "Leave it out.",
        )


def described(tools: Sequence[tuple[str, Any]]) -> list[Any]:
    """The definitions of tools for the model.

    Args:
        tools: names, and what they have of {description, parameters, strict}.

    Raises:
        InputError: it is something else.
    """
    made: list[Any] = []
    for name, given in tools:
        if not isinstance(given, dict):
            raise InputError("it is neither a function nor an object", f"tools.{name[:64]}", _FORM)
        schema: Any = given.get("parameters", given.get("inputSchema"))
        one: dict[str, Any] = {
            "name": name,
            "description": given.get("description"),
            "parameters": schema,
        }
        if given.get("strict") is not None:
            one["strict"] = given["strict"]
        made.append(one)
    return made


class Clock:
    """What is left of the time of a conversation.

    Args:
        limits: of the conversation.
        now: the time in seconds.
    """

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self.limits, self.now = limits, now
        total = limits.total
        self.end: float | None = None if total is None else now() + total

    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.end is not None and self.now() >= self.end

    def left(self) -> float:
        """Seconds that are left: never 0, which hosts may take for no limit."""
        return MAX_SECONDS if self.end is None else max(MIN_SECONDS, self.end - self.now())

    def answer(self) -> float | None:
        """Seconds of an answer; None: there is no limit."""
        most = self.limits.answer
        if self.end is None:
            return most
        return self.left() if most is None else min(most, self.left())

    def tool(self) -> float:
        """Seconds of a tool."""
        return min(self.limits.seconds, self.left())


def conversation(
    messages: Sequence[dict[str, Any]],
    names: Sequence[str],
    limits: Limits,
    now: Callable[[], float],
) -> Generator[Ask | Use, Any, Conversation]:
    """Lets the model answer, and tools do what it calls, until there is an answer without calls.

    Args:
        messages: of the chat.
        names: of the tools.
        limits: of rounds and seconds.
        now: the time in seconds.
    """
    clock = Clock(limits, now)
    made = list(messages)
    for count in range(limits.rounds):
        message: dict[str, Any] = yield Ask(made, clock.answer())
        made = [*made, message]
        calls: list[dict[str, Any]] = listed(message.get("tool_calls")) or []
        over = clock.is_over()
        if over or len(calls) == 0:
            return Conversation(made, count + 1, "time" if over else "answer")
        known: list[tuple[str, dict[str, Any]]] = []
        for call in calls:
            function: dict[str, Any] = call["function"]
            name: str = function["name"]
            if name in names:
                known.append((name, function["arguments"]))
        results: list[Result] = []
        if len(known) > 0:
            results = yield Use(known, clock.tool())
        at = 0
        for call in calls:
            one: dict[str, Any] = call["function"]
            called: str = one["name"]
            if called in names:
                text = text_of(results[at])
                at += 1
            else:
                text = text_of(Result(None, _unknown(called, names)))
            answer: dict[str, Any] = {"role": "tool", "tool_call_id": call["id"]}
            answer["name"] = called
            answer["content"] = text
            made = [*made, answer]
    return Conversation(made, limits.rounds, "rounds")


def _unknown(name: str, names: Sequence[str]) -> str:
    return f"there is no tool {name[:64]}; there are {', '.join(names)}"


def text_of(result: Result) -> str:
    """The text of a result for the model: a text as it is, other values as JSON, and what went
    wrong as {"error"}.
    """
    error = result.error
    text = ""
    if error == "" and isinstance(result.value, str):
        text = result.value
    elif error == "":
        try:
            text = json_of(result.value)
        except Unread:
            error = "the result cannot be written as JSON"
    if len(text) > MAX_RESULT:
        error = f"the result has {len(text)} characters; at most {MAX_RESULT} are taken"
    if error != "":
        fault: dict[str, Any] = {"error": error[:1000]}
        return json_of(fault)
    return text


def too_late(seconds: float) -> Result:
    """The result of a tool that did not end in time."""
    return Result(None, f"the tool did not answer within {written(seconds)} s")


def failed(error: str) -> Result:
    """The result of a tool that raised an error."""
    return Result(None, error if error != "" else "the tool failed")
