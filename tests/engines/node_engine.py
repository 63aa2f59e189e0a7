"""The wasm engine in Node, as an `Engine` like any other: tests run the same models on the same
plans as pages do, without a page.

One Node process per engine executes node_host.mjs, which starts the module as wasm/Makefile says.
What is said over its stdin and stdout is described there.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from edgewise.engine import Engine
from edgewise.errors import EngineError

ROOT = Path(__file__).parents[2]
FLAVOURS = {
    "simd128": 1,
    "simd128-threads": 2,
    "relaxed-threads": 2,
}  # name of the .wasm file: threads


class NodeEngine(Engine):
    """flavour: one of FLAVOURS, with all kernels. path: of a .wasm to take instead.

    Raises EngineError when the module is not built, Node is missing, or the engine traps.
    """

    POINTER = "<I"

    def __init__(self, flavour="simd128", threads=None, path=None):
        self.process = None
        self.module, self.threads = flavour, threads or FLAVOURS[flavour]
        path = Path(path or ROOT / f"web/dist/engine/edgewise-{flavour}-full.wasm")
        node = shutil.which("node")
        if not path.exists() or not node:
            raise EngineError(
                f"{path if node else 'node'} is not there",
                "",
                "Run `make wasm`." if node else "Install Node 20.",
            )
        # Without the baseline compiler: Node 20's gets i32x4.relaxed_dot_i8x16_i7x16_add wrong (the
        # optimizing one, and both of Chromium's, are right: tests/browser/test_compilers.py).
        self.process = subprocess.Popen(
            [
                node,
                "--experimental-wasm-relaxed-simd",
                "--no-liftoff",
                str(Path(__file__).with_name("node_host.mjs")),
                str(path),
                str(self.threads),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.start(self.threads)

    @property
    def flavour(self):
        at = self.call("ew_flavour")
        return self.read(at, 64).split(b"\0")[0].decode()

    @property
    def memory_bytes(self):
        return self._ask(b"size")

    def _ask(self, kind, a=0, b=0, c=0, data=b"", reads=0):
        if self.process is None:
            raise EngineError("the engine has been closed", "", "")
        try:
            self.process.stdin.write(struct.pack("<4sqqq", kind, a, b, c))
            if len(data):
                self.process.stdin.write(data)
            self.process.stdin.flush()
            failed, value = struct.unpack("<iq", self._receive(12))
            if failed:
                raise EngineError(
                    f"the engine stopped ({self._receive(value).decode()})",
                    kind.decode(),
                    "Report this.",
                )
            return self._receive(reads) if kind == b"read" else value
        except BrokenPipeError:
            raise EngineError("Node has gone away", "", "Its last words are on stderr.") from None

    def _receive(self, n):
        data = self.process.stdout.read(n)
        if len(data) != n:
            raise EngineError(
                f"Node has gone away (exit status {self.process.poll()})",
                "",
                "Its last words are on stderr.",
            )
        return data

    def call(self, name, *args):
        return self._ask(
            b"call", len(name), len(args), 0, name.encode() + struct.pack(f"<{len(args)}q", *args)
        )

    def alloc(self, nbytes):
        return self.check_alloc(
            self.call("ew_alloc", max(nbytes, 1)) if nbytes < 1 << 32 else 0, nbytes
        )

    def free(self, address):
        if self.process is not None:
            self.call("ew_free", address)

    def write(self, address, data):
        view = memoryview(data).cast("B")
        self._ask(b"writ", address, len(view), 0, view)

    def read(self, address, nbytes):
        return self._ask(b"read", address, nbytes, reads=nbytes)

    def copy(self, source, target, nbytes):
        self._ask(b"copy", source, target, nbytes)

    def load_tensor(self, tensor):
        address = self.alloc(tensor.nbytes)
        self.write(address, tensor.bytes())
        return address, True

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            if self.process.wait():
                self.process.kill()
            self.process = None
