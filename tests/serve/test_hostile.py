"""Requests that must be refused in words, clients that go away, and a full queue."""

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import threading
import time
import urllib.parse

import pytest
from coroutines import run

from . import environment  # noqa: F401

pytest.importorskip("uvicorn")

GOOD = {"model": "stories", "prompt": "Once", "max_tokens": 1, "temperature": 0}
TYPE = {"Content-Type": "application/json"}
CHAT = {"model": "stories", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


def send(server, body, path="/v1/completions", headers=TYPE, method="POST"):
    """(status, the error or the whole answer, headers)"""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, headers)
    answer = connection.getresponse()
    record = json.loads(answer.read())
    connection.close()
    return answer.status, record.get("error", record), answer.headers


@pytest.mark.parametrize(
    "body, words",
    [
        (b"", "invalid JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"a": ' + b"[" * 9000, "nested too deeply|invalid JSON"),
        (b'{"n": ' + b"9" * 6000 + b"}", "invalid JSON|unknown|no field"),
        (b"\xff\xfe", "not UTF-8"),
        ({**GOOD, "x" * 500: 1}, "there is no field"),
        ({**GOOD, "\ud800": 1}, "surrogate"),
        ({**GOOD, "prompt": "a\ud800"}, "surrogate"),
        ({**GOOD, "model": None}, "name a model"),
        ({**GOOD, "model": {"a": 1}}, "name a model"),
        ({**GOOD, "prompt": []}, "give a text"),
        ({**GOOD, "prompt": [[1, 2], [True]]}, "give a text"),
        ({**GOOD, "prompt": ["a"] * 17}, "at most 16"),
        ({**GOOD, "prompt": [-1]}, "vocabulary"),
        ({**GOOD, "prompt": [2**70]}, "vocabulary"),
        ({**GOOD, "n": 10**9}, "integer from 1 to 16"),
        ({**GOOD, "prompt": ["a"] * 4, "n": 5}, "20 sequences"),
        ({**GOOD, "max_tokens": 0}, "integer from 1"),
        ({**GOOD, "max_tokens": True}, "integer from 1 to 1073741824"),
        ({**GOOD, "temperature": "hot"}, "number from 0"),
        ({**GOOD, "temperature": float("nan")}, "number from 0"),
        ({**GOOD, "top_k": 1.5}, "integer from -1"),
        ({**GOOD, "seed": 2**64}, "integer from"),
        ({**GOOD, "stop": ["a"] * 17}, "at most 16 texts"),
        ({**GOOD, "stop": [""]}, "none empty"),
        ({**GOOD, "logit_bias": {"x": 1}}, "not a token id"),
        ({**GOOD, "logit_bias": {"5000": 1}}, "vocabulary"),
        ({**GOOD, "logprobs": 21}, "integer from 0 to 20"),
        ({**GOOD, "stream": "yes"}, "true or false"),
        ({**GOOD, "stream_options": [1]}, "not an object"),
        ({**GOOD, "echo": True}, "there is no `echo`"),
    ],
)
def test_refused_in_words(server, body, words):
    status, error, _ = send(server, body)
    assert status == 400 and error["type"] == "invalid_request_error"
    assert any(word in error["message"] for word in words.split("|")), error
    assert len(error["message"]) < 500


@pytest.mark.parametrize(
    "change, words",
    [
        ({"messages": "Hi"}, "give a list"),
        ({"messages": [{"content": "Hi"}]}, "has no role"),
        ({"messages": [{"role": "user", "content": None}]}, "no content of text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "else than text"),
        ({"tools": [{"type": "function"}]}, "its name is None"),
        ({"response_format": "json"}, "not an object"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"continue_final_message": True}, "nothing to continue"),
        ({"add_generation_prompt": False}, "opposite"),
        ({"top_logprobs": 2}, "needs `logprobs: true`"),
    ],
)
def test_refused_chats(server, change, words):
    status, error, _ = send(server, {**CHAT, **change}, "/v1/chat/completions")
    assert status == 400 and words in error["message"]


def test_refused_requests(server):
    for answer, expected in (
        (send(server, b" " * 30_000), (413, "20000 bytes")),
        (send(server, GOOD, headers={"Content-Type": "text/plain"}), (415, "Content-Type")),
        (
            send(server, GOOD, headers={**TYPE, "Host": "evil.example"}),
            (403, "is not 'evil.example'"),
        ),
        (send(server, GOOD, headers={**TYPE, "Origin": "https://evil.example"}), (403, "--origin")),
        (send(server, GOOD, "/v1/x"), (404, "there is no POST /v1/x")),
        (send(server, GOOD, method="PUT"), (405, "there is no PUT")),
        (send(server, GOOD, "/v1/models"), (405, "there is no POST /v1/models")),
        (send(server, GOOD, "/v1/completions/"), (404, "there is no POST /v1/completions/")),
        (send(server, {"model": "tiny", "input": [""]}, "/v1/embeddings"), (400, "not empty")),
        (send(server, {"model": "tiny", "input": ["a"] * 300}, "/v1/embeddings"), (400, "256")),
    ):
        status, error, headers = answer
        assert status == expected[0] and expected[1] in error["message"]
        assert (status == 405) == (error["code"] == "method_not_supported") == ("Allow" in headers)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../../etc/passwd",
            "/etc/passwd",
            "pirate/../poet",
            "pirate/",
            "PIRATE",
            "pirate\0",
            " pirate",
        ),
        *("pirate\u200b", "\uff50irate", "__proto__", "a" * 12000, "\U0001f600" * 1000, "%2e%2e"),
    ],
    ids=lambda name: ascii(name[:12]),
)
def test_names_of_models_are_looked_up(server, name):
    """They are no paths, and are compared as they are written."""
    path = "/v1/models/" + urllib.parse.quote(name, safe="/")
    asked = [send(server, {**GOOD, "model": name}), send(server, b"", path, {}, "GET")]
    for status, error, _ in asked:
        assert (status, error["code"]) == (404, "model_not_found")
        assert len(error["message"]) < 400


def test_fields_that_are_null_are_none(server):
    """Clients send all that they know of."""
    unset = ("audio", "prediction", "reasoning_effort", "stop", "tools", "response_format", "n")
    status, answer, _ = send(server, {**CHAT, **dict.fromkeys(unset)}, "/v1/chat/completions")
    assert status == 200 and answer["choices"][0]["finish_reason"] == "length"


def test_pages_of_an_origin_may_ask(server):
    page = {"Origin": "https://page.example"}
    status, _, headers = send(server, GOOD, headers={**TYPE, **page})
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] == "https://page.example"
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("OPTIONS", "/v1/completions", headers={**page, **asked})
    answer = connection.getresponse()
    assert answer.status == 200
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"]
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"


def test_a_body_that_does_not_come(server):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
            b"Content-Type: application/json\r\n\r\n{"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_connections_on_which_nothing_goes_on_are_closed(catalog, monkeypatch):
    """Half of a request, also after a whole one, and an answer that nobody takes."""
    from edgewise.extras.serve import connections, launch
    from edgewise.extras.serve.options import ServeOptions

    monkeypatch.setattr(connections, "PATIENCE", 1.0)
    get = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
    served = launch.Server(catalog, ServeOptions(port=0))
    served._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with served as server:
        for sent in (b"", get, get + b"\r\n" + get):
            with socket.create_connection(("127.0.0.1", server.port), timeout=240) as connection:
                connection.sendall(sent)
                answers = b""
                with contextlib.suppress(ConnectionResetError):
                    while piece := connection.recv(65536):
                        answers += piece
                assert answers.count(b"HTTP/1.1 200 OK") == (sent.count(b"GET") == 2)
        body = json.dumps({**LONG, "n": 16, "stream": True, "logprobs": 20}).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                b"Content-Type: application/json\r\n\r\n%b" % (len(body), body)
            )
            worker = server.service.worker
            while worker.current is None:
                time.sleep(0.005)
            assert worker.current.cancelled.wait(240)


def test_connections_without_a_request_keep_nobody_out(server):
    """Neither those of the same address, nor those that come again when they are closed."""
    from edgewise.extras.serve.connections import CONNECTIONS

    get = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
    with contextlib.ExitStack() as stack:

        def connect():
            return stack.enter_context(
                socket.create_connection(("127.0.0.1", server.port), timeout=240)
            )

        for _ in range(4 * CONNECTIONS):
            connect().sendall(get)
        for _ in range(3):
            assert send(server, b"", "/v1/models", {}, "GET")[0] == 200
        kept = connect()
        kept.sendall(get + b"\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("pieces", [1, 2])
def test_long_headers_are_refused(server, pieces):
    """Also when they arrive at once: the server reads 64 KiB."""
    request = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40000 + b"\r\n\r\n"
    target = b"GET /v1/models?" + b"a" * 40000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    many = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 5000 + b"\r\n"
    for sent in (request, target, many):
        with socket.create_connection(("127.0.0.1", server.port), timeout=240) as connection:
            size = -(-len(sent) // pieces)
            for at in range(0, len(sent), size):
                connection.sendall(sent[at : at + size])
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(4096).startswith(b"HTTP/1.1 4")


def test_a_proxy_that_keeps_the_host(catalog):
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import ServeOptions

    with Server(catalog, ServeOptions(port=0, hosts=("Models.example",))) as server:
        for name, expected in (
            ("models.example", 200),
            ("MODELS.example:443", 200),
            ("localhost", 200),
            ("models.example.evil.example", 403),
            ("", 403),
        ):
            status, answer, _ = send(server, b"", "/health", {"Host": name}, "GET")
            assert status == expected, answer
    assert "--allowed-host" in answer["message"]
    everywhere = ServeOptions("0.0.0.0", 0, "key", hosts=("models.example",))
    with Server(catalog, everywhere) as server:
        for name, expected in (("models.example", 200), ("127.0.0.1", 200), ("x.example", 403)):
            assert send(server, b"", "/health", {"Host": name}, "GET")[0] == expected


def test_keys(catalog):
    from edgewise.errors import InputError
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import ServeOptions

    with pytest.raises(InputError, match="everybody"):
        Server(catalog, ServeOptions(host="0.0.0.0"))
    with Server(catalog, ServeOptions(port=0, api_key="sesame")) as server:
        for text, expected in (
            ("Bearer sesame", 200),
            ("bearer sesame", 200),
            ("Bearer Sesame", 401),
            ("sesame", 401),
            ("Basic sesame", 401),
            ("Bearer ", 401),
            ("Bearer é", 401),
        ):
            headers = {**TYPE, "Authorization": text.encode()}
            status, error, _ = send(server, GOOD, headers=headers)
            assert status == expected
        assert error["type"] == "authentication_error"
        assert send(server, b"", "/health", {}, "GET")[0] == 200


def test_commands_that_serve_nothing_or_everybody(folder, tmp_path, capsys, monkeypatch):
    from edgewise.cli import main

    monkeypatch.delenv("EDGEWISE_API_KEY", raising=False)
    model, bare = str(folder), tmp_path / "model.onnx"
    shutil.copy(folder / "onnx/model_q4.onnx", bare)
    for command, words in (
        ([], "nothing to serve"),
        (["--split", "second.onnx"], "is not NAME=PATH"),
        ([model, "--adapter", model], "is not NAME=PATH"),
        ([model, "--host", "0.0.0.0"], "everybody"),
        ([model, "--queue", "0"], "at least 1"),
        ([model, "--port", "99999"], "not a port"),
        ([model, "--api-key", ""], "not of printable ASCII"),
        ([model, "--origin", "https://page.example/"], "without a path"),
        ([model, "--origin", "page.example"], "no origin of a page"),
        ([model, "--allowed-host", "models.example:8000"], "no name of a machine"),
        ([str(bare)], "there is no config.json"),
        ([model, "--adapter", f"stories={model}"], "is a model's"),
        ([f"a={model}", f"b={model}", "--adapter", "c=d"], "2 language models"),
        ([model, f"other/{folder.name}"], "the name 'stories' is given to"),
        (["nothing.edge"], "No such file"),
    ):
        assert main(["serve", *command]) == 1
        assert words in capsys.readouterr().err


LONG = {**GOOD, "max_tokens": 200, "logit_bias": {"0": -100}}  # no end of the story


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_work(server, stream):
    """The next request is answered long before the first one would have ended."""
    worker = server.service.worker
    body = json.dumps({**LONG, "n": 16, "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
            b"Content-Type: application/json\r\n\r\n%b" % (len(body), body)
        )
        if stream:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        while worker.current is None:
            time.sleep(0.005)
        job = worker.current
    assert job.cancelled.wait(240)
    assert send(server, GOOD)[0] == 200
    assert worker.current is not job


def test_a_full_queue_refuses(server):
    """One request is computed, three wait, the others are told to come again."""
    worker = server.service.worker
    held, go = threading.Event(), threading.Event()
    answers = []

    def ask():
        answers.append(send(server, GOOD))

    run, threads = worker.changed, []
    original = worker.submit

    def holding(work):
        def first(job):
            held.set()
            go.wait(240)
            yield from work(job)

        worker.submit = original
        return original(first)

    worker.submit = holding
    for k in range(4):
        threads.append(threading.Thread(target=ask))
        threads[-1].start()
        while True:  # the first is computed, the others wait
            with run:
                if held.is_set() and len(worker.jobs) == k:
                    break
            time.sleep(0.005)
    status, error, headers = send(server, GOOD)
    assert (status, error["code"], headers["Retry-After"]) == (429, "busy", "1")
    assert error["type"] == "rate_limit_error"
    go.set()
    for thread in threads:
        thread.join()
    assert [answer[0] for answer in answers] == [200] * 4


def test_a_client_that_reads_slowly_is_given_up(monkeypatch):
    """Also one that takes an event now and then: others wait for the engine meanwhile."""
    from edgewise.extras.serve import jobs

    monkeypatch.setattr(jobs, "WINDOW", 1)
    monkeypatch.setattr(jobs, "STALL", 0.1)
    taken = []

    async def read():
        worker = jobs.Worker(1)
        async for event in worker.submit(lambda job: iter(range(1000))).results():
            taken.append(event)
            await asyncio.sleep(0.02)

    with pytest.raises(jobs.Cancelled):
        run(read())
    assert len(taken) < 1000


def test_a_server_that_ends_says_so_in_its_streams(catalog):
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import ServeOptions

    body = {**LONG, "n": 16, "stream": True}
    with Server(catalog, ServeOptions(port=0)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/v1/completions", json.dumps(body), TYPE)
        answer = connection.getresponse()
        answer.read(10)
    # it has waited for no answer in progress
    assert json.loads(answer.read().split(b"data: ")[-1])["error"]["code"] == "cancelled"
    connection.close()


def test_detokenizer_tells_whole_characters():
    from edgewise.extras.serve.detokenize import Detokenizer
    from edgewise.logic.openai.stops import StopText

    class Bytes:
        def decode(self, ids, skip_special_tokens):
            return bytes(ids).decode(errors="replace")

    text = Detokenizer(Bytes(), [65, 66])
    pieces = [text.push(b) for b in "aé\U0001f600b".encode() + b"\xe2\x82"]
    assert [p for p in pieces if p] == ["a", "é", "\U0001f600", "b"]
    assert text.end() == "\ufffd"
    stop = StopText(["END", "\n\n"])
    assert [stop.push(p) for p in ["a\n", "b", "E", "N", "x", "EN", "Dy"]] == [
        *("a", "\nb", "", "", "ENx", "", "")
    ]
    assert stop.stopped
