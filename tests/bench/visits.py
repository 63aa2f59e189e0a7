"""Visits of a page in a browser profile of its own: the first, the second, and steady runs there.

A page sets `window.visited` to {"first": milliseconds until its first result, ...} or to {"error"},
and `window.runs(ms)` to a function that repeats its work for so long and returns milliseconds.
"""

from __future__ import annotations

import numpy as np

from .browser import Bench, cpu_ms, renderers
from .stats import ratio, show, summary

STEADY_MS = 200
RUNS = """(ms) => {
    window.timed = undefined;
    window.runs(ms).then(
      (times) => (window.timed = { times }),
      (e) => (window.timed = { error: String(e?.message ?? e) }),
    );
}"""
FIRST, SECOND, STEADY = "first visit", "second visit", "steady"


def row_name(title: str, what: str) -> str:
    """The name of a row of the case's values, for goals.py."""
    return f"{title}: {what}"


class Visits:
    """A browser profile in which one engine's page is opened several times."""

    def __init__(self, bench: Bench, url: str, patience: float = 120) -> None:
        """`patience`: seconds after which a visit, or its runs, fails."""
        self.url, self.peak, self.page, self.process = url, 0, None, None
        self.context = bench.chromium.new_context()
        self.context.set_default_timeout(1000 * patience)

    def visit(self) -> dict[str, float]:
        """Opens a new page; returns {"created", "first"} in milliseconds since the start of
        navigation.
        """
        if self.page:
            self.page.close()
        before = {pid: cpu_ms(pid) for pid in renderers()}
        self.page = self.context.new_page()
        self.page.goto(self.url)
        self.page.wait_for_function("window.visited")
        visited = self.page.evaluate("window.visited")
        if "error" in visited:
            raise RuntimeError(visited["error"])
        worked = {pid: cpu_ms(pid) - before.get(pid, 0) for pid in renderers()}
        self.process = max(worked, key=worked.get, default=None)
        self._watch()
        return visited

    def _watch(self) -> None:
        found = renderers().get(self.process)
        self.peak = max(self.peak, found["peak"] if found else 0)

    def steady(self) -> float:
        """Median milliseconds of a run in the open page."""
        self.page.evaluate(RUNS, STEADY_MS)  # does not wait, which would have no limit
        self.page.wait_for_function("window.timed")
        timed = self.page.evaluate("window.timed")
        if "error" in timed:
            raise RuntimeError(timed["error"])
        self._watch()
        return float(np.median(timed["times"][1:]))

    def close(self) -> None:
        self.context.close()


def cells(times: dict[str, list[float]], ours: str, theirs: str) -> list[str]:
    """The table cells: our figure, theirs, and the ratio of speeds."""
    middle = [
        show(summary(times[who])["median"]) if times.get(who) else "–" for who in (ours, theirs)
    ]
    r = ratio(times.get(theirs), times.get(ours))
    return [*middle, f"**{r['median']:.2f}×**" if r else "–"]
