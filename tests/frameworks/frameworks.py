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
from bundlers.conftest import EVERYTHING, ROOT, everything, serve, text  # noqa: F401  (fixtures)
from bundlers.test_bundlers import CDN_FILES, from_cdn
from bundlers.test_templates import chat, create, talk_on_the_web  # noqa: F401  (fixture)

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
def test_framework(browser, serve, everything, name) -> None:  # noqa: F811
    """The page writes, sees and hears. Angular copies no files: they come from the CDN."""
    said, packages = everything
    app, command, static, written = BUILDS[name]
    folder = APPS / app
    shutil.copytree(SOURCES / app, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / written, ignore_errors=True)
    (folder / static).mkdir(exist_ok=True)
    (folder / "everything.js").write_text(EVERYTHING)
    for path in packages:
        shutil.copy(path, folder / static)
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
    asked: list[str] = []
    from_cdn(page, asked)
    page.goto(serve(folder / written) + "/index.html")
    output = page.wait_for_selector("output:not(:empty)", timeout=60_000)
    assert output.inner_text() == said
    names = {url.rsplit("/", 1)[1] for url in asked}  # two workers may ask for one file
    assert sorted(names) == (CDN_FILES if app == "angular" else [])
    page.close()


def test_template(browser, serve, chat, tmp_path) -> None:  # noqa: F811
    """The template vite-react of `npm create edgewise` passes tsc, is built, and answers."""
    package, answer = chat
    folder = APPS / "vite-react"
    create(tmp_path / "my-app", "vite-react")
    shutil.copytree(tmp_path / "my-app", folder, dirs_exist_ok=True)
    for command in (["tsc"], ["vite", "build"]):
        subprocess.run(
            [folder / "node_modules" / ".bin" / command[0], *command[1:]], cwd=folder, check=True
        )
    shutil.copy(package, folder / "dist")
    asked: list[str] = []
    url = serve(folder / "dist") + "/index.html?model=/chat.edge"
    found = talk_on_the_web(browser, url, asked)
    assert (found.strip(), asked) == (answer.strip(), [])
