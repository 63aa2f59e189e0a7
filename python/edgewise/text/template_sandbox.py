"""The Jinja environment of chat templates: transformers' functions in jinja2's sandbox, with a
budget of time and memory.

Templates are untrusted programs. jinja2's sandbox denies access to Python's objects, but allows
unlimited loops and allocations. Here each rendering has a budget: loop iterations, macro calls and
function calls count as steps, and the size of texts and lists is checked before they are created.
No part of a template is evaluated during compilation.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .limits import LIMITS

if TYPE_CHECKING:
    from jinja2.parser import Parser
    from jinja2.runtime import Context

T = TypeVar("T")
MOST_ITEMS = LIMITS["template_steps"]  # of a list, or of a nested value in total
MOST_CHARS = LIMITS["template_chars_made"]
MOST_BITS = 1 << 16  # of an integer
WIDE = re.compile(r"\d{5,}|\*")  # a large or dynamic width in a format


class TemplateLimit(Exception):
    """A template exceeds a limit; the message says which."""


class RenderingBudget:
    """The remaining steps, characters and seconds of a rendering."""

    def __init__(self) -> None:
        self.steps, self.total, self.listed = 0, 0, 0
        self.deadline = time.monotonic() + LIMITS["template_seconds"]
        # {id: (value, result of weigh)} of lists and dicts, which a template cannot change unless a
        # namespace is in them. The value is kept so that its id is not reused.
        self.weights: dict[int, tuple[Any, tuple[int, int]]] = {}
        self.namespaces = 0  # that were weighed

    def step(self, n: int = 1) -> None:
        """Counts n steps."""
        self.steps += n
        if self.steps > LIMITS["template_steps"]:
            raise TemplateLimit(f"more than {LIMITS['template_steps']} steps")
        if time.monotonic() > self.deadline:
            raise TemplateLimit(f"more than {LIMITS['template_seconds']} seconds")

    def chars(self, n: int) -> None:
        """Counts a text of n characters."""
        if n > MOST_CHARS:
            raise TemplateLimit(f"a text of {n} characters")
        self.total += n
        if self.total > LIMITS["template_chars_total"]:
            raise TemplateLimit(f"texts of more than {LIMITS['template_chars_total']} characters")

    def items(self, n: int) -> None:
        """Checks the size of a list before it is created."""
        if n > MOST_ITEMS:
            raise TemplateLimit(f"a list of {n} items")

    def made(self, value: T) -> T:
        """Counts a new value and returns it."""
        if isinstance(value, (str, bytes)):
            self.chars(len(value))
        elif isinstance(value, (list, tuple, dict, set, frozenset)):
            self.weigh(value)
            self.listed += len(value)
            if self.listed > LIMITS["template_items_total"]:
                raise TemplateLimit(f"lists of more than {LIMITS['template_items_total']} items")
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise TemplateLimit(f"an integer of {value.bit_length()} bits")
        return value

    def weigh(self, value: Any) -> tuple[int, int]:
        """(items, characters) of a nested value. Repeated values count every time, as in str() and
        tojson.
        """
        known = self.weights.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, (str, bytes)):
            return 1, len(value)
        parts = value
        if isinstance(value, dict):
            parts = [*value, *value.values()]
        elif isinstance(value, Namespace):
            parts = list(value._Namespace__attrs.values())
        elif not isinstance(value, (list, tuple, set, frozenset)):
            return 1, 8
        items, chars, namespaces = 1, 0, self.namespaces
        for part in parts:
            n, c = self.weigh(part)
            items, chars = items + n, chars + c
            self.items(items)
            if chars > MOST_CHARS:
                raise TemplateLimit(f"a value of {chars} characters")
        if isinstance(value, Namespace):
            self.namespaces += 1
            self.step()
        elif self.namespaces == namespaces:
            self.weights[id(value)] = value, (items, chars)
        return items, chars


_current: contextvars.ContextVar[RenderingBudget | None] = contextvars.ContextVar(
    "budget", default=None
)


def budget() -> RenderingBudget:
    """The budget of the current rendering."""
    return _current.get() or RenderingBudget()


@contextlib.contextmanager
def budgeted() -> Iterator[None]:
    """Sets a new budget for the renderings inside `with`."""
    token = _current.set(RenderingBudget())
    try:
        yield
    finally:
        _current.reset(token)


class _Counted(NodeTransformer):
    """Inserts calls of the budget into the syntax tree of a template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        node = self.generic_visit(node)
        if node.test is not None:
            node.test = nodes.And(_filter(nodes.Const(True), "_step"), node.test)
        else:
            node.body.insert(0, nodes.ExprStmt(_filter(nodes.Const(True), "_step")))
        return node

    def visit_Macro(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_filter(nodes.Const(True), "_step")))
        return node

    visit_CallBlock = visit_Macro

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        node = self.generic_visit(node)
        return _filter(node.nodes[0], "_concat", node.nodes[1:])

    def visit_List(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        return (
            node if all(isinstance(x, nodes.Const) for x in node.items) else _filter(node, "_made")
        )

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self.visit_List(node) if node.ctx == "load" else self.generic_visit(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return _filter(self.generic_visit(node), "_made")

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        """Leaves the lists of `*args` and `**kwargs` as they are."""
        return self.generic_visit(node)


def _filter(node: Any, name: str, args: Sequence[Any] = ()) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """transformers' environment for chat templates, with a budget."""

    filters: dict[str, Any]
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_finalize,
            extensions=[_Generation, jinja2.ext.loopcontrols],
        )
        self.filters["tojson"] = _tojson
        self.filters = {name: _limited(name, f) for name, f in self.filters.items()}
        self.filters.update(_step=_step, _concat=_concat, _made=lambda value: budget().made(value))
        del self.globals["lipsum"]
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        return super()._generate(_Counted().visit(source), name, filename, defer_init)

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Joins the pieces of a rendering, a macro or a block."""
        kept, size, b = [], 0, budget()
        for piece in pieces:
            size += len(piece)
            if size > MOST_CHARS:
                raise TemplateLimit(f"an output of more than {MOST_CHARS} characters")
            kept.append(piece)
        b.chars(size)
        return "".join(kept)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Evaluates a binary operation after checking the size of the result."""
        b = budget()
        b.step()
        if operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, (str, bytes, list, tuple)) and isinstance(times, int):
                    (b.chars if isinstance(one, (str, bytes)) else b.items)(
                        len(one) * max(times, 0)
                    )
            if (
                isinstance(left, int)
                and isinstance(right, int)
                and left.bit_length() + right.bit_length() > MOST_BITS
            ):
                raise TemplateLimit("an integer of too many digits")
        elif operator == "**":
            if (
                isinstance(left, int)
                and isinstance(right, int)
                and left.bit_length() * abs(right) > MOST_BITS
            ):
                raise TemplateLimit("an integer of too many digits")
        elif operator == "%" and isinstance(left, (str, bytes)):
            _check_format(str(left), b)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            b.chars(len(left) + len(right))
            return left + right
        return b.made(super().call_binop(context, operator, left, right))

    def call(
        __self,  # noqa: N805
        __context: Context,
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Evaluates a call after checking the size of the result."""
        b = budget()
        b.step()
        args = _check_call(getattr(__obj, "__wrapped__", __obj), args, kwargs, b)
        return b.made(super().call(__context, __obj, *args, **kwargs))


class _Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}, which marks the assistant's text for training. It is
    replaced by its contents here.
    """

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("contents"), [], [], body).set_lineno(line)

    def contents(self, caller: Callable[[], str]) -> str:
        return caller()


@jinja2.pass_context
def _finalize(context: Context | None, value: Any) -> str:
    if isinstance(value, str):
        return value
    budget().made(value)
    text = str(value)
    budget().chars(len(text))
    return text


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    if isinstance(format, str) and len(format) > 1000:
        raise TemplateLimit(f"a date format of {len(format)} characters")
    return datetime.datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    b = budget()
    items, _ = b.weigh(value)
    _width(indent, b, items)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _step(value: T) -> T:
    budget().step()
    return value


def _concat(first: Any, *rest: Any) -> str:
    texts, b = [], budget()
    for value in (first, *rest):
        texts.append(value if isinstance(value, str) else _finalize(None, value))
    b.chars(sum(map(len, texts)))
    return "".join(texts)


def _width(width: Any, b: RenderingBudget, lines: int = 1) -> None:
    """Checks an indentation: a number of characters, or a text, for a number of lines."""
    if isinstance(width, (int, float)):
        b.chars(int(max(0, min(width, 1 << 40))) * lines)
    elif isinstance(width, str):
        b.chars(len(width) * lines)


def _check_format(text: str, b: RenderingBudget) -> None:
    if WIDE.search(text):
        raise TemplateLimit("a wide format")
    b.chars(len(text))


def _joined(values: Any, separator: object, b: RenderingBudget) -> list[Any]:
    """The values as a list, after checking the length of the joined text."""
    values = list(values)
    b.items(len(values))
    b.chars(
        sum(len(v) if isinstance(v, str) else b.weigh(v)[1] for v in values)
        + len(str(separator)) * len(values)
    )
    return values


def _replaced(text: object, old: object, new: object, b: RenderingBudget) -> None:
    if (
        isinstance(text, str)
        and isinstance(old, str)
        and isinstance(new, str)
        and len(new) > len(old)
    ):
        b.chars(len(text) + text.count(old) * (len(new) - len(old)))


def _split(text: Any, separator: object, b: RenderingBudget) -> None:
    if len(text) > MOST_ITEMS:
        b.items(
            text.count(separator)
            if isinstance(separator, type(text)) and separator
            else len(text) // 2
        )


def _is_text(x: object) -> bool:
    return isinstance(x, (str, bytes))


def _check_call(
    f: object, args: tuple[Any, ...], kwargs: dict[str, Any], b: RenderingBudget
) -> tuple[Any, ...]:
    """Checks a call of a method of a text. Returns its arguments; iterators become lists.

    Raises:
        TemplateLimit: the result would be too long.
    """
    text: Any = getattr(f, "__self__", None)
    name = getattr(f, "__name__", "")
    if not _is_text(text):
        return args
    if name in ("center", "ljust", "rjust", "zfill"):
        _width(args[0] if args else 0, b)
    elif name == "expandtabs":
        _width(
            args[0] if args else kwargs.get("tabsize", 8),
            b,
            text.count("\t" if isinstance(text, str) else b"\t"),
        )
    elif name == "replace" and len(args) > 1:
        _replaced(text, args[0], args[1], b)
    elif name == "join" and args:
        return (_joined(args[0], text, b), *args[1:])
    elif name in ("split", "rsplit", "splitlines"):
        _split(text, (args[0] if args else kwargs.get("sep")) if name != "splitlines" else "\n", b)
    elif name in ("format", "format_map"):
        if WIDE.search(text) or re.search(r":[^}]*\{", text):
            raise TemplateLimit("a wide format")
        fields = text.count("{")
        b.chars(len(text) + fields * sum(b.weigh(v)[1] for v in (*args, *kwargs.values())))
    elif name == "translate" and args and isinstance(args[0], dict):
        b.chars(
            len(text) * max((len(v) for v in args[0].values() if isinstance(v, str)), default=1)
        )
    return args


def _check_filter(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], b: RenderingBudget
) -> tuple[Any, ...]:
    """Checks a call of a filter. Returns its arguments; iterators become lists.

    Args:
        name: of the filter.
        args: the value first.
        kwargs: keyword arguments.
        b: the budget.

    Raises:
        TemplateLimit: the result would be too long.
    """
    value, rest = (args[0] if args else None), args[1:]

    def given(i: int, key: str, default: Any = None) -> Any:
        return rest[i] if len(rest) > i else kwargs.get(key, default)

    size = len(value) if isinstance(value, (str, list, tuple, dict)) else 0
    if name == "center":
        _width(given(0, "width", 80), b)
    elif name == "indent":
        _width(given(0, "width", 4), b, str(value).count("\n") + 1)
    elif name == "format":
        _check_format(str(value), b)
        b.chars(sum(b.weigh(v)[1] for v in (*rest, *kwargs.values())))
    elif name == "replace":
        _replaced(str(value), str(given(0, "old", "")), str(given(1, "new", "")), b)
    elif name in ("batch", "slice"):
        many = given(0, "linecount" if name == "batch" else "slices", 0)
        b.items(many if isinstance(many, int) else 0)
    elif name == "wordwrap":
        _width(given(2, "wrapstring", "\n"), b, size)
    elif name == "truncate":
        _width(given(2, "end", "..."), b)
    elif name == "join":
        return (
            (_joined(value, given(0, "d", ""), b), *rest) if given(1, "attribute") is None else args
        )
    elif name == "round":
        precision = given(0, "precision", 0)
        if isinstance(precision, int) and abs(precision) > 100:
            raise TemplateLimit(f"a precision of {precision} digits")
    elif name in ("urlize", "striptags", "pprint", "xmlattr", "list"):
        b.items(len(value) if isinstance(value, str) else b.weigh(value)[0])
        if name == "urlize":
            b.items(10 * size)
    return args


def _limited(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts a step and checks its arguments and its result."""
    skip = 1 if getattr(f, "jinja_pass_arg", None) is not None else 0

    @functools.wraps(f)
    def limited(*args: Any, **kwargs: Any) -> Any:
        b = budget()
        b.step()
        args = (*args[:skip], *_check_filter(name, args[skip:], kwargs, b))
        return b.made(f(*args, **kwargs))

    return limited
