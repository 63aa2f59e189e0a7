"""The site's parts that need no site generator: every page is in the navigation, and broken links
are found.
"""

from __future__ import annotations

import re
from pathlib import Path

from .links import broken_links
from .snippets import ROOT


def test_navigation_is_complete() -> None:
    """Every page of docs/ is in mkdocs.yml once; what it names exists, or is added or generated."""
    named = re.findall(
        r"^ +- (?:[^:\n]+: )?([\w./-]+\.(?:md|html))$", (ROOT / "mkdocs.yml").read_text(), re.M
    )
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    added = set(re.findall(r': "([\w./-]+\.md)"', (ROOT / "docs" / "hooks.py").read_text()))
    assert len(named) == len(set(named))
    assert set(named) == pages | added | {"api/typescript/index.html"}


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "guide").mkdir()
    (tmp_path / "index.html").write_text(
        '<p id=top><a href="guide/">1</a> <a href="guide/#there">2</a> <a href="#top">3</a>'
        ' <a href="https://example.com/x">4</a>'
        ' <a href="guide/#gone">5</a> <a href="nowhere.html">6</a> <img src="../outside.png">'
    )
    (tmp_path / "guide" / "index.html").write_text(
        '<h1 id="there">Guide</h1><a href="../#bottom">7</a>'
    )
    wrong = broken_links(tmp_path)
    assert [line.split(": ")[1] for line in wrong] == [
        "../#bottom",
        "guide/#gone",
        "nowhere.html",
        "../outside.png",
    ]


def test_errors_are_listed() -> None:
    """docs/guide/errors.md has every class of both languages, and no other. Files by path are of
    Python alone, and JavaScript's InputRangeError of pages.
    """
    from edgewise import errors

    listed = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "guide" / "errors.md").read_text(), re.M)
    python = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EdgewiseError)
    } - {"EdgewiseError"}
    typescript = set(
        re.findall(
            r"^export class (\w+)",
            (ROOT / "web" / "src" / "shared" / "errors.ts").read_text(),
            re.M,
        )
    )
    pages = {"EdgewiseError", "InputRangeError"}
    assert set(listed) == python == typescript - pages | {"NoSuchFile"}
    assert len(listed) == len(set(listed))
