"""Measures the seconds from an empty folder to a page's first text: `npm create vite`, install,
build, and a visit by Chromium, with an empty npm cache. Needs `make frameworks` to have run once:

    python tests/frameworks/first_token.py
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser.chromium import CHROMIUM, FLAGS
from bundlers.conftest import BUNDLERS, HTML, MODEL, MODULE, PAGE, Handler


def serve(folder: Path) -> str:
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://localhost:{server.server_address[1]}/index.html"


def measure(folder: Path) -> None:
    [package] = BUNDLERS.glob("edgewise-*.tgz")
    app = folder / "app"
    start = last = time.perf_counter()
    environment = os.environ | {"npm_config_cache": str(folder / "cache"), "CI": "1"}

    def stage(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        print(f"{name:<24} {now - last:6.1f} s")
        last = now

    def run(where: Path, *command: str | Path) -> None:
        subprocess.run(command, cwd=where, env=environment, check=True, stdout=subprocess.DEVNULL)

    run(folder, "npm", "create", "--yes", "vite@latest", "app", "--", "--template", "vanilla")
    stage("npm create vite")
    run(app, "npm", "install", "--no-fund", "--no-audit", package)
    stage("npm install edgewise")
    (app / "main.js").write_text(PAGE.replace("PACKAGE", "edgewise"))
    tag = MODULE.replace("main.js", "/main.js")
    (app / "index.html").write_text(HTML + tag + "</script>")
    (app / "public").mkdir(exist_ok=True)
    shutil.copy(MODEL, app / "public" / "model.edge")
    run(app, "npx", "vite", "build")
    stage("vite build")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.goto(serve(app / "dist"))
        page.wait_for_function("document.title !== 'waits'", timeout=120_000)
        print(page.title())
        stage("Chromium, first text")
        browser.close()
    print(f"{'together':<24} {last - start:6.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name))
