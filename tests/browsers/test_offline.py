"""The demo without its server, in each browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser.site import ISOLATION, Site
from tiers import slow_unless

from .conftest import BROWSERS, PATIENCE
from .drivers import Browser

WAIT = """
    async (condition) => {
      const $ = (name) => document.querySelector(name);
      const { dataset } = document.body;
      const ready = () => (condition === "kept" ? !$("#offline").hidden : dataset.written);
      while (!ready() && $("#error").hidden) await new Promise((next) => setTimeout(next, 50));
      return $("#error").hidden ? $("#story").innerText : $("#error").innerText;
    }
"""


# tests/browser/test_offline.py tests more in Chromium
@pytest.mark.parametrize("name", slow_unless(lambda name: name == "firefox", BROWSERS))
def test_demo_without_its_server(
    name: str,
    open_browser: Callable[[str], Browser],
    built: None,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The second visit writes the same story as the first, from what the browser keeps."""
    tab = open_browser(name).tab()
    site = Site(tmp_path, dict(ISOLATION))
    url = f"{site.url}/demo/?seed=1&max_new_tokens=30"
    try:
        tab.open(url)
        story = tab.evaluate(WAIT, "kept", PATIENCE)
        assert story.startswith("Once upon a time")
        site.stop()
        tab.open(url)
        assert tab.evaluate(WAIT, "written", PATIENCE) == story
    finally:
        tab.close()
        site.close()
