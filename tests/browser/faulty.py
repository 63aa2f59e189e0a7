"""A server of another origin with injectable faults: /FAULT/AMOUNT/name.

It can also redirect to itself, as model hubs redirect to their CDNs.
"""

import http.server
import re
import threading
import time

# Response headers that the CDN of a model hub exposes to pages of other origins.
EXPOSED = "Content-Range, Content-Type, Content-Disposition, ETag"


class Faulty:
    """The server. `files`: contents by name; `asked`: (fault, Range header) of every GET. Faults:
    see `answer`.
    """

    def __init__(self, files):
        self.files, self.asked, self.options = files, [], []
        self._seen = {}
        self._stopping = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_OPTIONS(self):
                outer.options.append(self.headers.get("Access-Control-Request-Headers"))
                self.send_response(403)  # a preflight fails, as with such CDNs
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                try:
                    outer.answer(self)
                except OSError:
                    pass  # the page closed the connection

        self._server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._stopping.set()
        self._server.shutdown()

    # long: one branch for each fault
    def answer(self, request):
        _, fault, amount, name = request.path.split("?")[0].split("/", 3)
        header = request.headers.get("Range")
        self.asked.append((fault, header))
        if fault == "hub":
            request.send_response(302)
            request.send_header("Location", f"{self.url}/cdn/{amount}/{name}")
            request.send_header("Access-Control-Allow-Origin", "*")
            request.send_header("Content-Length", "0")
            return request.end_headers()
        if fault == "mute":
            return self._stopping.wait(120)
        if fault == "without":  # only the file named `amount` is missing
            if name == amount:
                return self._stopping.wait(120)
            request.send_response(200)
            kind = {"mjs": "text/javascript", "wasm": "application/wasm"}.get(
                name.rsplit(".")[-1], "application/octet-stream"
            )
            self._headers(request, {"Content-Type": kind, "ETag": '"one"'}, len(self.files[name]))
            return request.wfile.write(self.files[name])
        times = self._seen[request.path] = self._seen.get(request.path, 0) + 1
        whole, amount = self.files[name], int(amount)
        begin = int(re.fullmatch(r"bytes=(\d+)-", header)[1]) if header else None
        body, headers = whole, {"ETag": '"one"', "Accept-Ranges": "bytes"}
        status, cut, wait = 200, None, False
        if begin is not None:
            status, body = 206, whole[begin:]
            headers["Content-Range"] = f"bytes {begin}-{len(whole) - 1}/{len(whole)}"
        first, other = times == 1, bytes(x ^ 1 for x in body)
        if fault == "cdn" or fault == "cut":
            cut = amount if first else None
        elif fault in ("stall", "stall-once"):
            cut, wait = (max(0, amount - (begin or 0)) if first or fault == "stall" else None), True
        # each chunk is in time, but all of them take longer than any timeout
        elif fault == "trickle":
            request.send_response(status)
            self._headers(request, headers, len(body))
            for at in range(0, len(body), amount):
                request.wfile.write(body[at : at + amount])
                request.wfile.flush()
                time.sleep(0.4)
            return
        elif first:
            cut = amount
        elif (
            fault == "nameless-206" and begin is not None
        ):  # part of another version, without an ETag
            body, headers = other, {"Content-Range": headers["Content-Range"]}
        elif fault == "nameless-200":  # another version, without an ETag
            status, body, headers = 200, bytes(x ^ 1 for x in whole), {}
        elif fault == "changed-206" and begin is not None:
            body, headers["ETag"] = other, '"two"'
        elif fault == "longer-206" and begin is not None:
            headers["Content-Range"] = f"bytes {begin}-{len(whole) + 9}/{len(whole) + 10}"
            body += bytes(10)
        elif fault == "rangeless-206" and begin is not None:
            del headers["Content-Range"]
            body = whole[: len(body)]
        elif fault == "elsewhere-206" and begin is not None:
            headers["Content-Range"] = f"bytes 0-{len(body) - 1}/{len(whole)}"
            body = whole[: len(body)]
        request.send_response(status)
        self._headers(request, headers, len(body))
        request.wfile.write(body if cut is None else body[:cut])
        request.wfile.flush()
        if cut is not None:
            if wait:
                self._stopping.wait(120)
            time.sleep(0.2)  # let the client read what was sent
            request.close_connection = True

    def _headers(self, request, headers, length):
        for name, value in {
            **headers,
            "Content-Length": str(length),
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Expose-Headers": EXPOSED,
            "Cache-Control": "no-store",
        }.items():
            request.send_header(name, value)
        request.end_headers()
