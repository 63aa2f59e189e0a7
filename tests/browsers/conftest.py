"""Fixtures: each browser, and pages with edgewise as `ew`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser.conftest import browser, built, files, hub, package, server  # noqa: F401  (fixtures)
from browser.training.conftest import trainable  # noqa: F401
from tiers import slow_unless

from .drivers import Browser, Chromium, Firefox, Tab, WebKit, missing

BROWSERS = {"chromium": Chromium, "firefox": Firefox, "webkit": WebKit}
# For what differs little between browsers: `make test` runs it in Chromium only.
mostly_alike = pytest.mark.parametrize(
    "profile", slow_unless(lambda name: name == "chromium", BROWSERS), indirect=True
)
# Seconds for a call of a page: longer than all timeouts of the library, which name what stalled.
PATIENCE = 300
START = """
    async () => {
      window.troubles = [];
      addEventListener("error", (e) => troubles.push(`error: ${e.message}`));
      addEventListener("unhandledrejection", (e) => troubles.push(`unhandled: ${e.reason}`));
      window.ew = await import("/edgewise.js");
      return "";
    }
"""
RUN = """
    async (text) => {
      const [body, arg] = JSON.parse(text);
      const f = new (Object.getPrototypeOf(async function () {}).constructor)("ew", "arg", body);
      let result;
      try {
        result = await f(window.ew, arg);
      } catch (e) {
        const { name, what, where, remedy, message } = e;
        const ours = e instanceof ew.EdgewiseError;
        result = { error: { name, what, where, remedy, message, ours, own: ours } };
      }
      return JSON.stringify(result ?? null);
    }
"""


class Page:
    """A page with edgewise as `ew` in a new profile."""

    def __init__(self, tab: Tab, url: str):
        self.tab, self.url = tab, url
        self.used = False
        self.visit()

    def visit(self) -> None:
        """Loads the page; what earlier visits stored is available."""
        self.tab.open(self.url)
        self.tab.evaluate(START, "", PATIENCE)

    def run(self, body: str, arg: Any = None, seconds: float = PATIENCE) -> Any:
        """Runs the body of an async function with `arg`, both as JSON; an exception is returned as
        {error: {...}}.

        Raises:
            BrowserError: it did not finish within `seconds`.
        """
        return json.loads(self.tab.evaluate(RUN, json.dumps([body, arg]), seconds))

    def check(self) -> None:
        """Fails if the page had an uncaught error."""
        troubles = self.run("return window.troubles.splice(0)")
        assert not troubles, troubles

    def close(self) -> None:
        """Closes the page, as `check`."""
        try:
            self.check()
        finally:
            self.tab.close()


@pytest.fixture(scope="session")
def open_browser(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Browser]]:
    """open_browser(name) returns a running browser, the same one for each call."""
    running: dict[str, Browser] = {}

    def open_one(name: str) -> Browser:
        if name not in running:
            reason = missing(name)
            if reason:
                pytest.skip(reason)
            running[name] = (
                Chromium(request.getfixturevalue("browser"))
                if name == "chromium"
                else BROWSERS[name]()
            )
        return running[name]

    yield open_one
    for one in running.values():
        one.close()


@pytest.fixture(scope="module", params=list(BROWSERS))
def profile(
    request: pytest.FixtureRequest,
    open_browser: Callable[[str], Browser],
    server: str,  # noqa: F811
) -> Iterator[Page]:
    """A page in a new profile of each browser, which the tests of a file share."""
    one = Page(open_browser(request.param).tab(), server + "/files/blank.html")
    one.name = request.param
    yield one
    one.close()


@pytest.fixture
def page(profile: Page) -> Iterator[Page]:
    """The page of `profile`, newly loaded for each test."""
    if profile.used:
        profile.visit()
    profile.used = True
    yield profile
    profile.check()
