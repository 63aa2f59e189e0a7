"""The files of the repository, and what tests ask of its Python files: each is parsed once."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Function(NamedTuple):
    """A function of a Python file.

    Attributes:
        name: of the function.
        line: of `def`.
        first: line of its first decorator, or of `def`.
        length: in lines, without the docstring.
    """

    name: str
    line: int
    first: int
    length: int


class Facts(NamedTuple):
    """What a Python file has: its imports, also those within functions, but not those for
    annotations alone; and its functions.
    """

    imports: list[ast.Import | ast.ImportFrom]
    functions: list[Function]


@functools.cache
def facts(path: Path) -> Facts:
    """The facts of a file, which is parsed and walked once for all tests of a process."""
    found, annotations = Facts([], []), set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        # Breadth first: the test is seen before what it encloses.
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            annotations.update(map(id, ast.walk(node)))
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) not in annotations:
            found.imports.append(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.functions.append(_function(node))
    return found


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return Function(node.name, node.lineno, first, length)


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository by their names; without git, those that are there."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        skip = {"node_modules", "dist", ".build", ".git"}
        found = [p for pattern in patterns for p in ROOT.rglob(pattern)]
        return [p for p in found if not skip & set(p.relative_to(ROOT).parts)]
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).exists()]
