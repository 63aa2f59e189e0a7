"""The tests of `make test`, and those marked `slow` that only `make test-all` runs.

A slow test names the quick one that finds the same defect of a common kind:

    @pytest.mark.slow("test_greedy_tokens")  # of the same file
    @pytest.mark.slow("browser/test_pages.py::test_greedy_tokens")

Of the parameters of one test, `slow_unless` marks the rest; engines in Node take turns.
tests/structure/test_tiers.py checks the names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

# All tests run if this environment variable is "all".
ALL = os.environ.get("EDGEWISE_TESTS") == "all"


def slow_unless(quick: Callable[..., bool], values: Iterable[Any]) -> list:
    """`values` for pytest.mark.parametrize: `make test` runs those for which quick(value) is true,
    `make test-all` all of them. A tuple is one value for each of several names: quick(*tuple).

    Raises:
        ValueError: none of them is quick.
    """
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    if not any(quick(*row) for row in rows):
        raise ValueError("each test needs a case that `make test` runs")
    slow = pytest.mark.slow
    return [pytest.param(*row, marks=() if quick(*row) else slow) for row in rows]


def chosen(config: pytest.Config) -> bool:
    """Whether slow tests run: all of them do, or the command line names tests or markers."""
    return ALL or bool(config.option.markexpr) or any("::" in path for path in config.args)


def take_turns(items: list[pytest.Item], name: str, values: Sequence[str]) -> None:
    """Of tests that run with each of `values` of a parameter, `make test` runs one in turn: of the
    first combination of the other parameters with the first value, of the next one with the next.
    A test without other parameters runs with each.
    """
    tests: dict[str, dict[str, dict[str, pytest.Item]]] = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and (value := callspec.params.get(name)) in values:
            others = tests.setdefault(item.nodeid.partition("[")[0], {})
            others.setdefault(callspec.id.replace(value, ""), {})[value] = item
    for others in tests.values():
        for number, same in enumerate(others.values()):
            if len(others) > 1 and len(same) == len(values):
                for value in set(values) - {values[number % len(values)]}:
                    same[value].add_marker(pytest.mark.slow)


def drop_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes slow tests from `items` unless they are `chosen`."""
    if chosen(config):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        left = set(slow)
        items[:] = [item for item in items if item not in left]
