"""Checks regular expressions of a tokenizer.json before a backtracking matcher runs them (Oniguruma
here, the browser's in a page).

Patterns of real models have nested repetitions and back references to a character, so these cannot
be rejected in general. Oniguruma stops a match after 10^7 steps, so that exponential patterns end
after half a second. This module rejects patterns that are slow in spite of that limit: back
references to groups of any length (each step compares that much text), calls of groups, three
repetitions that can share characters before a required item, repetitions inside a look-behind, and
patterns that are too large.
"""

from __future__ import annotations

MANY = 1 << 30  # the upper bound of unbounded repetitions
BOUNDED = 64  # repetitions above count as unbounded; also the maximum length of a back reference


class RegexError(ValueError):
    """The pattern is rejected; the message completes a sentence with the pattern as subject."""


class _Item:
    """One item of a sequence.

    Attributes:
        kind: "set" (one character), "zero" (an anchor), "group", "look" or "behind".
        text: source of a set.
        branches: alternatives of a group.
        low, high: number of repetitions.
        wide: whether a set is a complement, which may share characters with any other set.
    """

    __slots__ = ("kind", "text", "branches", "low", "high", "wide")

    def __init__(
        self,
        kind: str,
        text: str = "",
        branches: list[list[_Item]] | None = None,
        wide: bool = False,
    ):
        self.kind, self.text, self.branches, self.low, self.high, self.wide = (
            kind,
            text,
            branches or [],
            1,
            1,
            wide,
        )


def check_regex(pattern: str, most_chars: int, most_depth: int, most_states: int) -> int:
    """Checks a pattern. Syntax errors may pass; the library that compiles it reports them.

    Args:
        pattern: the regular expression.
        most_chars: maximum length.
        most_depth: maximum nesting of groups.
        most_states: maximum size with counted repetitions expanded.

    Returns:
        The minimum length of a match.

    Raises:
        RegexError: the pattern is slow or too large.
    """
    if len(pattern) > most_chars:
        raise RegexError(f"has {len(pattern)} characters")
    parser = _Parser(pattern, most_depth)
    branches = parser.parse()
    for number in parser.references:
        if number > len(parser.groups) or _longest(parser.groups[number - 1].branches) > BOUNDED:
            raise RegexError("has a back reference to a group of any length")
    if _states(branches) > most_states:
        raise RegexError("is too large with its repetitions written out")
    _check(branches, [])
    return _width(branches)


class _Parser:
    def __init__(self, pattern: str, most_depth: int) -> None:
        self.p, self.i, self.most_depth = pattern, 0, most_depth
        self.groups: list[_Item] = []  # those that capture, by number
        self.references: list[int] = []

    def parse(self, depth: int = 0) -> list[list[_Item]]:
        """The branches up to ")" or the end."""
        if depth > self.most_depth:
            raise RegexError(f"has groups nested more than {self.most_depth} deep")
        branches: list[list[_Item]] = [[]]
        while self.i < len(self.p):
            s = self.p[self.i]
            if s == ")":
                break
            if s == "|":
                self.i += 1
                branches.append([])
                continue
            item = self._atom(s, depth)
            if item is not None:
                self._quantifiers(item)
                branches[-1].append(item)
        return branches

    def _atom(self, s: str, depth: int) -> _Item | None:
        p, start = self.p, self.i
        if s == "(":
            return self._group(depth)
        if s == "[":
            self._skip_class()
            return _Item("set", p[start : self.i], wide=p[start + 1 : start + 2] == "^")
        if s == "\\":
            return self._escape()
        self.i += 1
        if s in "^$":
            return _Item("zero", s)
        return _Item("set", s, wide=s == ".")

    def _escape(self) -> _Item:
        p, start = self.p, self.i
        s = p[start + 1 : start + 2]
        self.i += 2
        if s and s in "kg" and p[self.i : self.i + 1] in ("<", "'", "{"):
            raise RegexError("has a named back reference or calls a group")
        if s and s in "123456789":
            while p[self.i : self.i + 1] and p[self.i] in "0123456789" and self.i - start < 4:
                self.i += 1
            self.references.append(int(p[start + 1 : self.i]))
            return _Item("set", p[start : self.i])
        if s in "pPxuo" and s and p[self.i : self.i + 1] == "{":
            end = p.find("}", self.i)
            self.i = len(p) if end < 0 else end + 1
        elif s in "xu" and s:
            for _ in range(2 if s == "x" else 4):
                if p[self.i : self.i + 1] in tuple("0123456789abcdefABCDEF"):
                    self.i += 1
        if s in "bBAzZGK" and s:
            return _Item("zero", s)
        return _Item("set", p[start : self.i], wide=s in "SWDPHXRON" and s != "")

    def _skip_class(self) -> None:
        """Skips a character class, including nested classes and "[:name:]"."""
        p, depth, first = self.p, 0, False
        while self.i < len(p):
            s = p[self.i]
            self.i += 1
            if s == "\\":
                self.i += 1
                first = False
            elif s == "[":
                depth += 1
                if depth > self.most_depth:
                    raise RegexError(f"has classes nested more than {self.most_depth} deep")
                if p[self.i : self.i + 1] == "^":
                    self.i += 1
                first = True
            elif s == "]" and not first:
                depth -= 1
                if not depth:
                    return
            else:
                first = False

    def _group(self, depth: int) -> _Item | None:
        p = self.p
        self.i += 1
        kind, captures = "group", True
        if p[self.i : self.i + 1] == "?":
            rest = p[self.i + 1 : self.i + 3]
            captures = rest[:1] in ("<", "P", "'") and rest not in ("<=", "<!")
            if rest[:1] in ("=", "!"):
                kind, self.i = "look", self.i + 2
            elif rest in ("<=", "<!"):
                kind, self.i = "behind", self.i + 3
            elif rest[:1] in (":", ">"):
                self.i += 2
            elif rest[:1] in ("<", "P", "'"):
                end = p.find("'" if rest[:1] == "'" else ">", self.i + 2)
                if end < 0 or rest[:1] == "P" and rest[1:] != "<":
                    raise RegexError("has a named back reference or calls a group")
                self.i = end + 1
            elif rest[:1] == "#":
                end = p.find(")", self.i)
                self.i = len(p) if end < 0 else end + 1
                return None
            else:  # options: of a group, or of the rest of this one
                at = self.i + 1
                while p[at : at + 1] and p[at : at + 1] in "imsxaDSWPy-{}gw":
                    at += 1
                if p[at : at + 1] == ")":
                    self.i = at + 1
                    return None
                if p[at : at + 1] != ":":
                    raise RegexError("has a group that is not supported")
                self.i = at + 1
        item = _Item(kind, "(")
        if captures:
            self.groups.append(item)
        item.branches = self.parse(depth + 1)
        if p[self.i : self.i + 1] == ")":
            self.i += 1
        return item

    def _quantifiers(self, item: _Item) -> None:
        """Reads the quantifiers of an item: "*", "+", "?" or "{low,high}", each with an optional
        suffix "?" or "+". Several are multiplied.
        """
        p = self.p
        while self.i < len(p):
            s = p[self.i]
            if s in "*+?":
                low, high, n = (1 if s == "+" else 0), (1 if s == "?" else MANY), 1
            else:
                found = _braces(p, self.i) if s == "{" else None
                if found is None:
                    return
                low, high, n = found
            self.i += n
            if p[self.i : self.i + 1] in ("?", "+") and p[self.i : self.i + 1]:
                self.i += 1
            if item.high > 1 and high > 1:  # a repetition of a repetition
                inner = (
                    _Item("set", item.text, wide=item.wide)
                    if item.kind == "set"
                    else _Item(item.kind, item.text, item.branches)
                )
                inner.low, inner.high = item.low, item.high
                item.kind, item.branches, item.low, item.high = "group", [[inner]], 1, 1
            item.low, item.high = min(MANY, item.low * low), min(MANY, item.high * high)


def _braces(p: str, at: int) -> tuple[int, int, int] | None:
    """(low, high, length) of "{low}", "{low,}", "{,high}" or "{low,high}"; else None."""
    end = p.find("}", at, at + 24)
    low, comma, high = p[at + 1 : end].partition(",") if end > 0 else ("", "", "")
    digits = low + high
    if not digits or any(d not in "0123456789" for d in digits) or len(digits) > 18:
        return None
    least = int(low or 0)
    return least, (least if not comma else int(high) if high else MANY), end + 1 - at


def _states(branches: list[list[_Item]]) -> int:
    return sum(
        min(
            MANY,
            (item.high if item.high < MANY else max(1, item.low))
            * max(1, _states(item.branches) if item.branches else 1),
        )
        for branch in branches
        for item in branch
    )


def _width(branches: list[list[_Item]]) -> int:
    return min(
        min(
            MANY,
            sum(
                item.low
                * (
                    1
                    if item.kind == "set"
                    else _width(item.branches)
                    if item.kind == "group"
                    else 0
                )
                for item in branch
            ),
        )
        for branch in branches
    )


def _longest(branches: list[list[_Item]]) -> int:
    return max(
        min(
            MANY,
            sum(
                item.high
                * (
                    1
                    if item.kind == "set"
                    else _longest(item.branches)
                    if item.kind == "group"
                    else 0
                )
                for item in branch
            ),
        )
        for branch in branches
    )


def _repeats(branches: list[list[_Item]]) -> bool:
    return any(
        item.high > BOUNDED or _repeats(item.branches) for branch in branches for item in branch
    )


def _check(branches: list[list[_Item]], before: list[_Item]) -> list[_Item]:
    """Raises RegexError for repetitions whose numbers of steps multiply.

    Args:
        branches: alternatives.
        before: the preceding unbounded repetitions that can share characters with what follows.

    Returns:
        The same after these branches.
    """
    after: list[_Item] = []
    for branch in branches:
        open_ = list(before)
        for item in branch:
            if item.kind == "behind" and _repeats(item.branches):
                raise RegexError("has a repetition inside a look-behind")
            unbounded = item.high > BOUNDED
            needs = (
                item.low > 0
                and item.kind in ("set", "look", "behind", "group")
                and (item.kind != "group" or _width(item.branches) > 0)
            )
            if needs and len(open_) > 2:
                raise RegexError(
                    "has three repetitions that can share characters before something that must"
                    " follow"
                )
            if item.kind in ("look", "behind"):
                _check(item.branches, [])
            elif item.kind == "group":
                open_ = _check(item.branches, open_ if item.low == item.high == 1 else [])
                if unbounded:
                    open_ = [*open_, item]
            elif item.kind == "set" and unbounded:
                shared = [o for o in open_ if o.wide or item.wide or o.text == item.text]
                open_ = [*shared, item]
            elif needs:
                open_ = []  # a required item ends the repetitions before it
        after += [o for o in open_ if o not in after]
    return after


FEW = 10  # items in a row that may each match in several ways without taking long together


def may_not_end(pattern: str, most_depth: int = 40) -> bool:
    """Whether a backtracking matcher without a limit of steps may need exponential time for a
    pattern that check_regex accepts: a repeated group matches in more than one way, or many items
    in a row do.
    """
    return _ambiguous(_Parser(pattern, most_depth).parse())


def _ambiguous(branches: list[list[_Item]]) -> bool:
    return any(
        sum(item.low != item.high for item in branch) > FEW
        or any(
            (item.high > 1 and _varies(item.branches)) or _ambiguous(item.branches)
            for item in branch
            if item.branches
        )
        for branch in branches
    )


def _varies(branches: list[list[_Item]]) -> bool:
    """Whether a group can match in more than one way."""
    return len(branches) > 1 or any(
        item.low != item.high or (bool(item.branches) and _varies(item.branches))
        for item in branches[0]
    )
