"""Regular expressions matched in time that is linear in the text (as RE2, whose syntax ONNX names, does): a pattern of a model must not be able to hang it."""
from __future__ import annotations

try:
    from re import _constants as c, _parser as parser
except ImportError:  # before Python 3.11
    import sre_constants as c
    import sre_parse as parser
import re

MOST_STATES = 10000  # of a pattern with its repetitions written out


def _word(s):
    return s == "_" or s.isascii() and s.isalnum()


class Expression:
    """Matches whole strings. Raises ValueError: no regular expression, too long a one, or one with look-around or back references."""

    def __init__(self, pattern):
        try:
            tree = parser.parse(pattern.replace(r"\z", r"\Z"))
        except (re.error, RecursionError, OverflowError) as e:
            raise ValueError(str(e)) from None
        self.flags = tree.state.flags
        self.work = 0
        self.steps = []   # (test or None, [next states])
        self.start = self._sequence(tree, self._state(None, []))

    def _state(self, test, to):
        if len(self.steps) >= MOST_STATES:
            raise ValueError("it is too long")
        self.steps.append((test, to))
        return len(self.steps) - 1

    def _sequence(self, items, to):
        for op, value in reversed(list(items)):
            self.work += 1
            if self.work > 10 * MOST_STATES:
                raise ValueError("it is too long")
            to = self._item(op, value, to)
        return to

    def _item(self, op, value, to):
        if op in (c.MAX_REPEAT, c.MIN_REPEAT):
            low, high, items = value
            if low > MOST_STATES or high != c.MAXREPEAT and high > MOST_STATES:
                raise ValueError("it is too long")
            if high == c.MAXREPEAT:
                loop = self._state(None, [])
                self.steps[loop][1].extend([self._sequence(items, loop), to])
                to = loop
            else:
                end = to
                for _ in range(high - low):
                    to = self._state(None, [self._sequence(items, to), end])
            for _ in range(low):
                to = self._sequence(items, to)
            return to
        if op is c.SUBPATTERN:
            _, add, remove, items = value
            if add or remove:
                raise ValueError("flags of a group")
            return self._sequence(items, to)
        if op is c.BRANCH:
            return self._state(None, [self._sequence(items, to) for items in value[1]])
        if op is c.AT:
            return self._state(value, [to])
        return self._state(self._test(op, value), [to])

    def _test(self, op, value):
        """A function of a character."""
        if op is c.NOT_LITERAL:
            return self._test(c.IN, [(c.NEGATE, None), (c.LITERAL, value)])
        if op is c.IN:
            negated = bool(value) and value[0][0] is c.NEGATE
            tests = [self._test(o, v) for o, v in value[negated:]]
            return lambda s: any(t(s) for t in tests) != negated
        test = self._plain(op, value)
        if self.flags & re.IGNORECASE:
            return lambda s: any(test(x) for x in (s, s.lower(), s.upper()) if len(x) == 1)
        return test

    def _plain(self, op, value):
        if op is c.LITERAL:
            return lambda s: ord(s) == value
        if op is c.ANY:
            return (lambda s: True) if self.flags & re.DOTALL else (lambda s: s != "\n")
        if op is c.RANGE:
            return lambda s: value[0] <= ord(s) <= value[1]
        if op is c.CATEGORY:
            letter = {c.CATEGORY_DIGIT: r"\d", c.CATEGORY_NOT_DIGIT: r"\D", c.CATEGORY_SPACE: r"\s", c.CATEGORY_NOT_SPACE: r"\S", c.CATEGORY_WORD: r"\w", c.CATEGORY_NOT_WORD: r"\W"}[value]
            return re.compile(letter, re.ASCII).match
        raise ValueError(f"{str(op).lower()} in it")

    def _reach(self, states, before, after):
        """States that these lead to without a character, between these two ("" at the ends)."""
        boundary = _word(before) != _word(after)
        true = {None, *((c.AT_BEGINNING, c.AT_BEGINNING_STRING) if not before else ()), *((c.AT_END, c.AT_END_STRING) if not after else ()), c.AT_BOUNDARY if boundary else c.AT_NON_BOUNDARY}
        seen, stack = set(), list(states)
        while stack:
            s = stack.pop()
            if s in seen:
                continue
            seen.add(s)
            test, to = self.steps[s]
            if not callable(test) and test in true:
                stack += to
        return seen

    def matches(self, text):
        """Whether it matches the whole text. The final state is the first one."""
        states = self._reach([self.start], "", text[:1])
        for i, s in enumerate(text):
            states = self._reach({t for k in states if callable(self.steps[k][0]) and self.steps[k][0](s) for t in self.steps[k][1]}, s, text[i + 1:i + 2])
            if not states:
                return False
        return 0 in states
