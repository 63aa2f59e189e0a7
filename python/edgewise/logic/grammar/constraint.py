"""Formats in the engine: the vocabulary of a model, the grammars of calls, and where each sequence
is in its grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..generation.config import error_for
from ..generation.fields import ERRORS
from ..generation.requests import Engine
from ..native import int32_bytes
from .response_format import Compiled, compiled
from .vocabulary import Alphabet, vocabulary_of

MAX_KEPT = 8
"""Formats that are kept for later calls."""
MAX_SPARE = 2
"""Machines of a format that are kept for later calls."""
MAX_MACHINE = 1 << 26
"""Bytes of the states of a format. Beyond, they are found again."""
MAX_KEY = 4_000_000
"""Characters of a format."""


@dataclass(frozen=True)
class Place:
    """Where a sequence is in its grammar.

    Attributes:
        state: of the machine.
        age: how often the machine had been made anew by then; its states are valid for this age.
        token: the last token; -1 at the beginning.
        before: the place before it.
    """

    state: int
    age: int
    token: int = -1
    before: Place | None = None


@dataclass
class Machine:
    """States of a grammar in the engine's memory.

    Attributes:
        address, size: of the memory.
        start: the first state; 0: the machine has to be made.
        age: see Place.
    """

    address: int
    size: int
    start: int = 0
    age: int = 0


class Format:
    """A grammar in the engine's memory.

    Args:
        engine: see Formats.
        vocabulary: address of the vocabulary.
        found: the grammar.
    """

    def __init__(self, engine: Engine, vocabulary: int, found: Compiled) -> None:
        self.engine, self.vocabulary, self.is_json = engine, vocabulary, found.is_json
        self.words = len(found.program)
        self.program = engine.alloc(4 * self.words)
        engine.write(self.program, int32_bytes(found.program))
        self.spare: list[Machine] = []
        self.users: list[int] = []  # one for each constraint
        self.dropped = False

    def open(self, ends: Sequence[int]) -> Constraint:
        """The constraint of a generation, which closes it. ends: ids that end a text."""
        self.users.append(1)
        return Constraint(self, ends)

    def machine(self) -> Machine:
        """A machine that no one else uses."""
        if self.spare:
            return self.spare.pop()
        size = self.call("ew_grammar_bytes", self.program, self.words, self.vocabulary)
        return Machine(self.engine.alloc(size), size)

    def done(self, machine: Machine) -> None:
        """Gives a machine back."""
        self.users.pop()
        if self.dropped or len(self.spare) >= MAX_SPARE:
            self.engine.free(machine.address)
        else:
            self.spare.append(machine)
        if self.dropped and not self.users:
            self.free()

    def drop(self) -> None:
        """Frees the memory once no one uses it."""
        self.dropped = True
        if not self.users:
            self.free()

    def free(self) -> None:
        """Frees the memory."""
        for machine in self.spare:
            self.engine.free(machine.address)
        self.spare = []
        if self.program:
            self.engine.free(self.program)
        self.program = 0

    def call(self, name: str, *args: int) -> int:
        """Calls a function of the engine. Returns its int32; raises for negative ones, except for
        EW_S_FULL.
        """
        code = self.engine.call(name, *args) & 0xFFFFFFFF
        if code >= 2**31:
            code -= 2**32
        if code < 0 and code != ERRORS["FULL"]:
            raise error_for(code)
        return code


class Constraint:
    """The grammar of one generation.

    Args:
        format: of the call.
        ends: ids that end a text.
    """

    def __init__(self, format: Format, ends: Sequence[int]) -> None:
        self.format, self.engine = format, format.engine
        self.machine = format.machine()
        self.count = len(ends)
        self.ends = self.engine.alloc(4 * max(1, self.count))
        self.engine.write(self.ends, int32_bytes(ends))

    def close(self) -> None:
        """Gives everything back."""
        self.engine.free(self.ends)
        self.format.done(self.machine)

    def first(self) -> Place:
        """The place before the first token."""
        self._made()
        return Place(self.machine.start, self.machine.age)

    def after(self, place: Place, token: int) -> Place:
        """The place after a token that was allowed there."""
        state = self._next(self._current(place), token)
        return Place(state, self.machine.age, token, place)

    def apply(self, place: Place, scores: int, vocab_size: int) -> bool:
        """Sets the scores of tokens that are not allowed to -inf. Returns whether only the end is.

        Args:
            place: of the sequence.
            scores: address of float32 [vocab_size].
            vocab_size: see there.
        """
        for _ in range(2):
            state = self._current(place)
            code = self._call("ew_grammar_apply", state, scores, vocab_size, self.ends, self.count)
            if code != ERRORS["FULL"]:
                return code == 1
            self._grow()
        raise self._full()

    def _call(self, name: str, *args: int) -> int:
        """Calls a function on the machine."""
        format = self.format
        where = (format.program, format.vocabulary, self.machine.address)
        return format.call(name, *where, *args)

    def _next(self, state: int, token: int) -> int:
        return self._call("ew_grammar_next", state, token)

    def _made(self) -> None:
        """Makes the machine, if it is not."""
        format, machine = self.format, self.machine
        if machine.start:
            return
        machine.start = format.call(
            "ew_grammar_open",
            format.program,
            format.words,
            format.vocabulary,
            machine.address,
            machine.size,
        )
        if machine.start == ERRORS["FULL"]:
            machine.start = 0
            raise self._full()

    def _current(self, place: Place) -> int:
        """The state of a place, which is found again if the machine was made anew since."""
        self._made()
        if place.age == self.machine.age:
            return place.state
        tokens: list[int] = []
        at: Place | None = place
        while at is not None and at.before is not None:
            tokens.append(at.token)
            at = at.before
        tokens.reverse()
        for _ in range(8):
            state = self.machine.start
            for token in tokens:
                state = self._next(state, token)
                if state == ERRORS["FULL"]:
                    break
            if state != ERRORS["FULL"]:
                return state
            self._grow()
        raise self._full()

    def _grow(self) -> None:
        """Makes the machine anew, with more memory if it may have more."""
        machine = self.machine
        if machine.size < MAX_MACHINE:
            self.engine.free(machine.address)
            machine.address = 0
            machine.size *= 2
            machine.address = self.engine.alloc(machine.size)
        machine.start = 0
        machine.age += 1
        self._made()

    def _full(self) -> InputError:
        return InputError(
            f"the format needs more than {MAX_MACHINE >> 20} MB for its states",
            "response_format",
            "Simplify it: alternatives that begin alike have to be kept apart until they differ.",
        )


class Formats:
    """The formats of a model: its vocabulary, and the grammars of the last calls.

    Args:
        engine: in whose memory they are.
        vocab_size: number of logits.
        alphabet: of the tokenizer.
        token_of: the token of an id; None or "": there is none.

    Raises:
        UnsupportedField: the tokenizer's tokens are no parts of texts.
    """

    def __init__(
        self,
        engine: Engine,
        vocab_size: int,
        alphabet: Alphabet,
        token_of: Callable[[int], str | None],
    ) -> None:
        self.engine, self.vocab_size = engine, vocab_size
        self.kept: dict[str, Format] = {}
        ends, data = vocabulary_of(vocab_size, alphabet, token_of)
        self.vocabulary = self._vocabulary(ends, data)

    def _vocabulary(self, ends: list[int], data: bytes) -> int:
        """The address of the vocabulary in the engine's memory."""
        engine, count = self.engine, len(ends)
        taken: list[int] = []
        try:
            for size in (4 * count, max(1, len(data)), 4 * (2 * count + 1)):
                taken.append(engine.alloc(size))
            engine.write(taken[0], int32_bytes(ends))
            if data:
                engine.write(taken[1], data)
            size = engine.call("ew_vocabulary_sort", count, taken[0], taken[1], taken[2])
            size &= 0xFFFFFFFF
            if size >= 2**31:
                raise error_for(size - 2**32)
            made = engine.alloc(size)
            engine.call("ew_vocabulary_make", count, taken[0], taken[1], taken[2], made)
            return made
        finally:
            for address in taken:
                engine.free(address)

    def format(self, given: Any) -> Format | None:
        """The format of a call; None: any text.

        Raises:
            InputError, UnsupportedField: as `compiled`.
        """
        key = key_of(given)
        found = self.kept.pop(key, None)
        if found is None:
            made = compiled(given)
            if made is None:
                return None
            found = Format(self.engine, self.vocabulary, made)
        self.kept[key] = found
        while len(self.kept) > MAX_KEPT:
            oldest = next(iter(self.kept))
            self.kept.pop(oldest).drop()
        return found

    def free(self) -> None:
        """Frees the memory. No generation may use it."""
        for format in self.kept.values():
            format.free()
        self.kept = {}
        if self.vocabulary:
            self.engine.free(self.vocabulary)
        self.vocabulary = 0


def key_of(given: Any) -> str:
    """A text that is equal for equal formats.

    Raises:
        InputError: it is no JSON, or too long.
    """
    parts: list[str] = []
    _write(given, parts, 0)
    key = "".join(parts)
    if len(key) > MAX_KEY:
        raise InputError(f"it has more than {MAX_KEY} characters", "response_format")
    return key


def _write(value: Any, parts: list[str], depth: int) -> None:
    if depth > 200 or len(parts) > MAX_KEY:
        raise InputError("it is too deep or too long", "response_format", "Simplify it.")
    if isinstance(value, dict):
        table: dict[str, Any] = value
        parts.append("{")
        for name, one in table.items():
            parts.append(f"{len(name)}:{name}=")
            _write(one, parts, depth + 1)
        parts.append("}")
    elif isinstance(value, (list, tuple)):
        parts.append("[")
        for one in value:
            _write(one, parts, depth + 1)
        parts.append("]")
    elif isinstance(value, str):
        text: str = value
        parts.append(f"{len(text)}:{text}")
    elif value is None or isinstance(value, (bool, int, float)):
        parts.append(f"({value})")
    else:
        raise InputError("it has a value that is no JSON", "response_format", "Give plain objects.")
