"""The Jinja environment of chat templates: transformers' functions in jinja2's sandbox, with a
budget of time and memory (budget.py, tables.py).

Templates are untrusted programs. jinja2's sandbox denies access to Python's objects, but allows
unlimited loops and allocations. Here each rendering has a budget: loop iterations, macro calls,
comparisons and function calls count as steps, and the size of texts and lists is checked before
they are created. Only filters, tests and methods whose work has a bound exist.
No part of a template is evaluated during compilation.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from .bounds import percents, text_of
from .budget import MAX_BITS, MAX_CHARS, TEXTS, TemplateLimit, budget
from .tables import FILTERS, TESTS, Bound, bound_call, methods_of

if TYPE_CHECKING:
    from jinja2.parser import Parser
    from jinja2.runtime import Context

T = TypeVar("T")


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

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        return _filter(self.generic_visit(node), "_step")

    def visit_Getitem(self, node: Any) -> nodes.Node:
        node = self.generic_visit(node)
        return _filter(node, "_made") if isinstance(node.arg, nodes.Slice) else node

    def visit_Call(self, node: Any) -> nodes.Node:
        """Checks what `*args` gives before it becomes a tuple."""
        node = self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = _filter(node.dyn_args, "_listed")
        return node

    visit_Filter = visit_Call
    visit_Test = visit_Call


def _filter(node: Any, name: str, args: Sequence[Any] = ()) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """transformers' environment for chat templates, with a budget."""

    filters: dict[str, Any]
    tests: dict[str, Any]
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
        self.filters = _bounded(self.filters, FILTERS)
        self.tests = _bounded(self.tests, TESTS)
        self.filters.update(
            _step=_step,
            _concat=_concat,
            _made=lambda value: budget().made(value),
            _listed=lambda value: budget().listed(value),
        )
        # Functions, since a class gives its methods too: dict.update changes any dict.
        self.globals = {
            "cycler": lambda *items: Cycler(*items),
            "dict": _dict,
            "joiner": lambda sep=", ": Joiner(sep),
            "namespace": lambda *args, **kwargs: Namespace(_dict(*args, **kwargs)),
            "raise_exception": _raise_exception,
            "range": safe_range,
            "strftime_now": _strftime_now,
        }

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
            if size > MAX_CHARS:
                raise TemplateLimit(f"an output of more than {MAX_CHARS} characters")
            kept.append(piece)
        b.chars(size)
        return "".join(kept)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of Python's types, only the methods with a bound exist."""
        known = methods_of(obj)
        if known is not None and hasattr(known[0], attr) and attr not in known[1]:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Evaluates a binary operation after checking the size of the result."""
        b = budget()
        b.step()
        if operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, (str, bytes, list, tuple)) and isinstance(times, int):
                    (b.room if isinstance(one, (str, bytes)) else b.items)(len(one) * max(times, 0))
            if (
                isinstance(left, int)
                and isinstance(right, int)
                and left.bit_length() + right.bit_length() > MAX_BITS
            ):
                raise TemplateLimit("an integer of too many digits")
        elif operator == "**":
            if (
                isinstance(left, int)
                and isinstance(right, int)
                and left.bit_length() * abs(right) > MAX_BITS
            ):
                raise TemplateLimit("an integer of too many digits")
        elif operator == "%" and isinstance(left, (str, bytes)):
            percents(b, left, right)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            b.room(len(left) + len(right))
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
        args = bound_call(b, getattr(__obj, "__wrapped__", __obj), args, kwargs)
        return b.made(super().call(__context, __obj, *args, **kwargs), TEXTS)


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
    return text_of(budget(), value)


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
    items, _, depth, _ = b.weigh(value)
    width = len(indent) if isinstance(indent, str) else indent or 0
    longest = sum(map(len, separators)) if separators else 0
    b.room(int(items * (longest + depth * max(0, width))))
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


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """dict(); each pair is a step, since keys of equal hash take time with the square."""
    made: dict[Any, Any] = {}
    for value in args:
        if isinstance(value, Mapping):
            made.update(value)
            continue
        for key, item in budget().listed(value):
            budget().step()
            made[key] = item
    made.update(kwargs)
    return made


def _bounded(functions: Mapping[str, Any], bounds: Mapping[str, Bound]) -> dict[str, Any]:
    """Those of jinja2's filters or tests that have a bound."""
    return {
        name: _limited(functions[name], bound)
        for name, bound in bounds.items()
        if name in functions
    }


def _limited(f: Callable[..., Any], bound: Bound) -> Callable[..., Any]:
    """A filter or test that counts a step and checks its arguments and its result."""
    skip = 1 if getattr(f, "jinja_pass_arg", None) is not None else 0

    @functools.wraps(f)
    def limited(*args: Any, **kwargs: Any) -> Any:
        b = budget()
        b.step()
        value = bound(b, *args[skip:], **kwargs)
        result = f(*args[:skip], value, *args[skip + 1 :], **kwargs)
        return _stepped(result) if isinstance(result, Iterator) else b.made(result, TEXTS)

    return limited


def _stepped(values: Iterator[T]) -> Iterator[T]:
    for value in values:
        budget().step()
        yield value
