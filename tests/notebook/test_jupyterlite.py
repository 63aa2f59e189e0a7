"""The notebooks of examples/notebooks and the page of examples/pyscript in Chromium, on the site
that `make notebooks` builds. Nothing is fetched from elsewhere.

Building the site downloads about 40 MB and running it takes more than a minute, so this is not
part of `make test`: `make jupyterlite` runs it.
"""

import functools
import os
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.chromium import CHROMIUM, FLAGS
from playwright.sync_api import TimeoutError

ROOT = Path(__file__).parents[2]
SITE = ROOT / ".build/notebooks/site"
NOTEBOOKS = ROOT / "examples/notebooks"
MINUTES = 4  # for one cell on a busy machine

pytestmark = pytest.mark.skipif(
    "EDGEWISE_NOTEBOOKS" not in os.environ, reason="run `make jupyterlite`"
)


class Handler(SimpleHTTPRequestHandler):
    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".whl": "application/zip",
    }

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    assert (SITE / "notebooks/index.html").exists(), "there is no site: run `make notebooks`"
    handler = functools.partial(Handler, directory=str(SITE))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


CELLS = """() => [...document.querySelectorAll(".jp-Notebook .jp-CodeCell")].map((cell) => ({
  prompt: cell.querySelector(".jp-InputPrompt")?.innerText ?? "",
  text: cell.querySelector(".jp-OutputArea")?.innerText ?? "",
  failed: cell.querySelector('[data-mime-type="application/vnd.jupyter.error"]') !== null
    || /Error|Traceback/.test(cell.querySelector(".jp-OutputArea")?.innerText ?? ""),
  pictures: cell.querySelectorAll(".jp-OutputArea svg, .jp-OutputArea img").length,
}))"""


@pytest.fixture
def page(playwright, address):
    """A page that asks no other server for anything."""
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    page = browser.new_page(viewport={"width": 1280, "height": 5000})
    outside = []
    page.on(
        "request",
        lambda r: (
            outside.append(r.url) if not r.url.startswith((address, "data:", "blob:")) else None
        ),
    )

    yield page
    browser.close()
    assert not outside


@pytest.fixture
def run(page, address):
    """run(name) runs the cells of a notebook and returns what they show."""

    def run(name):
        page.goto(f"{address}/notebooks/index.html?path={name}")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.wait_for_timeout(2000)
        page.click(".jp-Notebook .jp-Cell >> nth=0")
        count = page.locator(".jp-Notebook .jp-Cell").count()
        codes = len(page.evaluate(CELLS))  # an empty one is added after the last
        for _ in range(count):
            page.keyboard.press("Shift+Enter")
        for i in range(codes):
            try:
                page.wait_for_function(
                    f"() => /\\d/.test(({CELLS})()[{i}]?.prompt ?? '')", timeout=MINUTES * 60_000
                )
            except TimeoutError:
                pytest.fail(f"cell {i} of {name} did not end: {page.evaluate(CELLS)}")
            cell = page.evaluate(CELLS)[i]
            assert not cell["failed"], cell["text"]
        page.wait_for_timeout(500)
        return page.evaluate(CELLS)[:codes]

    return run


def test_pyscript(page, address):
    page.goto(f"{address}/pyscript/index.html")
    page.wait_for_function(
        "() => !document.querySelector('#write').disabled", timeout=MINUTES * 60_000
    )
    page.click("#write")
    page.wait_for_function(
        "() => document.querySelector('#story').textContent.length > 100", timeout=MINUTES * 60_000
    )
    assert page.inner_text("#story").startswith("The old fisherman")


def test_generate(run):
    cells = run("generate.ipynb")
    assert cells[1]["text"].startswith("Once upon a time") and len(cells[1]["text"]) > 100
    assert "The old fisherman" in cells[2]["text"]
    assert "[1, 297, 492, 1529]" in cells[3]["text"]
    assert "<|user|>Hello!" in cells[4]["text"]


def test_fine_tune(run):
    cells = run("fine-tune.ipynb")
    numbers = re.findall(r"\d+\.\d+", cells[-2]["text"].split("loss ")[-1])
    first, last, held, learned = map(float, numbers[:4])
    assert last < first / 2 and learned < held / 2
    assert cells[-2]["pictures"] and cells[-1]["text"].count("arrr!") >= 2


def test_profile(run):
    cells = run("onnx-profile.ipynb")
    assert "MatMulNBits" in cells[3]["text"] and cells[4]["pictures"]
