"""Which regular expressions of a tokenizer.json are safe to hand to a backtracking matcher (Oniguruma here, the browser's in a page).

Refused is what can take exponential time, or more than quadratic time that is easy to see: back references and calls, repetitions
of what has no fixed length, two repetitions that can share characters before something that must follow, repetitions inside a
look-behind. Of the pre-tokenizers of real models nothing is refused. web/src/regex-limits.ts is the same; the vectors are
tests/conformance/tokenizers.json.
"""
from __future__ import annotations

MANY = 1 << 30  # of a repetition without an upper bound, and of one with an upper bound above BOUNDED
BOUNDED = 64
_SEPARATORS = " .,:;'/@#%&!?=~"
_WORDS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
_WORD_SETS = ("\\d", "\\w", "\\p{L}", "\\p{N}", "\\p{M}", "\\p{Lu}", "\\p{Ll}", "\\p{Nd}", "a-z", "A-Z", "0-9")


class RegexError(ValueError):
    """`str()`: what is wrong with the pattern, as the end of a sentence that begins with it."""


class _Item:
    """One item of a sequence. kind: "set" (one character), "zero" (an anchor), "group", "look" or "behind". low, high: how often.

    wide: its characters are everything but some, so that they may be another set's, too."""
    __slots__ = ("kind", "text", "branches", "low", "high", "wide")

    def __init__(self, kind: str, text: str = "", branches: list | None = None, wide: bool = False):
        self.kind, self.text, self.branches, self.low, self.high, self.wide = kind, text, branches or [], 1, 1, wide


def check_regex(pattern: str, most_chars: int, most_depth: int, most_states: int) -> int:
    """Raises RegexError where the pattern is not safe or larger than allowed; returns the fewest characters that a match has.

    Patterns with errors pass where they can be read as one: the library that compiles them says what is wrong.
    """
    if len(pattern) > most_chars:
        raise RegexError(f"has {len(pattern)} characters")
    branches = _Parser(pattern, most_depth).parse()
    if _states(branches) > most_states:
        raise RegexError("is too large with its repetitions written out")
    _check(branches, [])
    return _width(branches)


class _Parser:
    def __init__(self, pattern: str, most_depth: int):
        self.p, self.i, self.most_depth = pattern, 0, most_depth

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
            return _Item("set", p[start:self.i], wide=p[start + 1:start + 2] == "^")
        if s == "\\":
            return self._escape()
        self.i += 1
        if s in "^$":
            return _Item("zero", s)
        return _Item("set", s, wide=s == ".")

    def _escape(self) -> _Item:
        p, start = self.p, self.i
        s = p[start + 1:start + 2]
        self.i += 2
        if s in "123456789" and s or s in "kg" and p[self.i:self.i + 1] in ("<", "'", "{") and s:
            raise RegexError("has a back reference or calls a group")
        if s in "pPxuo" and s and p[self.i:self.i + 1] == "{":
            end = p.find("}", self.i)
            self.i = len(p) if end < 0 else end + 1
        elif s in "xu" and s:
            for _ in range(2 if s == "x" else 4):
                if p[self.i:self.i + 1] in tuple("0123456789abcdefABCDEF"):
                    self.i += 1
        if s in "bBAzZGK" and s:
            return _Item("zero", s)
        return _Item("set", p[start:self.i], wide=s in "SWDPHXRON" and s != "")

    def _skip_class(self) -> None:
        """Past a character class, with classes and "[:name:]" inside it."""
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
                if p[self.i:self.i + 1] == "^":
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
        kind = "group"
        if p[self.i:self.i + 1] == "?":
            rest = p[self.i + 1:self.i + 3]
            if rest[:1] in ("=", "!"):
                kind, self.i = "look", self.i + 2
            elif rest in ("<=", "<!"):
                kind, self.i = "behind", self.i + 3
            elif rest[:1] in (":", ">"):
                self.i += 2
            elif rest[:1] in ("<", "P", "'"):
                end = p.find("'" if rest[:1] == "'" else ">", self.i + 2)
                if end < 0 or rest[:1] == "P" and rest[1:] != "<":
                    raise RegexError("has a back reference or calls a group")
                self.i = end + 1
            elif rest[:1] == "#":
                end = p.find(")", self.i)
                self.i = len(p) if end < 0 else end + 1
                return None
            else:  # options: of a group, or of the rest of this one
                at = self.i + 1
                while p[at:at + 1] and p[at:at + 1] in "imsxaDSWPy-{}gw":
                    at += 1
                if p[at:at + 1] == ")":
                    self.i = at + 1
                    return None
                if p[at:at + 1] != ":":
                    raise RegexError("has a group that is not supported")
                self.i = at + 1
        item = _Item(kind, "(", self.parse(depth + 1))
        if p[self.i:self.i + 1] == ")":
            self.i += 1
        return item

    def _quantifiers(self, item: _Item) -> None:
        """Reads what repeats an item: "*", "+", "?", "{low,high}", each with "?" or "+" behind it; several multiply."""
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
            if p[self.i:self.i + 1] in ("?", "+") and p[self.i:self.i + 1]:
                self.i += 1
            if item.high > 1 and high > 1:  # a repetition of a repetition
                inner = _Item("set", item.text, wide=item.wide) if item.kind == "set" else _Item(item.kind, item.text, item.branches)
                inner.low, inner.high = item.low, item.high
                item.kind, item.branches, item.low, item.high = "group", [[inner]], 1, 1
            item.low, item.high = min(MANY, item.low * low), min(MANY, item.high * high)


def _braces(p: str, at: int) -> tuple[int, int, int] | None:
    """(low, high, length) of "{low}", "{low,}", "{,high}" or "{low,high}", None where it is none."""
    end = p.find("}", at, at + 24)
    low, comma, high = p[at + 1:end].partition(",") if end > 0 else ("", "", "")
    digits = low + high
    if not digits or any(d not in "0123456789" for d in digits) or len(digits) > 18:
        return None
    least = int(low or 0)
    return least, (least if not comma else int(high) if high else MANY), end + 1 - at


def _states(branches: list) -> int:
    return sum(min(MANY, (item.high if item.high < MANY else max(1, item.low)) * max(1, _states(item.branches) if item.branches else 1))
               for branch in branches for item in branch)


def _width(branches: list) -> int:
    return min(min(MANY, sum(item.low * (1 if item.kind == "set" else _width(item.branches) if item.kind == "group" else 0) for item in branch))
               for branch in branches)


def _fixed(branch: list) -> bool:
    return all(item.low == item.high and (item.kind != "group" or len(item.branches) == 1 and _fixed(item.branches[0])) for item in branch)


def _separated(branch: list) -> bool:
    """Whether it is a separator and then words or digits, as in "(?:[.,]\\d+)*": such a repetition can be read in one way only."""
    return bool(branch) and all(item.kind == "set" for item in branch) and branch[0].low == branch[0].high == 1 \
        and _only(branch[0].text, _SEPARATORS) and all(_only(item.text, _WORDS) for item in branch[1:])


def _only(text: str, allowed: str) -> bool:
    """Whether a set has characters of `allowed` alone."""
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
    if allowed is _WORDS:
        for known in _WORD_SETS:
            text = text.replace(known, "0")
    else:
        text = text.replace("\\", "")
    return text != "" and all(s in allowed for s in text)


def _repeats(branches: list) -> bool:
    return any(item.high > BOUNDED or _repeats(item.branches) for branch in branches for item in branch)


def _check(branches: list, before: list) -> list:
    """Raises RegexError for repetitions that multiply. before: the unbounded repetitions that a match has just left and whose
    characters what follows may share; returns those after these branches."""
    after = []
    for branch in branches:
        open_ = list(before)
        for item in branch:
            if item.kind == "behind" and _repeats(item.branches):
                raise RegexError("has a repetition inside a look-behind")
            unbounded = item.high > BOUNDED
            if item.kind == "group" and item.high > 8 and not (len(item.branches) == 1 and (_fixed(item.branches[0]) or _separated(item.branches[0]))):
                raise RegexError("repeats what has no fixed length, which can take exponential time")
            needs = item.low > 0 and item.kind in ("set", "look", "behind", "group") and (item.kind != "group" or _width(item.branches) > 0)
            if needs and len(open_) > 1 and not (unbounded and item.kind == "set" and len(open_) == 1):
                raise RegexError("has two repetitions that can share characters before something that must follow, which can take cubic time")
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
                open_ = []  # what must follow a repetition is where it ends
        after += [o for o in open_ if o not in after]
    return after
