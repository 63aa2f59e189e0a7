"""The npm package under test, a plain static server, and the page that generates a text."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.conftest import browser, built  # noqa: F401  (fixtures)
from playwright.sync_api import Browser, Page

from . import models

ROOT = Path(__file__).parents[2]
DIST = ROOT / "web" / "dist"
BUNDLERS = ROOT / ".build" / "bundlers"
BIN = BUNDLERS / "node_modules" / ".bin"
MODEL = DIST / "demo" / "model.edge"
PAGE = """
import { pipeline } from "PACKAGE";

async function main() {
  const write = await pipeline("text-generation", "/model.edge");
  const [{ generated_text: text }] = await write("Once", { max_new_tokens: 8, do_sample: false });
  document.title = `wrote ${text}`;
}

main().catch((e) => (document.title = `failed: ${e.message} ${e.where}`));
"""
EVERYTHING = (Path(__file__).parent / "everything.js").read_text()
# The same with a picture and a sound, which need files beside the one file.
MAIN = """
import { everything } from "./everything.js";

everything().then(
  (all) => (document.title = `did ${all}`),
  (e) => (document.title = `failed: ${e.message}`),
);
"""
HTML = '<!doctype html><meta charset="utf-8"><title>waits</title>'
MODULE, CLASSIC = '<script type="module" src="main.js">', "<script defer src='main.js'>"


class Handler(http.server.SimpleHTTPRequestHandler):
    """A minimal static server with the MIME types that browsers require."""

    protocol_version = "HTTP/1.1"
    extensions_map = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *_: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    servers = []

    def start(folder: Path) -> str:
        handler = functools.partial(Handler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://localhost:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()


def title(
    browser: Browser,  # noqa: F811
    url: str,
    route: Callable[[Page], object] | None = None,
) -> str:
    page = browser.new_page()
    if route is not None:
        route(page)
    try:
        page.goto(url)
        page.wait_for_function("document.title !== 'waits'")
        return page.title()
    finally:
        page.close()


@pytest.fixture(scope="session")
def text() -> str:
    import edgewise

    write = edgewise.pipeline("text-generation", str(MODEL))
    return write("Once", max_new_tokens=8, do_sample=False)[0]["generated_text"]


@pytest.fixture(scope="session")
def everything(text: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Path]]:
    """What everything.js says, and the packages that it loads."""
    folder = tmp_path_factory.mktemp("models")
    models.make(folder)
    said = f"{text} / green / 600 samples of 0.25"
    return said, [MODEL, folder / "picture.edge", folder / "sound.edge"]
