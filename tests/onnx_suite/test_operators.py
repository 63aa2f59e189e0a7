"""OPERATORS.md, the table of operators, is up to date with the declarations and their cases."""

from . import operators


def test_page_is_current():
    assert operators.FILE.read_text(encoding="utf-8") == operators.text(), "run `make operators`"
