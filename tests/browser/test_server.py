"""The demo's server (web/demo/serve.mjs) answers malformed requests and keeps working."""

import re
import socket
import subprocess

import pytest

from .conftest import WEB


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "a.txt").write_text("0123456789")
    (folder / "empty.txt").write_text("")
    (folder / "sub").mkdir()
    (folder / "sub" / "index.html").write_text("<p>")
    (folder.parent / "secret.txt").write_text("classified")
    process = subprocess.Popen(
        [
            "node",
            "demo/serve.mjs",
            "--port",
            "0",
            "--host",
            "127.0.0.1",
            "--mount",
            f"/m={folder}",
            "--faults",
        ],
        cwd=WEB,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    port = None
    for line in process.stdout:
        if found := re.search(r"http://localhost:(\d+)", line):
            port = int(found[1])
            break
    yield port
    assert process.poll() is None, process.stderr.read()
    process.kill()


def ask(port, request: bytes) -> bytes:
    """Sends these bytes; returns the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=240) as s:
        s.sendall(request)
        answer = b""
        try:
            while part := s.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def get(port, path, headers=()) -> tuple[int, bytes]:
    """Sends a GET; returns (status, complete response)."""
    head = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    answer = ask(port, "\r\n".join([*head, "", ""]).encode("latin-1"))
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0, answer


@pytest.mark.parametrize(
    "path, status",
    [
        ("/m/a.txt", 200),
        ("/%00", 400),
        ("/m/%00a.txt", 400),
        ("/m/a.txt%00", 400),
        ("/%", 400),
        ("/%zz", 400),
        ("/%c3%28", 400),
        ("/%ff%fe", 400),
        ("/m/a%0d%0aX-Evil:%201", 400),
        ("/m/..%5c..%5csecret.txt", 400),
        ("/m/../../secret.txt", 404),
        ("/m/%2e%2e/%2e%2e/secret.txt", 404),
        ("/m/..%2f..%2fsecret.txt", 404),
        ("/m/..%2fsecret.txt", 404),
        ("/" + "a" * 5000, 404),
        ("/m/a.txt/", 404),
        ("/m/a.txt/b", 404),
        ("/m/sub", 302),
        ("http://elsewhere.example/m/a.txt", 200),
        ("http://[::1/m/a.txt", 400),
        ("*", 404),
        ("//elsewhere.example/m", 404),
        ("/m//sub", 302),
        ("/m/empty.txt", 200),
        ("/m/a.txt?fault=status:0", 400),
        ("/m/a.txt?fault=status:99999", 400),
        ("/m/a.txt?fault=status:x", 400),
        ("/?" + "&" * 3000, 302),
    ],
)
def test_paths(server, path, status):
    got, answer = get(server, path)
    assert got == status, answer[:200]
    assert b"classified" not in answer and b"X-Evil" not in answer.split(b"\r\n\r\n")[0]
    location = re.search(rb"Location: (.*)\r\n", answer)
    assert location is None or re.match(rb"/[^/]", location[1]), location
    assert get(server, "/m/a.txt")[0] == 200


@pytest.mark.parametrize(
    "value, status",
    [
        ("bytes=0-3", 206),
        ("bytes=-3", 206),
        ("bytes=5-", 206),
        ("bytes=99999999999999999999999-", 416),
        ("bytes=9-2", 416),
        ("bytes=-99999999999999999999", 206),
        ("bytes=-0", 416),
        ("bytes=-", 200),
        ("bytes=a-b", 200),
        ("bytes=0-3,5-6", 200),
        ("lines=0-3", 200),
        ("bytes=0-99999999999999999999", 206),
        ("bytes=" + "9" * 4000 + "-", 416),
        ("bytes=1-1-1", 200),
    ],
)
def test_ranges(server, value, status):
    got, answer = get(server, "/m/a.txt", [f"Range: {value}"])
    assert got == status, answer[:200]
    assert get(server, "/m/empty.txt", [f"Range: {value}"])[0] in (200, 416)


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /m/a.txt HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /m/a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_invalid_http(server, request_):
    if b"websocket" not in request_:
        answer = ask(server, request_)
        assert answer == b"" or answer.split(b" ", 2)[1][:1] in (b"4", b"5"), answer[:200]
    else:
        with socket.create_connection(("127.0.0.1", server), timeout=240) as s:
            s.sendall(request_)
            assert s.recv(100).startswith(b"HTTP/1.1")
    assert get(server, "/m/a.txt")[0] == 200


def test_an_interrupted_connection(server):
    for request_ in (b"GET /m/a.txt HTT", b"GET /m/a.txt HTTP/1.1\r\nHost: x\r\n", b""):
        with socket.create_connection(("127.0.0.1", server), timeout=240) as s:
            s.sendall(request_)
    assert get(server, "/m/a.txt")[0] == 200
