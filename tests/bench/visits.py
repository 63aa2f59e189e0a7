"""Visits of a page in a browser profile of its own: the first, the second, and steady runs there.

A page sets `window.visited` to {"first": milliseconds until its first result, ...} or to {"error"},
and `window.runs(ms)` to a function that repeats its work for so long and returns milliseconds.
"""

from __future__ import annotations

import numpy as np

from .browser import Bench, cpu_ms, renderers
from .stats import ratio, show, summary

STEADY_MS = 200
FIRST, SECOND, STEADY = "first visit", "second visit", "steady"


def row_name(title: str, what: str) -> str:
    """The name of a row of the case's values, for goals.py."""
    return f"{title}: {what}"


class Visits:
    """A browser profile in which one engine's page is opened several times."""

    def __init__(self, bench: Bench, url: str) -> None:
        self.url, self.peak, self.page = url, 0, None
        self.context = bench.chromium.new_context()
        self.context.set_default_timeout(120_000)

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
        process = max(worked, key=worked.get, default=None)
        found = renderers().get(process)
        self.peak = max(self.peak, found["peak"] if found else 0)
        return visited

    def steady(self) -> float:
        """Median milliseconds of a run in the open page."""
        return float(np.median(self.page.evaluate("window.runs", STEADY_MS)[1:]))

    def close(self) -> None:
        self.context.close()


def cells(times: dict[str, list[float]], ours: str, theirs: str) -> list[str]:
    """The table cells: our figure, theirs, and the ratio of speeds."""
    middle = [
        show(summary(times[who])["median"]) if times.get(who) else "–" for who in (ours, theirs)
    ]
    r = ratio(times.get(theirs), times.get(ours))
    return [*middle, f"**{r['median']:.2f}×**" if r else "–"]
