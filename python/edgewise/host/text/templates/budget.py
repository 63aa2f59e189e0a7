"""The budget of a rendering of a chat template: steps, sizes, time."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import time
import types
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NamedTuple, TypeVar

from jinja2.utils import Namespace

from ....logic.text.limits import LIMITS

T = TypeVar("T")
MAX_ITEMS = LIMITS.template_steps  # of a list, or of a nested value in total
MAX_CHARS = LIMITS.template_chars_made
MAX_BITS = 1 << 16  # of an integer
TEXTS = 4  # items as which one counts in a list that may consist of new texts
MAX_DEPTH = 200  # CPython's hash of nested tuples recurses without a limit
MAX_COMPARISONS = 1 << 28  # of characters, in one search from the end or one strip
# The longest text for functions that are written in Python or take time with its square.
MAX_SLOW = 1 << 16


class TemplateLimit(Exception):
    """A template exceeds a limit; the message says which."""


class Weight(NamedTuple):
    """The size of a nested value. Repeated values count every time, as in str() and tojson."""

    items: int
    chars: int
    depth: int = 0
    fixed: bool = True  # False: it holds a namespace, which can change


class RenderingBudget:
    """The remaining steps, characters and seconds of a rendering."""

    def __init__(self) -> None:
        self.steps, self.total, self.made_items, self.kept = 0, 0, 0, 0
        self.deadline = time.monotonic() + LIMITS.template_seconds
        # {id: (value, its weight)} of lists and dicts, which a template cannot change. The value
        # is kept so that its id is not reused; `kept` counts the items of those.
        self.weights: dict[int, tuple[Any, Weight]] = {}

    def step(self, n: int = 1) -> None:
        """Counts n steps."""
        self.steps += n
        if self.steps > LIMITS.template_steps:
            raise TemplateLimit(f"more than {LIMITS.template_steps} steps")
        if time.monotonic() > self.deadline:
            raise TemplateLimit(f"more than {LIMITS.template_seconds} seconds")

    def room(self, n: int) -> None:
        """Checks the length of a text before it is made."""
        if n > MAX_CHARS:
            raise TemplateLimit(f"a text of {n} characters")

    def chars(self, n: int) -> None:
        """Counts a text of n characters."""
        self.room(n)
        self.total += n
        if self.total > LIMITS.template_chars_total:
            raise TemplateLimit(f"texts of more than {LIMITS.template_chars_total} characters")

    def items(self, n: int) -> None:
        """Checks the size of a list before it is made."""
        if n > MAX_ITEMS:
            raise TemplateLimit(f"a list of {n} items")

    def comparisons(self, n: int) -> None:
        """Checks the work of a function that takes time with a product of lengths."""
        if n > MAX_COMPARISONS:
            raise TemplateLimit(f"a search of {n} comparisons")

    def slow(self, n: int) -> None:
        """Checks the length of a text, or number of items, for a function that is slow."""
        if n > MAX_SLOW:
            raise TemplateLimit(f"a slow function for {n} characters or items")

    def made(self, value: T, each: int = 1) -> T:
        """Counts a new value and returns it; an item of a list counts as `each`."""
        if isinstance(value, (str, bytes)):
            self.chars(len(value))
        elif isinstance(value, int):
            if value.bit_length() > MAX_BITS:
                raise TemplateLimit(f"an integer of {value.bit_length()} bits")
        elif self.weigh(value).depth:
            self.made_items += each * len(value) if hasattr(value, "__len__") else 0
            if self.made_items > LIMITS.template_items_total:
                raise TemplateLimit(f"lists of more than {LIMITS.template_items_total} items")
        return value

    def listed(self, values: Iterable[Any]) -> Any:
        """The values as a list that was weighed; lists, tuples and mappings remain
        what they are.
        """
        if isinstance(values, (str, bytes)):
            self.items(len(values))
        if not isinstance(values, (list, tuple, Mapping)):
            values = list(itertools.islice(values, MAX_ITEMS + 1))
            self.items(len(values))
            self.made(values, TEXTS)
        self.weigh(values)
        return values

    def weigh(self, value: Any) -> Weight:
        """The weight of a value.

        Raises:
            TemplateLimit: it has too many items or characters, or is nested too deep.
        """
        known = self.weights.get(id(value))
        if known is not None:
            return known[1]
        parts = _parts(value)
        if parts is None:
            return _leaf(value)
        items, chars, depth, fixed = 1, 0, 0, not isinstance(value, Namespace)
        for part in parts:
            w = self.weigh(part)
            items, chars = items + w.items, chars + w.chars
            depth, fixed = max(depth, w.depth), fixed and w.fixed
            self.items(items)
            if chars > MAX_CHARS:
                raise TemplateLimit(f"a value of {chars} characters")
        if depth >= MAX_DEPTH:
            raise TemplateLimit(f"a value nested more than {MAX_DEPTH} deep")
        weight = Weight(items, chars, depth + 1, fixed)
        if fixed:
            self._keep(value, weight, len(parts))
        else:
            self.step()
        return weight

    def _keep(self, value: Any, weight: Weight, n: int) -> None:
        """Keeps a weight; forgets all others when the values kept for them become many."""
        self.kept += n + 1
        if self.kept > MAX_ITEMS:
            self.weights.clear()
            self.kept = n + 1
        self.weights[id(value)] = value, weight


def _parts(value: Any) -> list[Any] | tuple[Any, ...] | None:
    """What a container holds, None of other values."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, (set, frozenset, KeysView, ValuesView, ItemsView)):
        return list(value)
    if isinstance(value, Namespace):
        return list(value._Namespace__attrs.values())
    if isinstance(value, range):
        return value.start, value.stop, value.step
    if isinstance(value, types.MethodType):  # whose repr() has that of its object
        return (value.__self__,)
    return None


def _leaf(value: Any) -> Weight:
    """The weight of a value that holds no others: the characters of its longest format."""
    if isinstance(value, (str, bytes)):
        return Weight(1, len(value))
    if isinstance(value, int):
        return Weight(1, 8 + value.bit_length())
    return Weight(1, 320 if isinstance(value, float) and abs(value) > 1e16 else 24)


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
