"""Prompts that are longer than a model's window of tokens: refused, or shortened by `truncation`.

As of transformers' tokenizers, `truncation` is true, false or the name of a strategy. It leaves
room for the answer: max_new_tokens, but at most half of the window. Of a chat the earliest turns
are left out, and messages before the first turn of the user stay.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import EdgewiseError, InputError
from ..native import option, written
from .config import Configuration

SIDES = ("left", "right")
STRATEGIES = ("longest_first", "only_first", "do_not_truncate")


@dataclass(frozen=True)
class Encode:
    """Asks for the token ids of a chat.

    Attributes:
        messages: of the chat.
        opens: whether the answer follows them: a new one, or the rest of the last message.
    """

    messages: list[dict[str, Any]]
    opens: bool
    kind: Literal["encode"] = "encode"


@dataclass
class Truncation:
    """How prompts are shortened.

    Attributes:
        room: most tokens of a prompt.
        side: of texts and token ids, the end that is cut: "left" or "right".
    """

    room: int
    side: str


def truncation_of(
    options: Mapping[str, Any], config: Configuration, fields: Mapping[str, Any], window: int
) -> Truncation | None:
    """How the prompts of a call are shortened; None: they are not.

    Args:
        options: of the call: truncation, truncation_side.
        config: of the call, without its fields.
        fields: of the call.
        window: most tokens of a sequence.

    Raises:
        InputError: an option has no such value.
    """
    given: Any = options.get("truncation")
    side: Any = options.get("truncation_side")
    side = "left" if side is None else side
    switch = given is None or isinstance(given, bool)
    _check("truncation", switch or given in STRATEGIES, given, [written(True), *STRATEGIES])
    _check("truncation_side", side in SIDES, side, SIDES)
    if given is None or given is False or given == "do_not_truncate":
        return None
    return Truncation(room_of(config, fields, window), side)


def _check(name: str, fine: bool, value: Any, known: Sequence[str]) -> None:
    """Raises InputError for an option with another value than those that are known."""
    if not fine:
        choices = " or ".join(known)
        raise InputError(f"it is {written(value)}", option(name), f"Give {choices}.")


def room_of(config: Configuration, fields: Mapping[str, Any], window: int) -> int:
    """The most tokens of a prompt after which an answer has room."""
    whole = config.merged(Configuration({}))
    for name in ("max_length", "max_new_tokens"):
        if fields.get(name) is not None:
            whole.update({name: fields.get(name)})
    longest = window
    if fields.get("max_length") is not None:
        longest = min(window, max(2, _count(whole, "max_length", window)))
    new = _count(whole, "max_new_tokens", 1)
    return max(longest - max(1, min(new, longest // 2)), 1)


def _count(config: Configuration, name: str, otherwise: int) -> int:
    value: Any = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return otherwise
    return int(value)


def cut(ids: list[int], how: Truncation, bos: int | None) -> list[int]:
    """The tokens of a text that fit. One that begins texts stays."""
    if len(ids) <= how.room:
        return ids
    if how.side == "right":
        return ids[: how.room]
    head = 1 if bos is not None and ids[0] == bos and how.room > 1 else 0
    return _joined(ids, head, how.room)


def fitting_chat(
    messages: Sequence[dict[str, Any]], ids: list[int], room: int
) -> Generator[Encode, list[int], list[int]]:
    """The tokens of a chat that fit: turns are left out, the earliest first. If the last one alone
    is too long, its beginning is cut.

    Args:
        messages: of the chat.
        ids: its tokens.
        room: most tokens.
    """
    if len(ids) <= room:
        return ids
    first = 0
    while first < len(messages) and messages[first]["role"] != "user":
        first += 1
    if first == len(messages):
        first = 0
    kept: list[dict[str, Any]] = list(messages[:first])
    starts = [i for i in range(first + 1, len(messages)) if messages[i]["role"] == "user"]
    shortest, low, high = ids, 0, len(starts)
    best: list[int] | None = None
    while low < high:
        middle = (low + high) // 2
        made = yield Encode([*kept, *messages[starts[middle] :]], True)
        if len(made) <= room:
            best, high = made, middle
        else:
            shortest, low = made, middle + 1
    if best is not None:
        return best
    head = 0
    if kept:
        try:
            alone = yield Encode(kept, False)
            while head < min(len(alone), room // 2) and alone[head] == shortest[head]:
                head += 1
        except EdgewiseError:
            head = 0  # templates may want a turn of the user
    return _joined(shortest, head, room)


def _joined(ids: list[int], head: int, room: int) -> list[int]:
    """The first `head` tokens, and as many of the last ones as fit."""
    return [*ids[:head], *ids[len(ids) - (room - head) :]]
