"""Pages built with each web framework from the npm package, on a plain static server: `make
frameworks`. Nothing is configured for edgewise. Each framework also imports it on its server, which
renders the page ahead of time, except Angular, whose page is rendered in the browser.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from browser.conftest import browser, built  # noqa: F401  (fixtures)
from bundlers.conftest import MODEL, ROOT, serve, text  # noqa: F401  (fixtures)

APPS = ROOT / ".build" / "frameworks"
SOURCES = Path(__file__).parent
QUIET = {
    "ASTRO_TELEMETRY_DISABLED": "1",
    "NEXT_TELEMETRY_DISABLED": "1",
    "NG_CLI_ANALYTICS": "false",
    "CI": "1",
}

# Arguments of the command that builds, the folder of static files, and the folder that it writes.
BUILDS = {
    "next-turbopack": ("next", ["next", "build", "--turbopack"], "public", "out"),
    "next-webpack": ("next", ["next", "build", "--webpack"], "public", "out"),
    "astro": ("astro", ["astro", "build"], "public", "dist"),
    "sveltekit": ("sveltekit", ["vite", "build"], "static", "build"),
    "angular": ("angular", ["ng", "build"], "public", "dist"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_framework(browser, serve, text, name) -> None:  # noqa: F811
    app, command, static, written = BUILDS[name]
    folder = APPS / app
    shutil.copytree(SOURCES / app, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / written, ignore_errors=True)
    (folder / static).mkdir(exist_ok=True)
    shutil.copy(MODEL, folder / static / "model.edge")
    done = subprocess.run(
        [folder / "node_modules" / ".bin" / command[0], *command[1:]],
        cwd=folder,
        env=os.environ | QUIET,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    page = browser.new_page()
    page.goto(serve(folder / written) + "/index.html")
    output = page.wait_for_selector("output:not(:empty)", timeout=60_000)
    assert output.inner_text() == text
    page.close()
