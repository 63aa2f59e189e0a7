"""docs/reference/models.md, the table of families of models, is up to date with the tests."""

from __future__ import annotations

import sys

import pytest
from repository import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from families import FILE, marks_of, table


def test_table() -> None:
    assert FILE.read_text() == table(), "run `make models`"


def test_readme_names_families() -> None:
    """Those of README's table are in this one."""
    rows = [line.split(" | ") for line in table().splitlines() if line.startswith("| ")]
    tested = {row[0].removeprefix("| ") for row in rows}
    text = (ROOT / "README.md").read_text()
    lines = text.split("| for | families", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    named = [name for line in lines for name in line.split(" | ")[1].rstrip(" |").split(", ")]
    assert len(named) > 30
    assert [name for name in named if name not in tested] == []


MARK = "@pytest.mark.family({})\ndef test(): pass\n"


def test_marks() -> None:
    [mark] = marks_of(MARK.format('"Qwen3", exporter="GenAI"'), "tests/browser/test_x.py")
    assert mark[2:] == ("Qwen3", "GenAI", "Page")
    text = MARK.format('"Qwen3", exporter="GenAI", host="WebGPU"')
    assert next(marks_of(text, "tests/browser/test_x.py")).host == "WebGPU"


@pytest.mark.parametrize(
    "arguments",
    [
        '"Qwen3"',
        '"Qwen33", exporter="GenAI"',
        '"Qwen3", exporter="Genai"',
        "NAME, exporter='GenAI'",
        '"Qwen3", exporter="GenAI", host="Mars"',
    ],
)
def test_wrong_marks(arguments: str) -> None:
    with pytest.raises(ValueError, match="tests/a.py:1"):
        list(marks_of(MARK.format(arguments), "tests/a.py"))
