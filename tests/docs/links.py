"""Checks the links of a built site: `python tests/docs/links.py FOLDER`.

Every relative address of a page (href, src) must be a file of the folder, and its fragment an id on
that page. Addresses of other sites are not asked for.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class PageParser(HTMLParser):
    """Collects the addresses that a page refers to, and the ids that it has."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes href, src, id and the name of anchors."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value)
            elif name in ("href", "src"):
                self.links.append(value)


def parse(path: Path) -> PageParser:
    """The links and ids of an HTML file."""
    page = PageParser()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken_links(folder: Path) -> list[str]:
    """What is wrong with the links of all pages in a folder, a line each."""
    folder = folder.resolve()
    pages = {path: parse(path) for path in sorted(folder.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        if (
            path.name == "404.html"
        ):  # its addresses are relative to the site's root, wherever it is shown
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("data:"):
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target /= "index.html"
            where = f"{path.relative_to(folder)}: {link}"
            if not target.is_relative_to(folder) or not target.is_file():
                wrong.append(f"{where}: there is no such file")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids
            ):
                wrong.append(f"{where}: the page has no such id")
    return wrong


def main() -> int:
    """Prints what is broken; the status is 1 where something is."""
    folder = Path(sys.argv[1])
    wrong = broken_links(folder)
    for line in wrong:
        print(line, file=sys.stderr)
    pages = sum(1 for _ in folder.rglob("*.html"))
    print(f"{folder}: {pages} pages, {len(wrong)} broken links")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
