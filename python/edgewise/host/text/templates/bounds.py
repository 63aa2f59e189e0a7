"""Bounds of the work of the filters, tests and methods that a chat template may call.

A bound is called with the arguments of what it bounds, before it. It returns the value (the first
argument) to use, or raises TemplateLimit. tables.py says which bounds what.
Functions in C take characters and items at once: their bound is the size of the result. Functions
in Python, and those whose time grows with the square, take texts of MAX_SLOW characters at most.
"""

from __future__ import annotations

import re
import string
from typing import Any

from jinja2.runtime import Undefined
from markupsafe import Markup

from .budget import RenderingBudget, TemplateLimit

LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
ENCODINGS = ("ascii", "latin-1", "latin1", "utf-8", "utf8", "utf-16", "utf-32")
MAX_ATTRIBUTE = 1000  # characters of "a.b,c"
PRINTF = re.compile(r"[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")


# --- values ---


def text_of(b: RenderingBudget, value: Any) -> str:
    """A value as a text, which is counted."""
    if isinstance(value, str):
        return value
    b.made(value)
    text = str(value)
    b.chars(len(text))
    return text


def on_free(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


def on_text(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> str:
    return text_of(b, value)


def on_cased(b: RenderingBudget, value: Any) -> Any:
    """Letters outside of ASCII become up to three."""
    value = value if isinstance(value, bytes) else text_of(b, value)
    b.room(len(value) * (1 if value.isascii() else 3))
    return value


def on_slow_text(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> str:
    value = text_of(b, value)
    b.slow(len(value))
    return value


def on_slow_value(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> Any:
    items, chars, *_ = b.weigh(value)
    b.slow(items + chars)
    return value


def on_escaped(b: RenderingBudget, value: Any) -> Any:
    if not hasattr(value, "__html__"):
        value = text_of(b, value)
        b.room(len(value) + 4 * sum(map(value.count, "&<>\"'")))
    return value


def on_forced(b: RenderingBudget, value: Any) -> str:
    return on_escaped(b, str(text_of(b, value)))


def on_number(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> Any:
    """For functions whose operators format and repeat texts."""
    if isinstance(value, (str, bytes, list, tuple)):
        raise TypeError(f"expected a number, got a {type(value).__name__}")
    return value


def on_rounded(b: RenderingBudget, value: Any, precision: Any = 0, method: Any = "common") -> Any:
    if isinstance(precision, int) and abs(precision) > 100:
        raise TemplateLimit(f"a precision of {precision} digits")
    return on_number(b, on_number(b, value), precision)


# --- lists ---


def on_iterated(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> Any:
    """For functions that give one item after another."""
    if isinstance(value, (str, bytes)):
        b.items(len(value))
    for attribute in (*args[:1], kwargs.get("attribute")):
        _attribute(attribute)
    return value


def on_unique(
    b: RenderingBudget, value: Any, case_sensitive: Any = False, attribute: Any = None
) -> Any:
    return on_iterated(b, value, attribute)


def on_reversed(b: RenderingBudget, value: Any) -> Any:
    return value if isinstance(value, str) else on_listed(b, value)


def on_listed(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> Any:
    return value if isinstance(value, Undefined) else b.listed(value)


def _attribute(attribute: Any) -> int:
    """The number of items that are looked up for an attribute "a.b,c"."""
    if not isinstance(attribute, str):
        return 1
    if len(attribute) > MAX_ATTRIBUTE:
        raise TemplateLimit(f"an attribute of {len(attribute)} characters")
    return 1 + attribute.count(".") + attribute.count(",")


def _keyed(b: RenderingBudget, value: Any, attribute: Any) -> Any:
    """For functions that look up an attribute of each item within one step."""
    value = on_listed(b, value)
    if attribute is not None and not isinstance(value, Undefined):
        b.step(len(value) * _attribute(attribute))
    return value


def on_sorted(
    b: RenderingBudget,
    value: Any,
    reverse: Any = False,
    case_sensitive: Any = False,
    attribute: Any = None,
) -> Any:
    return _keyed(b, value, attribute)


def on_extreme(
    b: RenderingBudget, value: Any, case_sensitive: Any = False, attribute: Any = None
) -> Any:
    return _keyed(b, value, attribute)


def on_grouped(b: RenderingBudget, value: Any, attribute: Any, *args: Any, **kwargs: Any) -> Any:
    return _keyed(b, value, attribute)


def on_summed(b: RenderingBudget, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    """Each sum of lists is a new list."""
    value = _keyed(b, value, attribute)
    if isinstance(start, (list, tuple)):
        items = len(start) * (len(value) + 1)
        if attribute is not None:
            items += b.weigh(value).items * len(value)
        else:
            for i, part in enumerate(value):
                items += len(part) * (len(value) - i)
        b.items(items)
    return value


def on_batched(b: RenderingBudget, value: Any, linecount: Any, fill_with: Any = None) -> Any:
    b.items(linecount if isinstance(linecount, int) else 0)
    return on_iterated(b, value)


def on_sliced(b: RenderingBudget, value: Any, slices: Any, fill_with: Any = None) -> Any:
    b.items(slices if isinstance(slices, int) else 0)
    return on_listed(b, value)


def on_joined(b: RenderingBudget, value: Any, d: Any = "", attribute: Any = None) -> Any:
    """The length of a joined text is known only from the values."""
    values = _keyed(b, value, attribute)
    if isinstance(values, Undefined):
        return values
    size = b.weigh(values).chars + len(text_of(b, d)) * len(values)
    b.room(size * 5 if isinstance(d, Markup) else size)
    return values


def on_join(b: RenderingBudget, separator: Any, values: Any) -> list[Any]:
    """The values of the method join."""
    values = on_joined(b, values, "")
    b.room(b.weigh(values).chars * _escapes(separator) + len(separator) * len(values))
    return values


# --- texts ---


def _width(b: RenderingBudget, width: Any, lines: int = 1) -> None:
    """Checks an indentation: a number of characters, or a text, for a number of lines."""
    if isinstance(width, (int, float)):
        b.room(int(max(0, min(width, 1 << 40))) * lines)
    elif isinstance(width, str):
        b.room(len(width) * lines)


def _lines(text: Any) -> int:
    return 1 + sum(text.count(c if isinstance(text, str) else c.encode()) for c in LINE_ENDS)


def _escapes(text: Any) -> int:
    """How many times longer an argument may become: Markup escapes what it is given."""
    return 5 if isinstance(text, Markup) else 1


def on_padded(b: RenderingBudget, text: Any, width: Any = 0, fillchar: Any = " ") -> Any:
    text = text if isinstance(text, bytes) else text_of(b, text)
    _width(b, width)
    return text


def on_centered(b: RenderingBudget, value: Any, width: Any = 80) -> Any:
    return on_padded(b, value, width)


def on_indented(
    b: RenderingBudget, s: Any, width: Any = 4, first: Any = False, blank: Any = False
) -> str:
    if not isinstance(s, str):  # jinja2 would extend a list in place
        raise TypeError(f"indent needs a text, got a {type(s).__name__}")
    lines = _lines(s)
    b.items(lines)
    _width(b, width, lines)
    return s


def on_trimmed(b: RenderingBudget, text: Any, chars: Any = None) -> Any:
    """Each character is searched for in `chars`."""
    text = text if isinstance(text, bytes) else text_of(b, text)
    if isinstance(chars, (str, bytes)) and len(chars) > 64:
        b.comparisons(len(text) * len(chars))
    return text


def on_backwards(b: RenderingBudget, text: Any, sep: Any = None, *args: Any) -> Any:
    """A search from the end takes time with the product of the lengths."""
    if isinstance(sep, (str, bytes)) and len(sep) > 64:
        b.comparisons(len(text) * len(sep))
    return text


def on_split(b: RenderingBudget, text: Any, sep: Any = None, maxsplit: Any = -1) -> Any:
    if isinstance(sep, (str, bytes)) and len(sep):
        b.items(text.count(sep))
    else:
        b.items(len(text) // 2)
    return text


def on_split_back(b: RenderingBudget, text: Any, sep: Any = None, maxsplit: Any = -1) -> Any:
    return on_split(b, on_backwards(b, text, sep), sep)


def on_split_lines(b: RenderingBudget, text: Any, keepends: Any = False) -> Any:
    b.items(_lines(text))
    return text


def on_tabs(b: RenderingBudget, text: Any, tabsize: Any = 8) -> Any:
    _width(b, tabsize, text.count("\t" if isinstance(text, str) else b"\t"))
    return text


def on_replaced(
    b: RenderingBudget, text: Any, old: Any, new: Any, count: Any = -1, escapes: int = 0
) -> Any:
    kind = str if isinstance(text, str) else bytes
    if isinstance(old, kind) and isinstance(new, kind):
        size = len(new) * (escapes or _escapes(text))
        if size > len(old):
            b.room(len(text) + text.count(old) * (size - len(old)))
    return text


def on_replace(b: RenderingBudget, s: Any, old: Any, new: Any, count: Any = None) -> Any:
    text, old, new = text_of(b, s), text_of(b, old), text_of(b, new)
    escapes = max(_escapes(text), _escapes(old), _escapes(new))
    on_replaced(b, text, old, new, escapes=escapes)
    return text


def on_truncated(
    b: RenderingBudget, s: Any, length: Any = 255, killwords: Any = False, end: Any = "...", *_: Any
) -> Any:
    _width(b, end)
    return s


def on_wrapped(
    b: RenderingBudget,
    s: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    *args: Any,
    **kwargs: Any,
) -> str:
    s = on_slow_text(b, s)
    _width(b, wrapstring, len(s))
    return s


def on_encoded(
    b: RenderingBudget, text: Any, encoding: Any = "utf-8", errors: Any = "strict"
) -> Any:
    """Other encodings take time with the square, other ways to treat errors insert long names."""
    for name, known in ((encoding, ENCODINGS), (errors, ("strict", "ignore", "replace"))):
        if isinstance(name, str) and name.lower().replace("_", "-") not in known:
            raise TemplateLimit(f"the encoding or error handler {name[:40]!r}")
    b.room(4 * len(text))
    return text


def on_translated(b: RenderingBudget, text: Any, table: Any, *args: Any) -> Any:
    longest = 1
    if isinstance(table, dict):
        longest = max((len(v) for v in table.values() if isinstance(v, str)), default=1)
    elif not isinstance(table, bytes) and table is not None:
        raise TypeError(f"translate needs a dict, got a {type(table).__name__}")
    b.room(len(text) * max(longest, 1))
    return text


def on_hexed(b: RenderingBudget, value: Any, *args: Any) -> Any:
    b.room(3 * len(value))
    return value


def on_to_bytes(b: RenderingBudget, value: Any, length: Any = 1, *args: Any, **kwargs: Any) -> Any:
    _width(b, length)
    return value


# --- formats ---


def _fields(b: RenderingBudget, text: Any, fields: int, widths: Any, values: Any) -> None:
    """The length of a formatted text: each field as long as all values, or the largest width."""
    width = max((int(w) for w in widths if w), default=0)
    b.room(len(text) + fields * (width + sum(b.weigh(v).chars for v in values) * _escapes(text)))


def on_braces(b: RenderingBudget, text: Any, *args: Any, **kwargs: Any) -> Any:
    """A format with {}."""
    b.slow(len(text))
    fields, widths = 0, []
    for _, name, spec, _ in string.Formatter().parse(text):
        fields += name is not None
        if "{" in (spec or ""):
            raise TemplateLimit("a wide format")
        widths += [w[:19] for w in re.findall(r"\d+", spec or "")]
    _fields(b, text, fields, widths, (*args, *kwargs.values()))
    return text


def percents(b: RenderingBudget, value: Any, *args: Any, **kwargs: Any) -> Any:
    """A format with %, read as CPython reads it."""
    format = value if isinstance(value, bytes) else text_of(b, value)
    text = format.decode("latin-1") if isinstance(format, bytes) else str(format)
    b.slow(len(text))
    fields, widths, at = 0, [], text.find("%")
    while at >= 0:
        fields, at = fields + 1, at + 1
        if text[at : at + 1] == "(":
            depth, at = 1, at + 1
            while depth and at < len(text):
                depth += (text[at] == "(") - (text[at] == ")")
                at += 1
        match = PRINTF.match(text, at)
        assert match is not None
        if "*" in match.groups(""):
            raise TemplateLimit("a wide format")
        widths += [w[:19] for w in match.groups("")]
        at = text.find("%", match.end() + 1)
    _fields(b, format, fields, widths, (*args, *kwargs.values()))
    return format
