"""Matches the patterns of adapter_config.json with module names, as PEFT does with `re`, but in
bounded time.

Adapters are untrusted files. Their patterns are matched by ops/host/regular.py, which does not
backtrack, and the matching of a configuration has a budget of work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from ....errors import InputError
from ...ops.host.regular import Expression

MAX_LENGTH = 1000  # characters of a pattern
MAX_EXPRESSIONS = 2000  # patterns that are more than a module's name
# Visited states: a few seconds. The configurations of real adapters take a few thousand.
MAX_WORK = 10_000_000
# A module's name as a pattern, in which "." matches any character.
_PLAIN = re.compile(r"[\w.]+", re.ASCII)

T = TypeVar("T")
# The patterns of a field, {shape: {pattern: index}} and [(index, pattern)]: see _table.
Table = tuple[list[str], dict[tuple[int, tuple[int, ...]], dict[str, int]], list[tuple[int, str]]]


class ModulePatterns:
    """The compiled patterns of a configuration, with a cache of their results.

    Raises:
        InputError: a pattern is not a regular expression or cannot be matched in linear time, or
            all of them take too much work. Raised by every method.
    """

    def __init__(self) -> None:
        self._compiled: dict[str, Expression] = {}
        self._answers: dict[tuple[str, ...], Any] = {}
        self._tables: dict[str, Table] = {}
        self._work = 0

    def __reduce__(self) -> tuple[type[ModulePatterns], tuple[()]]:  # copies start empty
        return ModulePatterns, ()

    def check(self, pattern: str, field: str) -> None:
        """Raises InputError, which names `field`, if the pattern cannot be used."""
        if len(pattern) > MAX_LENGTH:
            raise self._wrong(field, pattern, "it is too long")
        if not _PLAIN.fullmatch(pattern):
            self._expression(pattern, field, pattern)

    def full(self, pattern: str, module: str, field: str) -> bool:
        """re.fullmatch(pattern, module)"""
        return self._ask("matches", pattern, pattern, module, field)

    def begins(self, text: str, pattern: str, module: str, field: str) -> bool:
        """re.match(text, module). `text` is derived from `pattern`, which errors quote."""
        return self._ask("begins", text, pattern, module, field)

    def named(self, text: str, pattern: str, module: str, field: str) -> str | None:
        """The named group of re.match(text, module), or None."""
        return self._ask("named", text, pattern, module, field)

    def lookup(self, patterns: Mapping[str, T], module: str, default: T, field: str) -> T:
        r"""The value of the first pattern with re.match(rf"(.*\.)?({pattern})$", module).

        Args:
            patterns: {pattern: value}, the current value of the field.
            module: full name.
            default: returned if no pattern matches.
            field: of the configuration, for errors.
        """
        # The caller may have changed the field since the last call.
        if field not in self._tables or self._tables[field][0] != list(patterns):
            self._tables[field] = self._table(patterns)
            self._answers = {
                key: answer for key, answer in self._answers.items() if key[0] != field
            }
        key = (field, module)
        if key not in self._answers:
            self._answers[key] = self._first(module, field)
        found = self._answers[key]
        return default if found is None else patterns[found]

    @staticmethod
    def _table(patterns: Mapping[str, object]) -> Table:
        """(patterns, {shape: {pattern: index}}, [(index, pattern)] of the others).

        Most patterns are names of modules. Those with the same shape (length and positions of the
        dots) are looked up in one dictionary.
        """
        shapes: dict[tuple[int, tuple[int, ...]], dict[str, int]] = {}
        others: list[tuple[int, str]] = []
        for place, pattern in enumerate(patterns):
            if _PLAIN.fullmatch(pattern):
                dots = tuple(i for i, s in enumerate(pattern) if s == ".")
                shapes.setdefault((len(pattern), dots), {}).setdefault(pattern, place)
            else:
                others.append((place, pattern))
        return list(patterns), shapes, others

    def _first(self, module: str, field: str) -> str | None:
        names, shapes, others = self._tables[field]
        best = len(names)
        if "\n" in module:  # "." does not match it, and "$" matches before it
            others = list(enumerate(names))
        else:
            for (length, dots), table in shapes.items():
                self._spend(1 + len(dots), field)
                start = len(module) - length
                if start < 0 or start and module[start - 1] != ".":
                    continue
                tail = list(module[start:])
                for i in dots:
                    tail[i] = "."
                best = min(best, table.get("".join(tail), best))
        for place, pattern in others:
            if place >= best:
                break
            if self.begins(rf"(.*\.)?({pattern})$", pattern, module, field):
                best = place
        return names[best] if best < len(names) else None

    def _ask(self, how: str, text: str, pattern: str, module: str, field: str) -> Any:
        key = (how, text, module)
        if key not in self._answers:
            expression = self._expression(text, field, pattern)
            before = expression.work
            self._spend(len(module), field)  # before matching: a name may be long
            self._answers[key] = getattr(expression, how)(module)
            self._spend(expression.work - before, field)
        return self._answers[key]

    def _expression(self, text: str, field: str, pattern: str) -> Expression:
        if text not in self._compiled:
            # Each pattern is compiled twice: by `check`, and within the matched expression.
            if len(self._compiled) >= 2 * MAX_EXPRESSIONS:
                raise self._wrong(field, pattern, "there are too many patterns")
            try:
                self._compiled[text] = Expression(text, python=True)
            except ValueError as e:
                raise self._wrong(field, pattern, str(e)) from None
        return self._compiled[text]

    def _spend(self, work: int, field: str) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise InputError(
                f"its patterns take too much work to match ({field})",
                "LoraConfig",
                "Write module names instead of regular expressions.",
            )

    @staticmethod
    def _wrong(field: str, pattern: str, why: str) -> InputError:
        return InputError(
            f"{field} has {pattern[:80]!r}, which is not a regular expression that can be matched"
            " in"
            f" linear time ({why})",
            "LoraConfig",
            "Write a list of module names, or a regular expression without look-around and back"
            " references.",
        )
