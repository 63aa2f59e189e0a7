"""Imports run one way: no circles between the files of the Python package and of the C core, and no
folder of the core that includes from a folder above it. web/test/structure.test.ts checks
TypeScript, test_python.py the order of the package's parts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from repository import ROOT, facts

PACKAGE = ROOT / "python" / "edgewise"
CORE = ROOT / "core"

# What the folders of core/ may include besides their own files; "": the files of core/ itself.
# Generated files include table.h, and are included by engine.h and kernel.h.
INCLUDES = {
    "": {"gen", "simd"},
    "gen": {""},
    "simd": set(),
    "media": {"", "gen"},
    "sampling": {"", "gen"},
    "search": {""},
    "kernels/control": {""},
    "kernels/elementwise": {""},
    **dict.fromkeys(
        ["kernels/image", "kernels/ml", "kernels/norm", "kernels/random", "kernels/reduce"],
        {"", "kernels/elementwise"},
    ),
    **dict.fromkeys(
        ["kernels/product", "kernels/shape", "kernels/training"], {"", "kernels/elementwise"}
    ),
    **dict.fromkeys(
        ["kernels/attention", "kernels/convolution", "kernels/recurrent"],
        {"", "kernels/elementwise", "kernels/product"},
    ),
    "kernels/quantized": {"", "kernels/convolution", "kernels/elementwise", "kernels/product"},
}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The files of a circle; [] if there is none."""
    done: set[str] = set()

    def visit(file: str, way: list[str]) -> list[str]:
        if file in way:
            return [*way[way.index(file) :], file]
        if file in done:
            return []
        for other in sorted(graph.get(file, ())):
            if found := visit(other, [*way, file]):
                return found
        done.add(file)
        return []

    return next((found for file in graph if (found := visit(file, []))), [])


def imported(path: Path, package: list[str]) -> Iterator[list[str]]:
    """What a file of `package` imports, also within functions, but not for annotations alone."""
    for node in facts(path).imports:
        if isinstance(node, ast.Import):
            yield from (a.name.split(".") for a in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            yield from ([*base, a.name] for a in node.names)


def file_of(module: list[str]) -> str | None:
    """The file that an import names; the last name may be one that the file defines."""
    for n in (len(module), len(module) - 1):
        path = PACKAGE.joinpath(*module[1:n])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if n and file.is_file():
                return file.relative_to(PACKAGE).as_posix()
    return None


def python_files() -> dict[str, set[str]]:
    graph = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        names = imported(path, ["edgewise", *where.parts[:-1]])
        files = {file_of(name) for name in names if name[0] == "edgewise"}
        graph[where.as_posix()] = {f for f in files if f} - {where.as_posix()}
    return graph


def c_files() -> dict[str, set[str]]:
    graph = {}
    for path in sorted(CORE.rglob("*.[ch]")):
        names = re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(), re.M)
        found = [(path.parent / n).resolve() for n in names]
        files = [f if f.exists() else CORE / n for f, n in zip(found, names)]
        graph[path.relative_to(CORE).as_posix()] = {f.relative_to(CORE).as_posix() for f in files}
    return graph


def test_python_has_no_circles():
    graph = python_files()
    assert sum(map(len, graph.values())) > 1000
    assert not circle(graph)


def test_c_has_no_circles():
    graph = c_files()
    assert sum(map(len, graph.values())) > 100
    assert not circle(graph)


def test_c_includes_one_way():
    graph = c_files()
    folders = {name: name.rpartition("/")[0] for name in graph}
    assert set(folders.values()) == set(INCLUDES)
    wrong = [
        f"{file} -> {other}"
        for file, others in graph.items()
        for other in others
        if folders[other] != folders[file] and folders[other] not in INCLUDES[folders[file]]
    ]
    assert not wrong


@pytest.mark.parametrize("graph", [{"a": {"b"}, "b": {"c"}, "c": {"b"}}, {"a": {"a"}}])
def test_circles_are_found(graph):
    assert circle(graph)
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})
