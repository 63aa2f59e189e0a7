"""Rules for text that formatters do not check."""

import re
from pathlib import Path

import pytest
from repository import ROOT, facts, tracked

COLUMNS = 100
# Data: sentences for the demo's model, and numbers.
DATA = ("web/demo/model-training/", "web/demo/lesson.ts", "/gen/", "tests/training/data/")
URL = re.compile(r"https?://\S{40,}")
# Base64 or hexadecimal digits, and character classes, which have no place to break.
DIGITS = re.compile(r"[\w+/=\\\[\]{}-]{90,}")


@pytest.mark.parametrize("kind", ["*.py", "*.ts", "*.mjs", "*.js", "*.c", "*.h", "*.css"])
def test_lines_fit(kind: str) -> None:
    """No line has more than 100 columns, except for URLs and data."""
    files = [p for p in tracked(kind) if not any(d in p.as_posix() for d in DATA)]
    assert files
    long = [
        f"{path.relative_to(ROOT)}:{i}: {len(line)} columns"
        for path in files
        for i, line in enumerate(path.read_text().split("\n"), 1)
        if len(line) > COLUMNS and not URL.search(line) and not DIGITS.search(line)
    ]
    assert not long, "\n".join(long)


def test_functions_have_names() -> None:
    """A function called `_` cannot be found in a traceback, a profile or by grep."""
    nameless = [
        f"{path.relative_to(ROOT)}:{f.line}"
        for path in tracked("python/*.py")
        for f in facts(path).functions
        if f.name == "_"
    ]
    assert not nameless


def test_shared_vectors_are_described() -> None:
    """tests/conformance/README.md has a row for each file, and the tests that it names read it."""
    folder = ROOT / "tests/conformance"
    rows = [
        re.findall(r"`([^`]+\.(?:json|py|ts))`", line)
        for line in (folder / "README.md").read_text().split("\n")
        if line.startswith("| `")
    ]
    assert sorted(row[0] for row in rows) == sorted(
        str(p.relative_to(folder)) for p in folder.rglob("*.json")
    )
    for name, *tests in rows:
        readers = [t for t in tests if t.startswith(("tests/", "web/test/"))]
        forms = {t.rpartition(".")[2] for t in readers}
        both = any(".forms import" in (ROOT / t).read_text() for t in readers)  # tests/logic
        assert forms == {"py", "ts"} or len(readers) > 1 or both, name
        for test in readers:
            assert (ROOT / test).read_text().count(name.removesuffix(".json")), (name, test)


def test_limits_have_one_name() -> None:
    """Limits are MAX_ and MIN_, in all languages: who looks for one need not know who wrote it."""
    other = re.compile(r"\b[A-Z0-9_]*(?<![A-Z0-9])(MOST|LEAST|FEWEST)(?![A-Z0-9])[A-Z0-9_]*\b")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked("*.py", "*.ts", "*.mjs", "*.c", "*.h", "*.wgsl")
        if path != Path(__file__) and not any(d in path.as_posix() for d in DATA)
        for match in other.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)
