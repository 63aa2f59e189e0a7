"""A WebSocket client for text messages: the part of RFC 6455 that browser automation needs."""

from __future__ import annotations

import base64
import os
import socket
import struct
from urllib.parse import urlsplit

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class WebSocket:
    """A connection to `url` (ws://host:port/path).

    Raises:
        OSError: the server refuses, or closes the connection.
        TimeoutError: nothing was received for `timeout` seconds.
    """

    def __init__(self, url: str, timeout: float = 240.0):
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout)
        self.pending = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.pending:
            self._more()
        head, self.pending = self.pending.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0] + b" ":
            raise OSError(f"no WebSocket at {url}: {head[:200]!r}")

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise OSError("the browser closed its WebSocket")
        self.pending += data

    def _take(self, count: int) -> bytes:
        while len(self.pending) < count:
            self._more()
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        head = bytes([0x80 | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += struct.pack(">BH", 0x80 | 126, size)
        else:
            head += struct.pack(">BQ", 0x80 | 127, size)
        key = os.urandom(4)
        mask = int.from_bytes(key * (size // 4 + 1), "little")
        masked = int.from_bytes(data, "little") ^ mask % (1 << 8 * size)
        self.socket.sendall(head + key + masked.to_bytes(size, "little"))

    def send(self, text: str) -> None:
        """Sends a message."""
        self._send(TEXT, text.encode())

    def receive(self, timeout: float) -> str:
        """Returns the next message."""
        self.socket.settimeout(timeout)
        message = b""
        while True:
            first, second = self._take(2)
            size = second & 127
            if size == 126:
                (size,) = struct.unpack(">H", self._take(2))
            elif size == 127:
                (size,) = struct.unpack(">Q", self._take(8))
            data, opcode = self._take(size), first & 15
            if opcode == CLOSE:
                raise OSError("the browser closed its WebSocket")
            if opcode == PING:
                self._send(PONG, data)
            elif opcode != PONG:
                message += data
                if first & 0x80:
                    return message.decode()

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()
