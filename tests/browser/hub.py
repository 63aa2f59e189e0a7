"""A model hub and its CDN, each on an origin of its own.

The hub lists files as the API of huggingface.co does and redirects large files to the CDN. The CDN
refuses preflight requests and exposes few headers. Both count what they send.
"""

import hashlib
import http.server
import json
import re
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

from .faulty import EXPOSED

ID = "someone/tiny"
GRAPH = "onnx/model_q4.onnx"
LARGE = 50_000  # files from this size on are in the CDN


def git_oid(data):
    """The name that git gives to a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """A hub with one model.

    `files`: contents by path. `page`: entries of a page of the listing. `listing`: whether there is
    one. `cuts`: number of responses of the CDN that still break off, after `cut_after` bytes each.
    `latency`: seconds before each answer of the CDN.

    Counted: `asked`, pairs of a path (on the hub, or `cdn/` and the path in the model) and
    the `Range` header of a request; `sent`, bytes by path; `preflights`; `most`, the most
    simultaneous responses of the CDN.
    """

    def __init__(self, files):
        self.files = dict(files)
        self.page, self.listing = 1000, True
        self.cuts, self.cut_after, self.latency = 0, 0, 0
        self.asked, self.sent, self.preflights, self.most = [], {}, 0, 0
        self._open, self._lock = 0, threading.Lock()
        self._servers = [self._serve(self._hub), self._serve(self._cdn)]
        self.url, self.cdn = (f"http://localhost:{s.server_address[1]}/" for s in self._servers)

    def close(self):
        for server in self._servers:
            server.shutdown()

    def forget(self):
        """Begins to count anew."""
        self.asked, self.sent, self.preflights, self.most = [], {}, 0, 0

    def resolved(self, path, revision="main"):
        return f"{self.url}{ID}/resolve/{revision}/{path}"

    def _serve(self, answer):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_OPTIONS(self):
                outer.preflights += 1
                self.reply(403)

            def do_GET(self):
                try:
                    answer(self)
                except OSError:
                    pass  # the page closed the connection

            def reply(self, status, body=b"", **headers):
                self.send_response(status)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Cache-Control", "no-store")
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

        server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def _note(self, request, path):
        with self._lock:
            self.asked.append((path, request.headers.get("Range")))

    def _hub(self, request):
        where = urlsplit(request.path)
        path = unquote(where.path[1:])
        self._note(request, path)
        if path == f"api/models/{ID}/tree/main" and self.listing:
            return self._list(request, parse_qs(where.query))
        name = path.removeprefix(f"{ID}/resolve/main/")
        data = self.files.get(name)
        if data is None or name == path:
            return request.reply(404, b"not here")
        if len(data) >= LARGE:
            return request.reply(302, Location=f"{self.cdn}{name}")
        self.sent[name] = self.sent.get(name, 0) + len(data)
        return request.reply(
            200, data, ETag=f'"{git_oid(data)}"', Access_Control_Expose_Headers="ETag"
        )

    def _list(self, request, query):
        assert query["recursive"] == ["true"]
        begin = int(query.get("cursor", ["0"])[0])
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "onnx"}]
        for path, data in self.files.items():
            entry = {"type": "file", "oid": git_oid(data), "size": len(data), "path": path}
            if len(data) >= LARGE:
                oid = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 134}
                entry["xetHash"] = "f" * 64
            entries.append(entry)
        headers = {"Access_Control_Expose_Headers": "Link"}
        end = begin + self.page
        if end < len(entries):
            tree = f"{self.url}api/models/{ID}/tree/main?recursive=true&cursor={end}"
            headers["Link"] = f'<{tree}>; rel="next"'
        return request.reply(200, json.dumps(entries[begin:end]).encode(), **headers)

    def _cdn(self, request):
        path = unquote(request.path[1:])
        self._note(request, f"cdn/{path}")
        data = self.files[path]
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or "")
        begin = int(found[1]) if found else 0
        end = min(int(found[2]) + 1, len(data)) if found and found[2] else len(data)
        with self._lock:
            cut = self.cuts > 0 and end - begin > self.cut_after
            self.cuts -= cut
            self._open += 1
            self.most = max(self.most, self._open)
        try:
            time.sleep(self.latency)
            request.send_response(206 if found else 200)
            for name, value in {
                "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
                "Content-Length": str(end - begin),
                "Access-Control-Allow-Origin": "*",
                "Access-Control-Expose-Headers": EXPOSED,
                **({"Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"} if found else {}),
            }.items():
                request.send_header(name, value)
            request.end_headers()
            self._send(request, path, begin, begin + self.cut_after if cut else end)
            if cut:
                time.sleep(1)  # the browser discards what it has not read when a connection breaks
                request.close_connection = True
        finally:
            with self._lock:
                self._open -= 1

    def _send(self, request, path, begin, end):
        for at in range(begin, end, 1 << 20):
            part = self.files[path][at : min(at + (1 << 20), end)]
            request.wfile.write(part)
            with self._lock:
                self.sent[path] = self.sent.get(path, 0) + len(part)
