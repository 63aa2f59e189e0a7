"""The templates of `npm create edgewise`: copied by its script, and run with a small model."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from browser.chromium import CHROMIUM, FLAGS
from edgewise.compiler.compile import compile_package
from edgewise.host.session.open import folder_files
from playwright.sync_api import Browser, Page

from .conftest import ROOT
from .test_bundlers import from_cdn

CREATE = ROOT / "web" / "create" / "index.mjs"
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
QUESTION = "Once upon a time"
ONLY = "--disable-extensions-except"


def create(folder: Path, template: str) -> str:
    command = ["node", CREATE, folder, "--template", template]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def chat(tmp_path_factory) -> tuple[Path, str]:
    """A package that answers messages without sampling, and its answer in Python."""
    import edgewise

    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(ROOT / "web" / "demo" / "model", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
    settings = folder / "generation_config.json"
    known = json.loads(settings.read_text()) if settings.exists() else {}
    settings.write_text(json.dumps(known | {"do_sample": False}))
    sources, _ = folder_files(folder)
    package = folder.parent / "chat.edge"
    with package.open("wb") as file:
        compile_package(sources, capacity=512).write(file)
    write = edgewise.pipeline("text-generation", str(package))
    messages = [{"role": "user", "content": QUESTION}]
    [answer] = write(messages, max_new_tokens=200, return_full_text=False)
    said = answer["generated_text"]
    return package, said if isinstance(said, str) else said[-1]["content"]


def talk(page: Page, url: str) -> str:
    """What a page of a template answers."""
    page.goto(url)
    page.fill("input", QUESTION)
    page.click("button:enabled", timeout=120_000)
    page.wait_for_selector("p.assistant:not(:empty)", timeout=120_000)
    page.wait_for_selector("button:enabled", timeout=120_000)
    assert page.inner_text("p.user") == QUESTION
    return page.text_content("p.assistant")


def talk_on_the_web(browser: Browser, url: str, asked: list[str]) -> str:
    """The same in a new page, with a CDN, whose addresses are added to `asked`."""
    page = browser.new_page()
    from_cdn(page, asked)
    try:
        return talk(page, url)
    finally:
        page.close()


def test_page(browser, serve, chat, tmp_path) -> None:
    """The page takes the library from the CDN, in the version of the script."""
    package, answer = chat
    folder = tmp_path / "My App"
    assert "npx serve" in create(folder, "page")
    shutil.copy(package, folder)
    asked: list[str] = []
    found = talk_on_the_web(browser, serve(folder) + "/index.html?model=/chat.edge", asked)
    assert found.strip() == answer.strip() and asked
    assert "<title>my-app</title>" in (folder / "index.html").read_text()


def test_extension(playwright, chat, tmp_path) -> None:
    """The panel of the built extension, which has no file from elsewhere."""
    package, answer = chat
    folder = tmp_path / "writer"
    assert "npm run build" in create(folder, "extension")
    (folder / "node_modules").symlink_to(ROOT / ".build" / "bundlers" / "node_modules")
    shutil.copy(package, folder / "src" / "model.edge")
    subprocess.run(["node", "build.mjs"], cwd=folder, check=True)
    loaded = [f"{option}={folder}/dist" for option in ("--load-extension", ONLY)]
    context = playwright.chromium.launch_persistent_context(
        tmp_path / "profile", executable_path=CHROMIUM, headless=True, args=[*FLAGS, *loaded]
    )
    try:
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        workers = context.service_workers
        worker = workers[0] if workers else context.wait_for_event("serviceworker")
        root = worker.url.removesuffix("background.js")
        assert talk(context.new_page(), root + "panel.html").strip() == answer.strip()
        assert asked and all(url.startswith((root, "blob:")) for url in asked)
    finally:
        context.close()


def test_refusals(tmp_path) -> None:
    """A folder that is not empty is left alone; of an unknown template the others are named."""
    (tmp_path / "kept").write_text("")
    for folder, template, words in (
        (tmp_path, "page", "is not empty"),
        (tmp_path / "new", "pages", "extension, page, vite-react"),
    ):
        command = ["node", CREATE, folder, "--template", template]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
