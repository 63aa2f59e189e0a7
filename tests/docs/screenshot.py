"""Takes the pictures of README again: `python -m tests.docs.screenshot`, after `make web`.

demo.png: the demo learns its sample text; the loss and the stories before and after are shown.
real.png: Whisper has written down a recording in the room "Listen", after `make demo MODELS=real`;
without that model the picture stays as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from ..browser.chromium import CHROMIUM, QUIET

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WHISPER = ROOT / "web/dist/demo/real/whisper-tiny.en.edge"
MARGIN = 16
COMPARED = (
    "!document.querySelector('#compare-again').disabled"
    " && document.querySelector('#after').textContent"
)


def main() -> None:
    """Writes the pictures that are named on the command line, or all."""
    wanted = set(sys.argv[1:]) or {"demo.png", "real.png"}
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
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
            page = browser.new_page(viewport={"width": 860, "height": 900})
            page.set_default_timeout(240_000)
            if "demo.png" in wanted:
                lesson(page, f"{address}/demo/")
            if "real.png" in wanted and WHISPER.exists():
                speech(page, f"{address}/demo/listen.html")
            browser.close()
    finally:
        server.terminate()
        server.wait()


def lesson(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#generate:not([disabled])")
    page.click("#sample")
    page.click("#teach")
    page.wait_for_selector("#compare:not([hidden])")
    page.wait_for_function(COMPARED)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(1000)  # the curve is drawn once more
    take(page, ("#learning", "#compare"), "demo.png")


def speech(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 760, "height": 900})
    page.goto(address)
    page.click("#real")
    page.wait_for_selector("#samples button")
    page.click("#samples button")
    page.wait_for_function("+document.body.dataset.transcripts >= 1")
    page.evaluate("window.scrollTo(0, 0)")
    take(page, (".rooms", "#figure-words"), "real.png")


def take(page: Page, names: tuple[str, str], file: str) -> None:
    """Takes a picture of what lies between two elements, with the width of the first."""
    boxes = [page.locator(name).bounding_box() for name in names]
    top = boxes[0]["y"] - MARGIN
    page.screenshot(
        path=IMAGES / file,
        full_page=True,
        clip={
            "x": boxes[0]["x"] - MARGIN,
            "y": top,
            "width": boxes[0]["width"] + 2 * MARGIN,
            "height": max(box["y"] + box["height"] for box in boxes) + MARGIN - top,
        },
    )


if __name__ == "__main__":
    main()
