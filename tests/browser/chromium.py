"""Chromium as all tests start it, and a browser profile that tests use one after the other.

A new profile with a page of its own starts a process of the browser, which compiles the engine and
Pyodide anew: for most tests that takes longer than what they test.
"""

from __future__ import annotations

import os
import time
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Error, Page

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")  # path of another build, for comparisons

# The last --disable-features of a command line counts, so this repeats Playwright's. With the rest,
# a new page costs a third of the processor time: without them Chromium starts a process for the
# pages of its own address bar in each window, and one for a site that may be visited next.
FEATURES = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsUpgrades,"
    "HttpsFirstBalancedModeAutoEnable,LensOverlay,MediaRouter,PaintHolding,"
    "ThirdPartyStoragePartitioning,AvoidCorsURLLoaderRestartOnRedirect,OptimizationHints,"
    "NetworkTimeServiceQuerying,AimEnabled,PreconnectToSearch,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,SpareRendererForSitePerProcess"
)
QUIET = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FLAGS = [
    *QUIET,
    f"--disable-features={FEATURES}",
    "--host-resolver-rules=MAP insecure.test 127.0.0.1",
]
# A GPU in software.
GPU_FLAGS = [
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
]

BLANK_PAGE = "/files/blank.html"
# What a page finds of earlier tests.
FOUND = """
    async () => {
      const found = [];
      const root = await navigator.storage?.getDirectory?.();
      for await (const name of root?.keys() ?? []) found.push(`file ${name}`);
      for (const { name } of await indexedDB.databases()) found.push(`database ${name}`);
      for (const name of (await globalThis.caches?.keys()) ?? []) found.push(`cache ${name}`);
      for (const { name } of (await navigator.locks?.query())?.held ?? [])
        found.push(`lock ${name}`);
      if (await navigator.serviceWorker?.getRegistration()) found.push("service worker");
      if (localStorage.length || sessionStorage.length) found.push("local storage");
      return found;
    }
"""


# A process of the browser compiles WebAssembly once as long as some page of it has the module.
KEEP = """
    async (names) => {
      window.kept = [];
      for (const name of names) kept.push(await WebAssembly.compileStreaming(fetch(name)));
    }
"""
KEPT = ["/pyodide/pyodide.asm.wasm", "/engine/edgewise-relaxed-threads.wasm"]


class Profile:
    """The profile, with the page of the next test."""

    def __init__(self, browser: Browser):
        self.browser = browser
        self.context: BrowserContext | None = None
        self.page: Page | None = None
        self.origins: set[str] = set()
        self.spoiled, self.taken = False, 0

    def take(self, origin: str) -> tuple[BrowserContext, Page]:
        """The profile with empty storage, and an empty page, for a visit of a server."""
        if self.context is None:
            self.context = self.browser.new_context()
            self.page = self.context.new_page()
        self.taken += 1
        if self.taken == 2:
            keeper = self.context.new_page()
            keeper.goto(origin + BLANK_PAGE)
            keeper.evaluate(KEEP, KEPT)
        assert self.page is not None
        return self.context, self.page

    def visited(self, origin: str, path: str) -> None:
        """Notes what a test visits: other pages than the blank one may have service workers."""
        self.origins.add(origin)
        self.spoiled = self.spoiled or path != BLANK_PAGE

    def left(self, url: str) -> None:
        """Notes where a test has left its page."""
        parts = urlsplit(url)
        self.visited(f"{parts.scheme}://{parts.netloc}", parts.path)

    def give_back(self) -> None:
        """Empties the profile, or closes it if that is not certain."""
        try:
            if self.spoiled or not all(self.emptied(origin) for origin in self.origins):
                self.close()
        except Error:
            self.close()
        self.origins.clear()

    def emptied(self, origin: str) -> bool:
        """Removes what an origin has stored. Workers that were ended may still hold files."""
        assert self.context is not None and self.page is not None
        self.page.unroute_all()
        session = self.context.new_cdp_session(self.page)
        clear = {"origin": origin, "storageTypes": "all"}
        if self.page.url != origin + BLANK_PAGE:
            self.page.goto(origin + BLANK_PAGE)
        self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        until = time.monotonic() + 2
        while True:
            session.send("Storage.clearDataForOrigin", clear)
            if not self.page.evaluate(FOUND):
                break
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        session.detach()
        return True

    def close(self) -> None:
        """Ends the profile; the next test gets a new one."""
        if self.context is not None:
            self.context.close()
        self.context, self.page, self.spoiled, self.taken = None, None, False, 0
        self.origins.clear()
