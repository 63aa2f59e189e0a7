"""A plain static server for pages that must do without it: it can be stopped, started again on its
port, and asked for what was requested.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from pathlib import Path

from .conftest import BLANK, WEB

ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
PARTS = ("edgewise.js", "worker*.js", "phonemes.js", "offline.js", "sw.js", "engine", "demo")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folder of its Site."""

    extensions_map = {
        ".html": "text/html",
        ".js": "text/javascript",
        ".css": "text/css",
        ".wasm": "application/wasm",
        ".svg": "image/svg+xml",
        ".png": "image/png",
        ".webmanifest": "application/manifest+json",
    }

    def __init__(self, *arguments: object, site: Site):
        self.site = site
        super().__init__(*arguments, directory=str(site.folder))

    def log_message(self, *_: object) -> None:
        self.site.log.append(self.path)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        for name, value in self.site.headers.items():
            self.send_header(name, value)
        super().end_headers()


class Site:
    """A copy of web/dist on a server.

    log: the path of each request; headers: sent with each response.
    """

    def __init__(self, folder: Path, headers: dict[str, str]):
        self.folder, self.headers, self.log = folder, headers, []
        for source in (path for name in PARTS for path in (WEB / "dist").glob(name)):
            if source.is_dir():
                shutil.copytree(source, folder / source.name)
            else:
                shutil.copy(source, folder)
        (folder / "blank.html").write_text(BLANK)
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def start(self) -> None:
        """Starts the server, on the same port as before."""
        handler = functools.partial(Handler, site=self)
        self.server = http.server.ThreadingHTTPServer(("localhost", self.port), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.running = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Refuses connections from now on."""
        self.server.shutdown()
        self.server.server_close()
        self.running = False

    def close(self) -> None:
        """Ends the server, if it runs."""
        if self.running:
            self.stop()

    def asked(self, path: str) -> int:
        """How often a path was requested, whatever its query."""
        return sum(one.split("?")[0] == path for one in self.log)
