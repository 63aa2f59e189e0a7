"""Connections and messages of one client in great numbers."""

import pytest

pytest.importorskip("websockets")

import contextlib
import socket

from edgewise.extras.federated.admission import BURST, Messages
from edgewise.extras.federated.hub import Hub, HubOptions
from edgewise.extras.federated.protocol import Refusal
from websockets.exceptions import ConnectionClosed

from ..raw import Raw
from ..toys import SCHEMA, wait_for


def test_connections_without_a_word_keep_nobody_out():
    """The oldest of an address are closed, before the request of a WebSocket and after it."""
    with Hub(SCHEMA, "float32", HubOptions(port=0, silent=4, greeting=60)) as hub:
        url = f"ws://127.0.0.1:{hub.port}"
        known = Raw(url, SCHEMA)
        silent = [socket.create_connection(("127.0.0.1", hub.port)) for _ in range(6)]
        wait_for(lambda: len(hub._silent.waiting) == 4)
        for one in silent[:2]:
            one.settimeout(240)
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
        upgraded = [Raw(url, SCHEMA, hello=False) for _ in range(5)]
        with pytest.raises(ConnectionClosed):
            upgraded[0].receive()
        assert Raw(url, SCHEMA).first["kind"] == "welcome"
        known.send("state", available=False)
        assert known.receive("state")["available"] is False
        for one in silent:
            one.close()


def test_a_client_that_floods_is_sent_away(hub):
    """Kinds that the hub knows count too; another client's messages are answered meanwhile."""
    honest, client = Raw(hub.url, SCHEMA), Raw(hub.url, SCHEMA)
    for _ in range(BURST):
        client.send("state", available=True)
    with pytest.raises(ConnectionClosed):
        for _ in range(20 * BURST):
            client.send("state", available=True)
        while True:
            client.receive()
    honest.send("state", available=False)
    assert honest.receive("state")["available"] is False


def test_accepted_work_renews_the_messages():
    messages = Messages()
    for _ in range(3):
        for _ in range(BURST):
            messages.count()
        messages.renew()
    with pytest.raises(Refusal, match="Send fewer"):
        for _ in range(2 * BURST):
            messages.count()
