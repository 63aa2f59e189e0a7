"""Each test that `make test` leaves to `make test-all` names a quick one that it runs."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from repository import ROOT, tracked

TESTS = ROOT / "tests"


def slow_marks(tree: ast.AST) -> list[ast.Attribute]:
    """Each `pytest.mark.slow`, however the module imports it."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "slow"
        and ast.unparse(node.value).endswith("mark")
    ]


def named(mark: ast.Attribute, tree: ast.AST) -> str | None:
    """The test that a mark names, or None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.func is mark and len(node.args) == 1:
            [one] = node.args
            return one.value if isinstance(one, ast.Constant) else None
    return None


def quick_tests(path: Path) -> set[str]:
    """The test functions of a file that have no mark of their own and none of the module."""
    tree = ast.parse(path.read_text())
    whole = [n for n in tree.body if isinstance(n, ast.Assign) and slow_marks(n)]
    return {
        node.name
        for node in ([] if whole else ast.walk(tree))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not any(slow_marks(decorator) for decorator in node.decorator_list)
    }


def test_slow_tests_name_a_quick_one() -> None:
    """Parameters are marked by tests/tiers.py, which leaves a quick one."""
    wrong = []
    for path in tracked("tests/*.py"):
        text = path.read_text()
        if "mark.slow" not in text or path.name in ("tiers.py", "test_tiers.py"):
            continue
        tree = ast.parse(text)
        for mark in slow_marks(tree):
            where = f"{path.relative_to(ROOT)}:{mark.lineno}"
            file, _, test = (named(mark, tree) or "").rpartition("::")
            other = TESTS / file if file else path
            runs = other.name.startswith("test_") and other.is_file()
            if not test or not runs or test not in quick_tests(other):
                wrong.append(f"{where}: name a test that is not slow: slow('test_of_this_file')")
    assert not wrong, "\n".join(wrong)


class Item:
    """What take_turns needs of a test."""

    def __init__(self, test: str, engine: str, case: str) -> None:
        self.nodeid, self.engine, self.quick = f"x.py::{test}[{case}-{engine}]", engine, True
        self.callspec = SimpleNamespace(params={"engine": engine}, id=f"{case}-{engine}")

    def add_marker(self, mark: object) -> None:
        self.quick = False


def test_engines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case runs natively and on one other engine, each engine some cases, one case on all."""
    monkeypatch.syspath_prepend(TESTS)
    from tiers import take_turns

    engines, cases = ("native", "wasm-a", "wasm-b"), ("0", "1", "2", "3")
    items = [Item("test_many", engine, case) for case in cases for engine in engines]
    alone = [Item("test_one", engine, "0") for engine in engines]
    take_turns([*items, *alone], "engine", engines[1:])
    quick = [item for item in items if item.quick]
    assert [item.engine for item in quick] == ["native", "wasm-a", "native", "wasm-b"] * 2
    assert all(item.quick for item in alone)
