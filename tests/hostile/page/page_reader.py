"""The page's readers of packages, adapters and checkpoints in Node: web/test/reader/reader.ts."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
READ, PLAY, SAFETENSORS, ADAPTER, CHECKPOINT, TASK, PREFIX = range(7)


class PageReader:
    """A Node process that is restarted after it has ended."""

    def __init__(self):
        self.process = None

    def _start(self):
        node = shutil.which("node")
        self.process = subprocess.Popen(
            [
                node,
                "--max-old-space-size=2048",
                str(ROOT / "web/test/reader/read.mjs"),
                (ROOT / "web/dist/engine").as_uri() + "/",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, kind: int, data: bytes) -> dict:
        """Returns {"ok": ...} or {"error": class, "what", "where", "remedy"}.

        The error is "ESCAPED" for an exception that is not an EdgewiseError, and "DIED" if the
        process ended.
        """
        if self.process is None or self.process.poll() is not None:
            self._start()
        try:
            self.process.stdin.write(struct.pack("<II", kind, len(data)) + data)
            self.process.stdin.flush()
            (length,) = struct.unpack("<I", self._receive(4))
            return json.loads(self._receive(length))
        except (BrokenPipeError, EOFError):
            self.close()
            return {"error": "DIED", "what": "Node has ended", "where": "", "remedy": ""}

    def _receive(self, count):
        data = self.process.stdout.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def framed(*parts: bytes) -> bytes:
    """Joins several files into one request."""
    return b"".join(struct.pack("<I", len(p)) + p for p in parts)
