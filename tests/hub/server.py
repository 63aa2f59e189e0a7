"""A server with the addresses and headers of the Hugging Face Hub, for one folder of models.

Large files are answered with a redirect, as the Hub's storage of large files does, and the headers
say of which commit a file is.
"""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a"
LARGE = 100_000  # bytes


@dataclass
class Hub:
    """A running server.

    Attributes:
        requests: (method, path, Authorization header) of each request.
        private: ids of models that are found only with the token.
    """

    root: Path
    token: str = "hf_secret"
    private: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def __enter__(self):
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def downloads(self):
        """Names of the files whose contents were sent."""
        return [path.rsplit("/", 1)[-1] for method, path, _ in self.requests if method == "FILE"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = self.path.split("?")[0]
        self.hub.requests.append((self.command, path, self.headers["Authorization"]))
        parts = path.strip("/").split("/")
        if parts[0] == "storage":
            return self.send_file(self.hub.root.joinpath(*parts[1:]), path)
        model = parts[2:4] if parts[0] == "api" else parts[:2]
        folder = self.hub.root.joinpath(*model)
        allowed = self.headers["Authorization"] == f"Bearer {self.hub.token}"
        if not folder.is_dir() or ("/".join(model) in self.hub.private and not allowed):
            return self.refuse(401, "RepoNotFound")
        revision = parts[5] if parts[0] == "api" else parts[3]
        if revision not in ("main", COMMIT):
            return self.refuse(404, "RevisionNotFound")
        if parts[0] == "api":
            return self.send_listing(folder, "/".join(model), parts[4])
        file = folder.joinpath(*parts[4:])
        if not file.is_file():
            return self.refuse(404, "EntryNotFound")
        return self.send_file(file, path)

    def send_listing(self, folder, model, kind):
        files = [f for f in sorted(folder.rglob("*")) if f.is_file()]
        names = [f.relative_to(folder).as_posix() for f in files]
        if kind == "tree":
            answer = [
                {"type": "file", "oid": "0" * 40, "size": f.stat().st_size, "path": name}
                for f, name in zip(files, names)
            ]
        else:
            siblings = [{"rfilename": name} for name in names]
            answer = {"id": model, "modelId": model, "sha": COMMIT, "siblings": siblings}
        self.send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def send_file(self, file, path):
        data = file.read_bytes()
        etag = hashlib.sha256(data).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}
        if len(data) > LARGE and not path.startswith("/storage/"):
            location = f"/storage/{file.relative_to(self.hub.root).as_posix()}"
            linked = {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data))}
            return self.send(302, {**headers, **linked, "Location": location}, b"")
        if self.command == "GET":
            self.hub.requests.append(("FILE", path, None))
        return self.send(200, headers, data)

    def refuse(self, status, code):
        headers = {"X-Error-Code": code, "X-Error-Message": code}
        self.send(status, {**headers, "X-Repo-Commit": COMMIT}, b"{}")

    def send(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass
