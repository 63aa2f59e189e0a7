"""Pages with the service worker: without a network, isolated without headers, and never stale."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from .site import ISOLATION, Site

WRITE = """
    async () => {
      const { pipeline } = await import("/edgewise.js");
      const write = await pipeline("text-generation", "/demo/model.edge", { cache_files: true });
      const [{ generated_text: text }] = await write("Once", {
        max_new_tokens: 8,
        do_sample: false,
      });
      const { threads } = write.info;
      await write.dispose();
      return { text, threads };
    }
"""


@pytest.fixture
def site(built: None, tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path, dict(ISOLATION))
    yield one
    one.close()


@pytest.fixture
def plain_site(built: None, tmp_path: Path) -> Iterator[Site]:
    """A server that sends no headers."""
    one = Site(tmp_path, {})
    yield one
    one.close()


def troubles_of(page: Page) -> list[str]:
    """The uncaught errors of a page, from now on."""
    found: list[str] = []
    page.on("pageerror", lambda e: found.append(str(e)))
    return found


def open_demo(context: BrowserContext, site: Site) -> Page:
    """The demo, when it has written its first story and is kept."""
    page = context.new_page()
    page.goto(f"{site.url}/demo/?seed=1&max_new_tokens=40")
    page.wait_for_selector("#offline:not([hidden])")
    return page


def test_the_demo_without_its_server(context: BrowserContext, site: Site) -> None:
    """The second visit needs no server: the same story, with threads, and it still learns."""
    page = open_demo(context, site)
    story = page.inner_text("#story")
    site.stop()
    troubles = troubles_of(page)
    for address in (page.url, f"{site.url}/demo/?seed=1&max_new_tokens=40&write=1"):
        page.goto(address)
        page.wait_for_function("document.body.dataset.written")
        assert page.inner_text("#story") == story
        page.wait_for_selector("#offline:not([hidden])")  # it stays kept
        assert "2 threads" in page.inner_text("#status") or page.evaluate(
            "navigator.hardwareConcurrency < 2"
        )
    print(
        f"server stopped: first token after {page.evaluate('document.body.dataset.firstToken')} ms"
    )
    page.click("#sample")
    page.focus("#teach")
    page.keyboard.press("Enter")
    page.wait_for_function("+document.body.dataset.step >= 2")
    assert page.evaluate("document.activeElement.id") == "end"
    page.keyboard.press("Enter")
    page.wait_for_selector("#compare:not([hidden])")
    assert page.evaluate("document.activeElement.id") == "teach"
    assert not troubles
    page.goto(f"{site.url}/demo/see.html")  # a room that was never visited
    page.wait_for_function(
        "document.getElementById('status').textContent.includes('ready') || !error.hidden"
    )
    assert page.is_hidden("#error"), page.inner_text("#error")
    page.click("#use-samples")
    page.wait_for_function("document.getElementById('figure-examples').textContent === '15'")


def test_nothing_leaves_the_demo(context: BrowserContext, site: Site) -> None:
    """After loading, writing and learning request nothing, and a policy that forbids all
    connections changes nothing.
    """
    page = open_demo(context, site)
    page.evaluate("""() => {
        window.violations = [];
        addEventListener("securitypolicyviolation", (e) => violations.push(e.blockedURI));
        const policy = document.createElement("meta");
        policy.httpEquiv = "Content-Security-Policy";
        policy.content = "connect-src 'none'; img-src 'none'; form-action 'none'";
        document.head.append(policy);
    }""")
    assert page.evaluate("fetch('/blank.html').then(() => 'sent', () => 'refused')") == "refused"
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    before = len(site.log)
    page.evaluate("violations.length = 0")
    page.click("#generate")
    page.wait_for_function("+document.body.dataset.written >= 2")
    page.click("#sample")
    page.click("#teach")
    page.wait_for_function("+document.body.dataset.step >= 2")
    page.click("#end")
    page.wait_for_selector("#compare:not([hidden])")
    page.wait_for_function("document.querySelector('#after').textContent")
    assert requests == [] and site.log[before:] == []
    assert page.evaluate("violations") == []


def test_isolated_without_headers(context: BrowserContext, plain_site: Site) -> None:
    """The service worker makes a page isolated, with one reload; its worker has threads."""
    page = context.new_page()
    page.goto(f"{plain_site.url}/blank.html")
    assert not page.evaluate("crossOriginIsolated")
    # the page reloads while it waits
    page.evaluate("void import('/offline.js').then((m) => m.registerServiceWorker('/sw.js'))")
    page.wait_for_function("crossOriginIsolated")
    assert (
        page.evaluate("""async () => {
        const { registerServiceWorker } = await import("/offline.js");
        return (await registerServiceWorker("/sw.js")).scope;
    }""")
        == f"{plain_site.url}/"
    )
    assert plain_site.asked("/blank.html") == 2
    assert page.evaluate(WRITE)["threads"] >= min(2, page.evaluate("navigator.hardwareConcurrency"))


def test_files_are_never_stale(context: BrowserContext, site: Site) -> None:
    """A kept page shows a changed file on the next visit, and an update of the service worker
    reloads nothing.
    """
    page = open_demo(context, site)
    style, worker, index = (site.folder / n for n in ("demo/demo.css", "sw.js", "demo/index.html"))
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    keys = "caches.keys().then((all) => all.filter((name) => name.startsWith('edgewise offline')))"
    first = page.evaluate(keys)
    style.write_text(style.read_text() + "\nhtml { background: rgb(1, 2, 3) !important; }")
    index.write_text(index.read_text().replace("<h1>Edgewise</h1>", "<h1>Changed</h1>"))
    worker.write_text(worker.read_text() + "\n// another version")
    os.utime(site.folder / "demo/model.edge", (0, 1_700_000_000))
    for _ in range(2):
        visits = site.asked("/demo/")
        page.reload()
        assert page.evaluate(colour) == "rgb(1, 2, 3)" and page.inner_text("h1") == "Changed"
        page.wait_for_selector("#offline:not([hidden])")
        # one for the visit, and one to refresh the copy
        assert site.asked("/demo/") - visits <= 2
    models = page.evaluate("import('/edgewise.js').then(({ models }) => models.list())")
    assert len(models) == 1 and "2023" in models[0]["id"]
    second = page.evaluate(keys)
    assert len(first) == len(second) == 1 and first != second
    replaced = "navigator.serviceWorker.getRegistration().then(({ waiting }) => !waiting)"
    for _ in range(60):  # the browser may notice a second late that no page is open any more
        page.goto("about:blank")  # no page of the old version is open: it is replaced
        page.wait_for_timeout(500)
        page = open_demo(context, site)
        if page.evaluate(replaced):
            break
    assert page.evaluate(replaced)
    site.stop()
    page.reload()
    page.wait_for_function("document.body.dataset.written")
    assert page.evaluate(colour) == "rgb(1, 2, 3)" and page.inner_text("h1") == "Changed"


def test_models_do_not_pass_through(context: BrowserContext, site: Site) -> None:
    """Files of models, and parts of files, come straight from the server and are not kept twice.
    Chromium finds nothing that prevents installation of the demo.
    """
    page = open_demo(context, site)
    session = context.new_cdp_session(page)
    assert session.send("Page.getAppManifest")["errors"] == []
    found = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [e["errorId"] for e in found if e["errorId"] != "in-incognito"] == []
    page.reload()  # the first visit had no service worker yet
    page.wait_for_selector("#offline:not([hidden])")
    passed = {}
    page.on("response", lambda r: passed.update({r.url.split("?")[1]: r.from_service_worker}))
    page.evaluate("""async () => {
        await (await fetch("model.edge?model")).arrayBuffer();
        await (await fetch("demo.css?range", { headers: { Range: "bytes=0-9" } })).arrayBuffer();
        await (await fetch("demo.css?whole")).arrayBuffer();
    }""")
    assert passed == {"model": False, "range": False, "whole": True}
    kept = page.evaluate("""async () => {
        const [name] = await caches.keys();
        return (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname);
    }""")
    assert {"/demo/", "/edgewise.js", "/worker.js", "/demo/demo.js", "/demo/demo.css"} <= set(kept)
    assert not [path for path in kept if path.endswith((".edge", ".onnx"))]
    assert [path for path in kept if path.endswith(".wasm")]


def test_the_engine_for_large_models(context: BrowserContext, site: Site) -> None:
    """It is kept where the storage has so much that a model may need it."""
    page = context.new_page()
    page.goto(f"{site.url}/blank.html")
    page.evaluate(WRITE)
    page.evaluate("import('/offline.js').then((m) => m.registerServiceWorker('/sw.js'))")
    for usage, wide in ((10**9, False), (4 * 10**9, True)):
        kept = page.evaluate(
            """async (usage) => {
                const { keepOffline } = await import("/offline.js");
                navigator.storage.estimate = async () => ({ usage });
                await keepOffline();
                const names = await caches.keys();
                const all = names.map(async (name) => (await caches.open(name)).keys());
                return (await Promise.all(all)).flat().map(({ url }) => url);
            }""",
            usage,
        )
        assert any("relaxed-threads-64.wasm" in url for url in kept) == wide, kept


def test_a_page_that_is_not_isolated_is_kept(context: BrowserContext, plain_site: Site) -> None:
    """Its engine has no file of its own: `npm pack` leaves it out."""
    for engine in (plain_site.folder / "engine").glob("edgewise-simd128*.wasm"):
        if "threads" not in engine.name:
            engine.unlink()
    # a browser without relaxed SIMD, which takes this build
    context.add_init_script("""
        const { validate } = WebAssembly;
        WebAssembly.validate = (code) => code.length !== 36 && validate(code);
    """)
    page = context.new_page()
    page.goto(f"{plain_site.url}/blank.html")
    kept = page.evaluate("""async () => {
        const { registerServiceWorker, keepOffline } = await import("/offline.js");
        await registerServiceWorker("/sw.js", { isolate: false });
        const script = document.createElement("script");
        Object.assign(script, { type: "module", src: "/worker.js" });
        document.head.append(script);
        await new Promise((resolve) => (script.onload = script.onerror = resolve));
        await keepOffline();
        const [name] = await caches.keys();
        return (await (await caches.open(name)).keys()).map(({ url }) => url);
    }""")
    engines = [url.rsplit("/", 1)[1] for url in kept if url.endswith(".wasm")]
    assert engines == ["edgewise-simd128-threads.wasm"], kept


def test_errors_and_forgetting(context: BrowserContext, site: Site) -> None:
    """Missing files are errors that keep the earlier copies; forgetting removes everything."""
    page = context.new_page()
    page.goto(f"{site.url}/blank.html")
    result = page.evaluate("""async () => {
        const { forgetOffline, keepOffline, registerServiceWorker } = await import("/offline.js");
        const failed = (work) => work.then(() => "no error", (e) => `${e.name}: ${e.message}`);
        const early = await failed(keepOffline());
        const missing = await failed(registerServiceWorker("/none.js"));
        await registerServiceWorker("/sw.js");
        const kept = await keepOffline(["/demo/demo.css"]);
        const again = await keepOffline();
        const gone = await failed(keepOffline(["/none.css"]));
        const before = await caches.keys();
        const forgotten = await forgetOffline();
        return { early, missing, kept, again, gone, before, forgotten, after: await caches.keys() };
    }""")
    assert result["early"].startswith("StorageError") and "sw.js" in result["early"]
    assert result["missing"].startswith("StorageError") and "none.js" in result["missing"]
    assert result["kept"] == {"files": 3, "changed": True}
    assert result["again"] == {"files": 3, "changed": False}
    assert "none.css: HTTP 404" in result["gone"] and "intact" in result["gone"]
    assert len(result["before"]) == 1 and result["forgotten"] and result["after"] == []
