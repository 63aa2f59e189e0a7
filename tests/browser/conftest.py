"""Chromium with the pages of web/dist, served by the demo's server with injectable faults.

No test accesses the network.
"""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from . import on_gpu
from .chromium import BLANK_PAGE, CHROMIUM, FLAGS, GPU_FLAGS, Profile
from .hub import Hub

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
MODEL = WEB / "demo" / "model"

BLANK = (
    "<!doctype html><meta charset=utf-8><link rel=icon href='data:,'><title>test</title><p>A page"
    " of the tests."
)
STRICT = (
    "Content-Security-Policy: default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src"
    " 'self'; img-src data:; object-src 'none'"
)


@pytest.fixture(scope="session")
def built():
    for name in (
        "edgewise.js",
        "engine/edgewise-simd128.wasm",
        "engine/edgewise-simd128-threads.wasm",
        "engine/edgewise-relaxed-threads.wasm",
        "engine/edgewise-relaxed-threads-64.wasm",
        "edgewise-*-py3-none-any.whl",
    ):
        assert list((WEB / "dist").glob(name)), f"web/dist/{name} is not there: run `make web`"
    assert shutil.which("node") and Path(CHROMIUM).exists(), (
        "node and chromium are needed: run `make test`"
    )


@pytest.fixture(scope="session")
def package():
    """The demo's model as an .edge file, compiled in CPython."""
    from edgewise.host.session.decoder import open_package

    out = io.BytesIO()
    open_package(MODEL).write(out)
    return out.getvalue()


@pytest.fixture(scope="session")
def files(tmp_path_factory, package):
    """The folder that the servers serve as /files/; tests write their own files there."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "blank.html").write_text(BLANK)
    (folder / "model.edge").write_bytes(package)
    hub = folder / "hub" / "someone" / "tiny" / "resolve" / "main"
    shutil.copytree(MODEL, hub)
    return folder


def _serve(files, *more):
    demo = files / "demo"
    demo.mkdir(exist_ok=True)
    shutil.copy(files / "model.edge", demo / "model.edge")
    process = subprocess.Popen(
        [
            "node",
            WEB / "demo" / "serve.mjs",
            "--port",
            "0",
            "--faults",
            "--mount",
            f"/files={files}",
            "--mount",
            f"/demo={demo}",
            *more,
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        found = re.search(r"http://localhost:\d+", line)
        if found:
            return process, found[0]
    raise AssertionError("serve.mjs ended before it was ready")


@pytest.fixture(scope="session")
def server(built, files):
    process, url = _serve(files)
    yield url
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def plain_server(built, files):
    """A server without the headers for cross-origin isolation."""
    process, url = _serve(files, "--no-isolation")
    yield url
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def strict_server(built, files):
    """A server with the Content-Security-Policy of an extension's pages (Manifest V3) on every
    file: no eval, no blob: URLs, nothing from other origins.
    """
    process, url = _serve(files, "--header", STRICT)
    yield url
    process.terminate()
    process.wait()


@pytest.fixture(scope="session")
def browser(built, playwright):
    gpu = GPU_FLAGS if on_gpu.WANTED else []
    chromium = playwright.chromium.launch(
        executable_path=CHROMIUM, args=[*FLAGS, *gpu, "--process-per-site"]
    )
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def profile_of_visits(browser):
    one = Profile(browser)
    yield one
    one.close()


@pytest.fixture
def context(browser):
    """A new browser profile with empty storage. Tests that only visit pages do without."""
    one = browser.new_context()
    yield one
    one.close()


@pytest.fixture
def hub():
    """A model hub with the demo's model, on other origins than the page's."""
    files = {p.relative_to(MODEL).as_posix(): p for p in MODEL.rglob("*") if p.is_file()}
    one = Hub({name: path.read_bytes() for name, path in files.items()})
    yield one
    one.close()


class Visit:
    """A page with edgewise as `ew`; collects its requests and its uncaught errors.

    page: one that is there already, and at `url` if it was there before; it stays open.
    """

    def __init__(self, context, url, page=None):
        self.page, self.stays, self.closed = page or context.new_page(), page is not None, False
        self.requests, self.troubles = [], []
        self.listeners = {
            "request": lambda r: self.requests.append(r),
            "pageerror": lambda e: self.troubles.append(f"uncaught: {e}"),
            "crash": lambda _: self.troubles.append("the page crashed"),
        }
        for event, listener in self.listeners.items():
            self.page.on(event, listener)
        if self.page.url != url:
            self.page.goto(url)

    def start(self):
        self.page.evaluate("async () => { window.ew = await import('/edgewise.js'); }")
        if on_gpu.WANTED:
            self.page.evaluate(on_gpu.PIPELINES)
        return self

    def run(self, body, arg=None):
        """Runs the body of an async function with `arg`; an exception is returned as {error:
        {...}}.
        """
        return self.page.evaluate(
            """
                async ([body, arg]) => {
                  const f = new (Object.getPrototypeOf(async function () {}).constructor)(
                    "ew",
                    "arg",
                    body,
                  );
                  try {
                    return await f(window.ew, arg);
                  } catch (e) {
                    return {
                      error: {
                        name: e.name,
                        what: e.what,
                        where: e.where,
                        remedy: e.remedy,
                        message: e.message,
                        ours: e instanceof ew.EdgewiseError,
                        own: e instanceof (ew[e.name] ?? globalThis[e.name] ?? Array),
                        sequences: e.sequences,
                      },
                    };
                  }
                }
            """,
            [body, arg],
        )

    def asked(self, part):
        return [r.url for r in self.requests if part in r.url]

    def close(self):
        self.closed = True
        if self.stays:
            self.page.goto(self.page.url)  # ends its workers
            for event, listener in self.listeners.items():
                self.page.remove_listener(event, listener)
        else:
            self.page.close()
        assert not self.troubles, self.troubles


@pytest.fixture
def visit(request):
    """visit(server_url, path) returns a Visit. All visits of a test share a browser profile with
    empty storage, which is `context` if the test asks for that.

    Tests whose visits begin with a blank page of the server share one profile, which is emptied
    after each; alone=True: a new one, for tests that change more than storage.
    """
    opened, context, shared = [], None, None

    def open_one(server, path=BLANK_PAGE, start=True, alone=False):
        nonlocal context, shared
        page = None
        if context is None and path == BLANK_PAGE and start and not alone:
            if "context" not in request.fixturenames:
                shared = request.getfixturevalue("profile_of_visits")
                context, page = shared.take(server)
        context = context or request.getfixturevalue("context")
        if shared:
            shared.visited(server, path)
        one = Visit(context, server + path, page)
        opened.append(one)
        return one.start() if start else one

    yield open_one
    try:
        for one in reversed(opened):
            if not one.closed and not one.page.is_closed():
                if shared:
                    shared.left(one.page.url)
                one.close()
    except BaseException:
        if shared:
            shared.close()
        raise
    if shared:
        shared.give_back()


def greedy(visit, model, options=None, prompt="Once upon a time", **fields):
    """Loads a pipeline, generates 12 tokens greedily and disposes of it; returns {ids,
    text, info}.
    """
    return visit.run(
        """
            const p = await ew.pipeline("text-generation", arg.model, arg.options);
            const ids = [];
            const [{ generated_text }] = await p(arg.prompt, {
              max_new_tokens: 12,
              do_sample: false,
              ...arg.fields,
              streamer: { put: (x) => ids.push(...x), end() {} },
            });
            await p.dispose();
            return { ids, text: generated_text, info: p.info, stats: p.stats };
        """,
        {"model": model, "options": options or {}, "prompt": prompt, "fields": fields},
    )


def edit_package(package, change):
    """Returns the package with a changed manifest and a correct checksum of it.

    change(manifest) modifies the manifest, or returns bytes to use instead of its JSON.
    """
    from edgewise.logic.manifest.package import signed

    length = int.from_bytes(package[8:16], "little")
    manifest = json.loads(package[16 : 16 + length])
    data = package[-(-(16 + length) // 64) * 64 :]
    text = change(manifest)
    if not text:
        rest = {k: v for k, v in manifest.items() if k != "manifest_sha256"}
        text = signed(
            json.dumps({"manifest_sha256": "0" * 64, **rest}, separators=(",", ":")).encode()
        )
    head = b"EDGEWISE" + len(text).to_bytes(8, "little") + text
    return head + bytes(-len(head) % 64) + data
