"""A client that sends what a test wants."""

import contextlib
import hashlib
import json

from edgewise.extras.federated.codec import pack
from edgewise.extras.federated.protocol import VERSION, encode
from edgewise.logic.federated.layout import CODECS
from edgewise.logic.federated.tasks import CHUNK, SUBPROTOCOL
from websockets.sync.client import connect

from .toys import PATIENCE


class Raw:
    def __init__(self, url, schema, hello=True, **fields):
        self.stack = contextlib.ExitStack()
        self.socket = self.stack.enter_context(
            connect(url, subprotocols=[SUBPROTOCOL], compression=None, max_size=CHUNK)
        )
        self.schema = schema
        if hello:
            self.hello(**fields)

    def hello(self, **fields):
        given = {"protocols": [VERSION], "schema": self.schema.sha256, "codecs": list(CODECS)}
        self.send("hello", **{**given, **fields})
        self.first = self.receive()

    def send(self, kind, **fields):
        self.socket.send(encode(kind, **fields))

    def receive(self, kind=None):
        """The next message, or the next one of a kind."""
        while True:
            frame = self.socket.recv(PATIENCE)
            if isinstance(frame, bytes):
                continue
            message = json.loads(frame)
            if kind is None or message["kind"] == kind:
                return message

    def file(self, task, values, codec=None, **metadata):
        """An update file for a task."""
        fields = {"base": task["base"], "run": task["run"], "round": str(task["round"])}
        return pack(values, self.schema, codec or task["codec"], {**fields, **metadata})[0]

    def announce(self, task, data, **changed):
        fields = {
            "run": task["run"],
            "round": task["round"],
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "codec": task["codec"],
            "examples": 1,
        }
        self.send("update", **{**fields, **changed})

    def upload(self, task, data, **changed):
        """Sends an update. Returns the answer: accepted or rejected."""
        self.announce(task, data, **changed)
        answer = self.receive()
        while answer["kind"] not in ("ack", "accepted", "rejected"):
            answer = self.receive()
        if answer["kind"] != "ack":
            return answer
        for at in range(answer["offset"], len(data), CHUNK):
            self.socket.send(data[at : at + CHUNK])
        while True:
            answer = self.receive()
            if answer["kind"] in ("accepted", "rejected"):
                return answer

    def close(self):
        self.stack.close()
