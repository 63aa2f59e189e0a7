"""Sizes of files and functions: a file is about as long as one thing needs, functions are short.

A file or function may be longer than the limit if a comment gives the reason:

    # long: a table of cases

The comment is the line above a function (above its decorators), or one of the first lines of a
file after its docstring.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from repository import ROOT, facts, tracked

FILE, PYTHON, C = 900, 60, 80
REASON = re.compile(r"\s*(#|//|/\*) long: \S")
# Generated files, and data: cases of operators, sentences for the demo's model, recorded results.
DATA = (
    "/gen/",
    "/cases/",
    "web/demo/model-training/",
    "tests/training/data/",
    "web/demo/lesson.ts",
)
# Longer than the limit without a reason. No entry may be added: split the function or the file.
PENDING: set[str] = set()


def sources(*patterns: str) -> list[Path]:
    """Tracked files without generated ones and data."""
    return [p for p in tracked(*patterns) if not any(part in p.as_posix() for part in DATA)]


def name_of(path: Path, function: str = "") -> str:
    """How PENDING names a file or a function."""
    return path.relative_to(ROOT).as_posix() + (f"::{function}" if function else "")


def python_functions(path: Path) -> list[tuple[str, int, bool]]:
    """(name, lines without the docstring, whether there is a reason) of each function."""
    lines = path.read_text().split("\n")
    return [
        (f.name, f.length, bool(f.first > 1 and REASON.match(lines[f.first - 2])))
        for f in facts(path).functions
    ]


def c_functions(path: Path) -> list[tuple[str, int, bool]]:
    """The same of a C file in the layout of clang-format: a body ends with } in column 0."""
    lines = path.read_text().split("\n")
    found, begin = [], None
    for i, line in enumerate(lines):
        if begin is None and re.match(r"[A-Za-z_]", line) and "(" in line and ";" not in line:
            begin = i
        if line.startswith("}"):
            if begin is not None and (name := re.search(r"(\w+)\(", lines[begin])):
                reason = bool(begin and REASON.match(lines[begin - 1]))
                found.append((name[1], i - begin + 1, reason))
            begin = None
    return found


def too_long() -> set[str]:
    """Names of the files and functions that exceed the limits without a reason."""
    found = set()
    for path in sources("*.py", "*.c", "*.h", "*.ts", "*.mjs"):
        lines = path.read_text().split("\n")
        if len(lines) - 1 > FILE and not any(REASON.match(line) for line in lines[:40]):
            found.add(name_of(path))
    for path in sources("*.py"):
        for function, length, reason in python_functions(path):
            if length > PYTHON and not reason:
                found.add(name_of(path, function))
    for path in sources("*.c", "*.h"):
        for function, length, reason in c_functions(path):
            if length > C and not reason:
                found.add(name_of(path, function))
    return found


def test_files_and_functions_are_short() -> None:
    """Python functions have at most 60 lines, C functions 80, files 900."""
    long = too_long()
    assert not long - PENDING, "\n".join(sorted(long - PENDING))
    stale = {name for name in PENDING - long if "." in name}
    if stale:
        warnings.warn(f"remove from PENDING: {sorted(stale)}", stacklevel=1)
