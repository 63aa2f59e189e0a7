"""Regular expressions matched in linear time, by simulation of an NFA (Thompson 1968, Pike 1987).

Patterns come from files: RegexFullMatch and adapter_config.json. A backtracking matcher such as
Python's `re` could be made to run without end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MAX_STATES = 10000  # of a pattern with its repetitions written out

Thread = tuple[int, int, int]  # a state, and the begin and end of the named group, -1: none


class Expression:
    """One pattern.

    Args:
        pattern: in the syntax of Python's `re`; the part of it that is accepted is RE2's, too.
        python: whether character classes, `$` and boundaries are those of `re` (Unicode; `$` also
            matches before a final newline) instead of RE2's.

    Attributes:
        work: the number of states visited by all calls so far, for callers with a budget.

    Raises:
        ValueError: the pattern is not a regular expression, is too long, or has look-around, back
            references or other syntax that cannot be matched in linear time.
    """

    def __init__(self, pattern: str, python: bool = False) -> None:
        try:
            tree = parser.parse(pattern if python else pattern.replace(r"\z", r"\Z"))
        except (re.error, RecursionError, OverflowError, MemoryError) as e:
            raise ValueError(str(e)) from None
        self.flags, self.python = tree.state.flags, python
        self.ascii = re.ASCII if not python or self.flags & re.ASCII else 0
        self.word = re.compile(r"\w", self.ascii).match
        self.group = next(iter(tree.state.groupdict.values()), None)  # the first named group
        self.parsed = self.work = 0
        # Of each state a test or None, and the next states, the preferred one first.
        self.steps: list[tuple[Any, list[int]]] = []
        try:
            self.start = self._sequence(tree, self._state(None, []))
        except RecursionError:
            raise ValueError("its groups are nested too deeply") from None

    def _state(self, test: Any, to: list[int]) -> int:
        """A new state. test: a function of a character, or a zero-width test."""
        if len(self.steps) >= MAX_STATES:
            raise ValueError("it is too long")
        self.steps.append((test, to))
        return len(self.steps) - 1

    def _sequence(self, items: Iterable[tuple[Any, Any]], to: int) -> int:
        """The state from which parsed items lead to state `to`."""
        for op, value in reversed(list(items)):
            self.parsed += 1
            if self.parsed > 10 * MAX_STATES:
                raise ValueError("it is too long")
            to = self._item(op, value, to)
        return to

    def _item(self, op: Any, value: Any, to: int) -> int:
        """As _sequence, of one item."""
        if op in (c.MAX_REPEAT, c.MIN_REPEAT):
            return self._repeat(op is c.MAX_REPEAT, value, to)
        if op is c.SUBPATTERN:
            group, add, remove, items = value
            if add or remove:
                raise ValueError("flags of a group")
            if group is not None and group == self.group:
                return self._state("begin", [self._sequence(items, self._state("end", [to]))])
            return self._sequence(items, to)
        if op is c.BRANCH:
            return self._state(None, [self._sequence(items, to) for items in value[1]])
        if op is c.AT:
            return self._state(value, [to])
        return self._state(self._test(op, value), [to])

    def _repeat(self, greedy: bool, value: tuple[int, int, Any], to: int) -> int:
        """As _sequence, of repeated items. value: the least and most repetitions, and the items."""
        low, high, items = value

        def order(more: int, stop: int) -> list[int]:
            return [more, stop] if greedy else [stop, more]

        if low > MAX_STATES or high != c.MAXREPEAT and high > MAX_STATES:
            raise ValueError("it is too long")
        if high == c.MAXREPEAT:
            loop = self._state(None, [])
            self.steps[loop][1].extend(order(self._sequence(items, loop), to))
            to = loop
        else:
            end = to
            for _ in range(high - low):
                to = self._state(None, order(self._sequence(items, to), end))
        for _ in range(low):
            to = self._sequence(items, to)
        return to

    def _test(self, op: Any, value: Any) -> Callable[[str], Any]:
        """An item that matches one character, as a function of it."""
        if op is c.NOT_LITERAL:
            return self._test(c.IN, [(c.NEGATE, None), (c.LITERAL, value)])
        if op is c.IN:
            negated = bool(value) and value[0][0] is c.NEGATE
            # Each test ignores case by itself, before the negation.
            tests = [self._test(o, v) for o, v in value[negated:]]
            return lambda s: any(t(s) for t in tests) != negated
        test = self._plain(op, value)
        if self.flags & re.IGNORECASE and op in (c.LITERAL, c.RANGE):
            return lambda s: any(test(x) for x in (s, s.lower(), s.upper()) if len(x) == 1)
        return test

    def _plain(self, op: Any, value: Any) -> Callable[[str], Any]:
        """As _test, with case."""
        if op is c.LITERAL:
            return lambda s: ord(s) == value
        if op is c.ANY:
            return (lambda s: True) if self.flags & re.DOTALL else (lambda s: s != "\n")
        if op is c.RANGE:
            return lambda s: value[0] <= ord(s) <= value[1]
        if op is c.CATEGORY:
            letter = {
                c.CATEGORY_DIGIT: r"\d",
                c.CATEGORY_NOT_DIGIT: r"\D",
                c.CATEGORY_SPACE: r"\s",
                c.CATEGORY_NOT_SPACE: r"\S",
                c.CATEGORY_WORD: r"\w",
                c.CATEGORY_NOT_WORD: r"\W",
            }[value]
            return re.compile(letter, self.ascii).match
        raise ValueError(f"{str(op).lower()} in it")

    def _holds(self, before: str, after: str, last: bool) -> set[Any]:
        """The zero-width tests that hold between two characters ("" at the ends). last: `after` is
        the text's last character.
        """
        boundary = bool(self.word(before)) != bool(self.word(after))
        holds = {None, "begin", "end", c.AT_BOUNDARY if boundary else c.AT_NON_BOUNDARY}
        lines = self.flags & re.MULTILINE
        if not before:
            holds |= {c.AT_BEGINNING_STRING, c.AT_BEGINNING}
        elif lines and before == "\n":
            holds.add(c.AT_BEGINNING)
        if not after:
            holds |= {c.AT_END_STRING, c.AT_END}
        elif after == "\n" and (lines or self.python and last):
            holds.add(c.AT_END)
        return holds

    def _reach(self, states: Iterable[int], text: str, i: int) -> set[int]:
        """States that can be reached without a character, at position i of the text."""
        holds = self._holds(text[i - 1 : i] if i else "", text[i : i + 1], i + 1 == len(text))
        seen: set[int] = set()
        stack = list(states)
        while stack:
            s = stack.pop()
            if s in seen:
                continue
            seen.add(s)
            test, to = self.steps[s]
            if not callable(test) and test in holds:
                stack += to
        self.work += len(seen)
        return seen

    def _step(self, states: Iterable[int], char: str) -> set[int]:
        """States that can be reached by a character."""
        return {
            t
            for k in states
            if callable(self.steps[k][0]) and self.steps[k][0](char)
            for t in self.steps[k][1]
        }

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text, as `re.fullmatch`."""
        states = self._reach([self.start], text, 0)
        for i, s in enumerate(text):
            states = self._reach(self._step(states, s), text, i + 1)
            if not states:
                return False
        return 0 in states  # the final state

    def begins(self, text: str) -> bool:
        """Whether it matches the text from its beginning, as `re.match`."""
        states = self._reach([self.start], text, 0)
        for i, s in enumerate(text):
            if 0 in states or not states:
                break
            states = self._reach(self._step(states, s), text, i + 1)
        return 0 in states

    def named(self, text: str) -> str | None:
        """The text of the first named group of `re.match`; None where the pattern does not match or
        has no such group.
        """
        found, threads = None, self._threads([(self.start, -1, -1)], text, 0)
        for i in range(len(text) + 1):
            kept = []
            # In the order in which a backtracking matcher would try them.
            for s, begin, end in threads:
                if s == 0:
                    found = text[begin:end] if begin >= 0 and end >= begin else None
                    break
                test, to = self.steps[s]
                if callable(test) and i < len(text) and test(text[i]):
                    kept += [(t, begin, end) for t in to]
            threads = self._threads(kept, text, i + 1)
            if not threads:
                break
        return found

    def _threads(self, threads: list[Thread], text: str, i: int) -> list[Thread]:
        """As `_reach`, with the begin and end of the named group; preferred states first."""
        holds = self._holds(text[i - 1 : i] if i else "", text[i : i + 1], i + 1 == len(text))
        seen: set[int] = set()
        out: list[Thread] = []
        stack = threads[::-1]
        while stack:
            s, begin, end = stack.pop()
            if s in seen:
                continue
            seen.add(s)
            test, to = self.steps[s]
            if s == 0 or callable(test):
                out.append((s, begin, end))
            elif test in holds:
                begin, end = i if test == "begin" else begin, i if test == "end" else end
                stack += [(t, begin, end) for t in reversed(to)]
        self.work += len(seen)
        return out
