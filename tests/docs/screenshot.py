"""Takes the picture of README again: `python tests/docs/screenshot.py`, after `make web`.

The demo learns its sample text; the picture shows the loss and the stories before and after.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MARGIN = 16
COMPARED = (
    "!document.querySelector('#compare-again').disabled"
    " && document.querySelector('#after').textContent"
)


def main() -> None:
    """Writes docs/images/demo.png."""
    server = subprocess.Popen(
        ["node", "web/demo/serve.mjs", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        address = next(
            found[0]
            for line in server.stdout
            if (found := re.search(r"http://localhost:\d+", line))
        )
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            page = browser.new_page(viewport={"width": 860, "height": 900})
            page.set_default_timeout(240_000)
            page.goto(f"{address}/demo/")
            page.wait_for_selector("#generate:not([disabled])")
            page.click("#sample")
            page.click("#teach")
            page.wait_for_selector("#compare:not([hidden])")
            page.wait_for_function(COMPARED)
            page.evaluate("window.scrollTo(0, 0)")
            page.wait_for_timeout(1000)  # the curve is drawn once more
            boxes = [page.locator(name).bounding_box() for name in ("#learning", "#compare")]
            top = boxes[0]["y"] - MARGIN
            page.screenshot(
                path=ROOT / "docs" / "images" / "demo.png",
                full_page=True,
                clip={
                    "x": boxes[0]["x"] - MARGIN,
                    "y": top,
                    "width": boxes[0]["width"] + 2 * MARGIN,
                    "height": max(box["y"] + box["height"] for box in boxes) + MARGIN - top,
                },
            )
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
