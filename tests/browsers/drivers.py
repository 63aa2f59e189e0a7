"""Chromium, Firefox and WebKitGTK behind one interface.

A browser opens tabs; each tab has a new profile with empty storage, and evaluates functions in a
page. Chromium is controlled by Playwright, Firefox by WebDriver BiDi (implemented here), WebKitGTK
by WebKitWebDriver on an Xvfb display.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from .websocket import WebSocket

FIREFOX = os.environ.get("FIREFOX", "/usr/bin/firefox-esr")
WEBKIT_DRIVER = os.environ.get("WEBKIT_DRIVER", "/usr/bin/WebKitWebDriver")
START = 240  # seconds for the start of a browser
PREFERENCES = {  # preferences of Firefox: no start page, and no background requests
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "browser.tabs.warnOnClose": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}


class BrowserError(Exception):
    """The browser or its driver failed or did not respond; not an error of the page."""


class Tab(Protocol):
    """A page in a profile with empty storage."""

    def open(self, url: str) -> None:
        """Loads a page and waits until it is complete."""

    def evaluate(self, function: str, argument: str, seconds: float) -> str:
        """Calls an async JavaScript function of one string; returns the string that it resolves to.

        Raises:
            BrowserError: it rejected, or did not settle within `seconds`.
        """

    def close(self) -> None:
        """Closes the page and deletes its profile."""


class Browser(Protocol):
    """A running browser."""

    name: str

    def tab(self) -> Tab:
        """Opens a tab in a new profile."""

    def close(self) -> None:
        """Ends the browser."""


def end(process: subprocess.Popen) -> None:
    """Ends a process that this module started."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def first_match(stream, pattern: str, what: str) -> str:
    """Waits for a line of a process's output that matches `pattern`; returns its first group.

    The remaining output is read and discarded.
    """
    found: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            match = re.search(pattern, line)
            if match:
                found.put(match[1])

    threading.Thread(target=read, daemon=True).start()
    try:
        return found.get(timeout=START)
    except queue.Empty:
        raise BrowserError(f"{what} did not start within {START} s") from None


# ---- Chromium ----


class Chromium:
    """Chromium with Playwright. browser: Playwright's object."""

    name = "chromium"

    def __init__(self, browser):
        self.browser = browser

    def tab(self) -> ChromiumTab:
        """As Browser.tab."""
        return ChromiumTab(self.browser.new_context())

    def close(self) -> None:
        """Does nothing: the browser is closed by its owner."""


class ChromiumTab:
    """As Tab."""

    def __init__(self, context):
        self.context, self.page = context, context.new_page()

    def open(self, url: str) -> None:
        """As Tab.open."""
        self.page.goto(url)

    def evaluate(self, function: str, argument: str, seconds: float) -> str:
        """As Tab.evaluate."""
        from playwright.sync_api import Error

        late = f"new Promise((_, no) => setTimeout(() => no(Error('TIMEOUT')), {1000 * seconds}))"
        try:
            return self.page.evaluate(f"(x) => Promise.race([({function})(x), {late}])", argument)
        except Error as e:
            raise BrowserError(str(e)) from None

    def close(self) -> None:
        """As Tab.close."""
        self.context.close()


# ---- Firefox ----


class Firefox:
    """Firefox with WebDriver BiDi.

    Args:
        private: all windows are private.
    """

    name = "firefox"

    def __init__(self, private: bool = False):
        self.profile = tempfile.mkdtemp(prefix="edgewise-firefox-")
        settings = {**PREFERENCES, "browser.privatebrowsing.autostart": private}
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in settings.items()]
        Path(self.profile, "user.js").write_text("\n".join(lines))
        self.process = subprocess.Popen(
            [FIREFOX, "--headless", "--no-remote", "--profile", self.profile]
            + ["--remote-debugging-port", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": self.profile, "MOZ_CRASHREPORTER_DISABLE": "1"},
        )
        try:
            url = first_match(self.process.stderr, r"BiDi listening on (ws://\S+)", "Firefox")
            self.socket = WebSocket(url + "/session", START)
            self.number = 0
            self.call("session.new", {"capabilities": {}}, START)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, params: dict, seconds: float = 30) -> dict:
        """Sends a command of WebDriver BiDi; returns its result."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        until = time.monotonic() + seconds
        while True:
            try:
                answer = json.loads(self.socket.receive(max(0.1, until - time.monotonic())))
            except TimeoutError:
                raise BrowserError(f"{method} did not end within {seconds} s") from None
            if answer.get("id") != self.number:
                continue  # an event, or the response to a cancelled call
            if answer["type"] == "error":
                raise BrowserError(f"{method}: {answer['error']}: {answer['message'][:1000]}")
            return answer["result"]

    def tab(self) -> FirefoxTab:
        """As Browser.tab."""
        return FirefoxTab(self)

    def close(self) -> None:
        """As Browser.close."""
        end(self.process)
        shutil.rmtree(self.profile, ignore_errors=True)


class FirefoxTab:
    """As Tab."""

    def __init__(self, browser: Firefox):
        self.call = browser.call
        self.user = self.call("browser.createUserContext", {})["userContext"]
        params = {"type": "tab", "userContext": self.user}
        self.context = self.call("browsingContext.create", params)["context"]

    def open(self, url: str) -> None:
        """As Tab.open."""
        params = {"context": self.context, "url": url, "wait": "complete"}
        self.call("browsingContext.navigate", params)

    def evaluate(self, function: str, argument: str, seconds: float) -> str:
        """As Tab.evaluate."""
        result = self.call(
            "script.callFunction",
            {
                "functionDeclaration": function,
                "arguments": [{"type": "string", "value": argument}],
                "awaitPromise": True,
                "target": {"context": self.context},
            },
            seconds,
        )
        if result["type"] == "exception":
            raise BrowserError(result["exceptionDetails"]["text"])
        return result["result"]["value"]

    def close(self) -> None:
        """As Tab.close."""
        self.call("browser.removeUserContext", {"userContext": self.user})


# ---- WebKitGTK ----


def mini_browser() -> str | None:
    """Path of WebKitGTK's MiniBrowser, or None if it is not installed."""
    found = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    return str(found[-1]) if found else None


class WebKit:
    """WebKitGTK with WebKitWebDriver. Each tab is a session with its own browser process."""

    name = "webkit"

    def __init__(self):
        self.processes: list[subprocess.Popen] = []
        try:
            # Safari shares memory with the threads of isolated pages; WebKitGTK must be asked to.
            env = {**os.environ, "JSC_useSharedArrayBuffer": "1"}
            if not env.get("DISPLAY"):
                display = subprocess.Popen(
                    ["Xvfb", "-displayfd", "1", "-screen", "0", "1024x768x24", "-nolisten", "tcp"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                self.processes.append(display)
                env["DISPLAY"] = ":" + first_match(display.stdout, r"^(\d+)", "Xvfb")
            self.url = ""
            self.env = env
            self._start_driver()
        except BaseException:
            self.close()
            raise

    def _start_driver(self) -> None:
        import socket

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        driver = subprocess.Popen(
            [WEBKIT_DRIVER, f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.env,
        )
        self.processes.append(driver)
        self.url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + START
        while True:
            try:
                self.call("GET", "/status")
                return
            except OSError:
                if time.monotonic() > until or driver.poll() is not None:
                    raise BrowserError("WebKitWebDriver did not start") from None
                time.sleep(0.1)

    def call(self, method: str, path: str, body: dict | None = None, seconds: float = 60) -> Any:
        """Sends a command of WebDriver; returns its value."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise BrowserError(f"{path}: {e.read().decode(errors='replace')[:1000]}") from None
        except TimeoutError:
            raise BrowserError(f"{path} did not end within {seconds} s") from None

    def tab(self) -> WebKitTab:
        """As Browser.tab."""
        return WebKitTab(self)

    def close(self) -> None:
        """As Browser.close."""
        for process in reversed(self.processes):
            end(process)


class WebKitTab:
    """As Tab."""

    def __init__(self, browser: WebKit):
        self.call = browser.call
        options = {"binary": mini_browser(), "args": ["--automation"]}
        wanted = {"webkitgtk:browserOptions": options}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}}, START)
        self.session = "/session/" + session["sessionId"]

    def open(self, url: str) -> None:
        """As Tab.open."""
        self.call("POST", self.session + "/url", {"url": url})

    def evaluate(self, function: str, argument: str, seconds: float) -> str:
        """As Tab.evaluate."""
        self.call("POST", self.session + "/timeouts", {"script": int(1000 * seconds)})
        script = (
            "const [x, done] = arguments;"
            f"({function})(x).then((v) => done([v]), (e) => done(['', String(e)]));"
        )
        body = {"script": script, "args": [argument]}
        path = self.session + "/execute/async"
        value, *error = self.call("POST", path, body, seconds + 10)
        if error:
            raise BrowserError(error[0])
        return value

    def close(self) -> None:
        """As Tab.close."""
        self.call("DELETE", self.session)


def missing(name: str) -> str | None:
    """The reason why a browser cannot be used here, or None.

    Raises:
        BrowserError: the browser is missing where CI=1 says that all of them must be tested.
    """
    needed = {
        "firefox": {FIREFOX: "firefox-esr"},
        "webkit": {
            WEBKIT_DRIVER: "webkit2gtk-driver",
            "Xvfb": "xvfb",
            mini_browser() or "MiniBrowser": "webkit2gtk-driver",
        },
    }.get(name, {})
    absent = [
        f"{what} (Debian package {package})"
        for what, package in needed.items()
        if not (shutil.which(what) or os.path.exists(what))
    ]
    if not absent:
        return None
    reason = f"{name} is not installed: {', '.join(absent)} is missing"
    if os.environ.get("CI") in ("1", "true"):
        raise BrowserError(reason)
    return reason
