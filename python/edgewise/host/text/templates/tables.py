"""What a chat template may call: each filter, test and method of jinja2 and Python with its bound
(bounds.py). What is not in these tables does not exist for templates.
"""

from __future__ import annotations

import types
from collections.abc import Callable, MappingView
from typing import Any

from markupsafe import Markup

from . import bounds
from .budget import RenderingBudget

Bound = Callable[..., Any]


def _each(names: str, bound: Bound) -> dict[str, Bound]:
    return dict.fromkeys(names.split(), bound)


FILTERS: dict[str, Bound] = {
    **_each("abs attr count d default first length random", bounds.on_free),
    **_each("filesizeformat float int last items tojson", bounds.on_free),
    **_each("map reject rejectattr select selectattr", bounds.on_iterated),
    **_each("dictsort list", bounds.on_listed),
    **_each("striptags title urlize wordcount", bounds.on_slow_text),
    **_each("pprint urlencode xmlattr", bounds.on_slow_value),
    **_each("capitalize lower upper", bounds.on_cased),
    **_each("max min", bounds.on_extreme),
    **_each("e escape", bounds.on_escaped),
    "batch": bounds.on_batched,
    "center": bounds.on_centered,
    "forceescape": bounds.on_forced,
    "format": bounds.percents,
    "groupby": bounds.on_grouped,
    "indent": bounds.on_indented,
    "join": bounds.on_joined,
    "replace": bounds.on_replace,
    "reverse": bounds.on_reversed,
    "round": bounds.on_rounded,
    "slice": bounds.on_sliced,
    "sort": bounds.on_sorted,
    "safe": bounds.on_text,
    "string": bounds.on_text,
    "sum": bounds.on_summed,
    "trim": bounds.on_trimmed,
    "truncate": bounds.on_truncated,
    "unique": bounds.on_unique,
    "wordwrap": bounds.on_wrapped,
}

TESTS: dict[str, Bound] = {
    **_each("boolean callable defined escaped false filter", bounds.on_free),
    **_each("float integer iterable mapping none number", bounds.on_free),
    **_each("sameas sequence string test true undefined in", bounds.on_free),
    **_each("== eq equalto != ne > gt greaterthan", bounds.on_free),
    **_each(">= ge < lt lessthan <= le", bounds.on_free),
    **_each("divisibleby even odd", bounds.on_number),
    **_each("lower upper", bounds.on_text),
}

_BOTH: dict[str, Bound] = {  # of str and bytes
    **_each("count endswith find index partition", bounds.on_free),
    **_each("removeprefix removesuffix startswith", bounds.on_free),
    **_each("isalnum isalpha isascii isdigit islower isspace", bounds.on_free),
    **_each("istitle isupper", bounds.on_free),
    **_each("capitalize lower swapcase title upper", bounds.on_cased),
    **_each("center ljust rjust zfill", bounds.on_padded),
    **_each("rfind rindex rpartition", bounds.on_backwards),
    **_each("lstrip rstrip strip", bounds.on_trimmed),
    "expandtabs": bounds.on_tabs,
    "replace": bounds.on_replaced,
    "rsplit": bounds.on_split_back,
    "split": bounds.on_split,
    "splitlines": bounds.on_split_lines,
    "translate": bounds.on_translated,
}
_TEXT: dict[str, Bound] = {
    **_BOTH,
    **_each("isdecimal isidentifier isnumeric isprintable", bounds.on_free),
    "casefold": bounds.on_cased,
    "encode": bounds.on_encoded,
    "format": bounds.on_braces,
    "format_map": bounds.on_braces,
}
_NUMBER = _each("as_integer_ratio conjugate imag is_integer real", bounds.on_free)

# The methods of Python's types, subclasses before the others. "join" is bounded by its argument.
METHODS: list[tuple[type | tuple[type, ...], dict[str, Bound]]] = [
    (
        Markup,
        {
            **_TEXT,
            "join": bounds.on_free,
            "striptags": bounds.on_slow_text,
            "unescape": bounds.on_slow_text,
        },
    ),
    (str, {**_TEXT, "join": bounds.on_free}),
    (bytes, {**_BOTH, "decode": bounds.on_encoded, "hex": bounds.on_hexed, "join": bounds.on_free}),
    (
        int,
        {
            **_NUMBER,
            **_each("bit_count bit_length denominator numerator", bounds.on_free),
            "to_bytes": bounds.on_to_bytes,
        },
    ),
    (float, {**_NUMBER, "hex": bounds.on_free}),
    (list, _each("copy count index", bounds.on_free)),
    (tuple, _each("count index", bounds.on_free)),
    (dict, _each("copy get items keys values", bounds.on_free)),
    (set, _each("copy isdisjoint", bounds.on_free)),
    (range, _each("count index start step stop", bounds.on_free)),
    ((MappingView, types.GeneratorType), {}),
]


def methods_of(owner: object) -> tuple[type, dict[str, Bound]] | None:
    """The type of Python that an object belongs to and its methods; None of other objects."""
    for types_, table in METHODS:
        for one in types_ if isinstance(types_, tuple) else (types_,):
            if isinstance(owner, one):
                return one, table
    return None


def bound_call(
    b: RenderingBudget, f: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Checks a call of a method of a type of Python. Returns its arguments; iterators become lists.

    Raises:
        TemplateLimit: the result would be too long.
    """
    owner, name = getattr(f, "__self__", None), getattr(f, "__name__", "")
    known = methods_of(owner)
    if known is None or name not in known[1]:
        return args
    if name == "join":
        return (bounds.on_join(b, owner, args[0]), *args[1:]) if args else args
    own = {k: v for k, v in kwargs.items() if k not in ("_loop_vars", "_block_vars")}  # jinja2's
    known[1][name](b, owner, *args, **own)
    return args
