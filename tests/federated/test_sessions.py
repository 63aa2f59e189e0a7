"""Who may take part in rounds, and how connections end."""

import pytest

pytest.importorskip("websockets")

import hashlib
import http.server
import threading
import time

from edgewise.extras.federated.hub import Hub, HubOptions
from edgewise.extras.federated.last import Last
from edgewise.logic.federated.tasks import SUBPROTOCOL
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from .raw import Raw
from .test_hub import VALUES, ask, base_of_round, one_task, refusal
from .toys import BIG, PATIENCE, SCHEMA, Running, Toy, random_values, wait_for


def test_a_ticket_is_good_for_one_client():
    options = HubOptions(port=0, tickets=frozenset({"a", "b"}))
    with Hub(SCHEMA, "float32", options) as hub:
        url = f"ws://127.0.0.1:{hub.port}"
        first = Raw(url, SCHEMA, ticket="a")
        token = first.first["token"]
        # a token is good for the client with its ticket alone
        other = Raw(url, SCHEMA, ticket="b", resume=token)
        assert other.first["token"] != token and len(hub.sessions) == 2
        again = Raw(url, SCHEMA, ticket="a", resume=token)
        assert again.first["token"] == token
        again.close()
        wait_for(lambda: len(hub.nodes()) == 1)
        # who lost its token gets a new session, and the old one ends
        assert Raw(url, SCHEMA, ticket="a").first["kind"] == "welcome"
        assert len(hub.sessions) == 2 and len(hub._tokens) == 2


def test_origins():
    """Without tickets, pages of other machines are kept out; programs have no origin."""

    def connects(options, origin):
        with Hub(SCHEMA, "float32", options) as hub:
            try:
                url = f"ws://127.0.0.1:{hub.port}"
                with connect(url, origin=origin, subprotocols=[SUBPROTOCOL]):
                    return True
            except InvalidStatus:
                return False

    own, far = "http://localhost:8000", "https://other.example"
    tickets = HubOptions(port=0, tickets=frozenset({"a"}))
    page = HubOptions(port=0, origins=("https://your.page",))
    for options, expected in (
        (HubOptions(port=0), (True, True, False)),
        (tickets, (True, True, True)),
        (page, (True, False, False)),
        (HubOptions(port=0, origins=("*",)), (True, True, True)),
    ):
        assert tuple(connects(options, o) for o in (None, own, far)) == expected
    assert connects(page, "https://your.page")
    assert not connects(HubOptions(port=0), "http://localhost.evil.example")


def test_a_wrong_address_is_not_tried_again():
    """A server that answers with 404 will do so again."""
    asked = []

    class Pages(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Running(f"ws://127.0.0.1:{server.server_port}", Toy(0))
        client.thread.join(PATIENCE)
        server.shutdown()
    assert not client.thread.is_alive() and "404" in str(client.error) and asked == ["/"]


def test_a_welcome_names_what_was_accepted(hub):
    """A client that was killed before it read `accepted` learns it when it comes back."""
    client, task, future = one_task(hub)
    data = client.file(task, VALUES)
    client.upload(task, data)
    future.result(PATIENCE)
    again = Raw(hub.url, SCHEMA, resume=client.first["token"])
    assert again.first["accepted"] == [hashlib.sha256(data).hexdigest()]
    client.close()
    again.close()


def test_a_state_is_answered(hub):
    client = Raw(hub.url, SCHEMA)
    client.send("state", available=False)
    assert client.receive() == {"kind": "state", "available": False}
    client.close()


def test_stale_announcements_end_a_connection(hub):
    client, task, _ = one_task(hub)
    with pytest.raises(ConnectionClosed):
        for _ in range(9):
            client.upload({**task, "round": 7}, client.file(task, VALUES))
    client.close()


@pytest.mark.parametrize("big", [{"stall": 1.0}], indirect=True)
def test_other_messages_do_not_extend_an_upload(big):
    client, task, future = one_task(big, BIG)
    client.announce(task, client.file(task, random_values(1, BIG)))
    client.receive("ack")
    begun = time.monotonic()
    with pytest.raises(ConnectionClosed):
        while time.monotonic() - begun < PATIENCE:
            client.send("state", available=True)
            client.receive("state")
            time.sleep(0.1)
    client.close()


def test_bye_does_not_wait_for_slow_clients():
    with Hub(BIG, "float32", HubOptions(port=0)) as hub:
        hub.url = f"ws://127.0.0.1:{hub.port}"
        client, *_ = one_task(hub, BIG)
        tell, began = hub._tell, []

        async def slow(node, text, seconds=None):
            began.append(seconds)
            await tell(node, text, seconds)

        hub._tell = slow
    assert began == [2.0]
    client.close()


@pytest.mark.parametrize("kind", ["task", "bye"])
def test_a_download_ends_with_its_task(hub, kind):
    """The deadline passes while a client fetches: it takes the next task."""
    client = Running(hub.url, Toy(0))
    (node,) = wait_for(hub.nodes)
    fetch = hub._fetch
    hub._fetch = lambda session, message: None  # no byte comes
    (first,) = ask(hub, base_of_round(random_values(0)), seconds=0.3).values()
    assert refusal(first).code == "deadline"
    if kind == "bye":
        hub.stop()
        client.thread.join(PATIENCE)
        hub.stop = lambda: None
    else:
        hub._fetch = fetch
        (second,) = ask(hub, base_of_round(random_values(3), 2), 2, nodes=[node]).values()
        assert second.result(PATIENCE)
        client.end()
    assert not client.thread.is_alive() and client.error is None


def test_last_weights_wait_for_clients_that_come_back(hub):
    """Who is connected, or comes back soon, gets them; nobody is waited for longer than said."""
    client = Raw(hub.url, SCHEMA)
    last = Last("run", 3, base_of_round(VALUES, 3))
    begun = time.monotonic()
    hub.publish(last, 0.2)  # it does not answer
    assert 0.2 <= time.monotonic() - begun < PATIENCE
    told = client.receive("weights")
    assert told["base"] == last.base.sha256
    client.close()
    waiting = threading.Thread(target=hub.publish, args=(last, 2 * PATIENCE))
    waiting.start()
    again = Raw(hub.url, SCHEMA, resume=client.first["token"])
    told = again.receive("weights")
    again.send("fetch", run=told["run"], round=told["round"], offset=0)
    data = again.socket.recv(PATIENCE)
    while not isinstance(data, bytes):
        data = again.socket.recv(PATIENCE)
    assert hashlib.sha256(data).hexdigest() == told["file"]["sha256"]
    again.send("have", base=told["base"])
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    again.close()


@pytest.mark.parametrize("text", ["a\ud800", "a\x1b[2J", "a\x00"])
def test_texts_are_printable(hub, text):
    client = Raw(hub.url, SCHEMA, name=text)
    assert client.first["code"] == "field"
    client.close()
