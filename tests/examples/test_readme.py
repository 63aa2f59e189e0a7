"""The page of README as it is pasted. Its Python is run by tests/docs."""

from __future__ import annotations

import re

from .test_pages import EXAMPLES

README = EXAMPLES.parent / "README.md"


def test_page_of_readme(context, visit, example_server: str) -> None:
    """It tells something twice, the second time in the style of telegrams."""
    pages = re.findall(r"```html\n(<!doctype html>.*?)```", README.read_text(), re.S)
    assert len(pages) == 1
    context.route(
        "**/hello.html", lambda route: route.fulfill(body=pages[0], content_type="text/html")
    )
    v = visit(example_server, "/hello.html", start=False)
    v.page.wait_for_function("document.querySelectorAll('hr').length === 2")
    before, after = v.page.inner_text("body").split("\n", 1)
    assert before.count("STOP") < 2 and after.count("STOP") > 3
