"""Paths in comments and docstrings lead somewhere."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest
from repository import ROOT, tracked

# A path to a source file, of at least one folder and a file; not the end of a longer one (of an
# address, of a package), nor a pattern.
PATH = re.compile(
    r"(?<![\w.@/<>{}*~$:-])((?:\.\.?/)*[\w.-]+(?:/[\w.-]+)*/[\w.-]+"
    r"\.(?:c|h|json|md|mjs|py|sh|ts|wgsl))\b"
    r"(?![\w/*-])"
)
# Folders of what a build writes, and of other projects.
ELSEWHERE = re.compile(r"\.build/|dist/|libImaging/|onnxruntime/|transformers/|.*\bNAME\b")
TOP = re.compile(r"(core|docs|examples|python|tests|wasm|web)/")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
ADDRESS = re.compile(r"\w+://\S+")


def python_comments(text: str) -> str:
    """Comments and docstrings of a Python file."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [t.string for t in tokens if t.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(ast.get_docstring(node) or "")
    return "\n".join(found)


def paths_in(path: Path) -> set[str]:
    """The paths that a file's comments name."""
    text = path.read_text()
    comments = python_comments(text) if path.suffix == ".py" else "\n".join(COMMENT.findall(text))
    return set(PATH.findall(ADDRESS.sub("", comments)))


@pytest.mark.parametrize("kind", ["*.py", "*.ts *.mjs", "*.c *.h *.wgsl"])
def test_paths_in_comments_exist(kind: str) -> None:
    """A path is from the root, from a folder above it, or the end of such a path."""
    names = [p.relative_to(ROOT).as_posix() for p in tracked("*")]
    ends = {name[at:] for name in names for at in starts(name)}
    wrong = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in tracked(*kind.split())
        if "/gen/" not in path.as_posix()
        for named in sorted(paths_in(path))
        if not ELSEWHERE.match(named)
        and (not named.endswith(".json") or TOP.match(named))
        and named not in ends
        and not any((folder / named).exists() for folder in (ROOT, path.parent))
    ]
    assert not wrong, "\n".join(wrong)


def starts(name: str) -> list[int]:
    """Where a path or one of its ends begins."""
    return [0, *(at + 1 for at, letter in enumerate(name) if letter == "/")]
