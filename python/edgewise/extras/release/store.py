"""Objects of a repository, in a folder or at addresses."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence

from ...atomic_file import atomic_file
from ...compiler.onnx.source import Source
from ...errors import StorageError
from .codec import deflate, inflate
from .errors import ReleaseError
from .manifest import Chunk, Manifest, Stored

SECONDS = 60  # a server must answer and go on within
ATTEMPTS = 3  # for each origin
PIECE = 1 << 16
PART = r"(\.\d+\.part)?"  # of files that atomic_file was writing when its process was killed
MANIFEST = re.compile(rf"([0-9a-f]{{64}})\.[a-z0-9._-]+\.json{PART}")  # in `targets`
OBJECT = re.compile(rf"[0-9a-f]{{64}}{PART}")  # folder and name of a file in `chunks`


def sha256(data: bytes) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def write_file(path: str, data: bytes) -> None:
    """Writes a file as a whole: an existing one stays until the new one is on the disk."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with atomic_file(path) as file:
        file.write(data)


class Store:
    """The objects in the folder of a repository.

    Args:
        folder: of the repository.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def put(self, data: bytes) -> Stored:
        """Stores an object, if it is not there yet."""
        stored = Stored(len(data), sha256(data))
        path = os.path.join(self.folder, stored.path)
        if not os.path.exists(path):
            write_file(path, data)
        return stored

    def put_chunk(self, data: bytes) -> Stored:
        """Stores a chunk, deflated if that saves a tenth."""
        packed = deflate(data)
        return self.put(packed if len(packed) < 0.9 * len(data) else data)

    def get(self, stored: Stored) -> bytes:
        """An object.

        Raises:
            ReleaseError: it is missing or damaged.
        """
        path = os.path.join(self.folder, stored.path)
        try:
            with open(path, "rb") as file:
                data = file.read(stored.bytes + 1)
        except FileNotFoundError:
            raise ReleaseError("an object of the repository is missing", path) from None
        check(data, stored, path)
        return data

    def remove_others(self, keep: set[str], manifests: set[str]) -> tuple[int, int]:
        """Removes all objects but those with the digests in `keep`, all manifests but those with
        the digests in `manifests`, and what an `add` that was killed has left of one. Other files,
        such as a server's settings, stay.

        Returns:
            (files, bytes) that were removed.
        """
        unused = []
        for folder, _, names in os.walk(os.path.join(self.folder, "chunks")):
            for name in names:
                digest = os.path.basename(folder) + name
                if OBJECT.fullmatch(digest) and digest not in keep:
                    unused.append(os.path.join(folder, name))
        with contextlib.suppress(FileNotFoundError):  # nothing was added yet
            for name in os.listdir(targets := os.path.join(self.folder, "targets")):
                found = MANIFEST.fullmatch(name)
                if found and (found[2] or found[1] not in manifests):
                    unused.append(os.path.join(targets, name))
        nbytes = sum(os.path.getsize(path) for path in unused)
        for path in unused:
            os.unlink(path)
        return len(unused), nbytes


def check(data: bytes, stored: Stored | Chunk, where: str) -> None:
    """Raises a ReleaseError if the data is not the object."""
    if len(data) != stored.bytes or sha256(data) != stored.sha256:
        raise ReleaseError(
            "its bytes do not match their SHA-256", where, "It is damaged, or was replaced."
        )


def unpack(chunk: Chunk, data: bytes, where: str) -> bytes:
    """The chunk that an object stores.

    Raises:
        ReleaseError: it does not store it.
    """
    out = data if chunk.file.sha256 == chunk.sha256 else inflate(data, chunk.bytes, where)
    check(out, chunk, where)
    return out


class ChunkSource(Source):
    """The content of a release, read from the store."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.name, self.size = f"{manifest.name} version {manifest.version}", manifest.bytes
        self._store = store
        self._starts: list[tuple[int, Chunk]] = []
        at = 0
        for chunk in manifest.chunks:
            self._starts.append((at, chunk))
            at += chunk.bytes
        self._last: tuple[int, bytes] = (-1, b"")

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read."""
        self._check(offset, size)
        parts, end = [], offset + size
        low, high = 0, len(self._starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle][0] <= offset else (low, middle)
        for at, chunk in self._starts[low:]:
            if at >= end:
                break
            if self._last[0] != at:
                self._last = (at, unpack(chunk, self._store.get(chunk.file), self.name))
            parts.append(self._last[1][max(0, offset - at) : end - at])
        return b"".join(parts)


Open = Callable[[str, int], Iterator[bytes]]


def open_address(address: str, offset: int) -> Iterator[bytes]:
    """The bytes of a file in a folder or at an http(s) address, from an offset on.

    Raises:
        OSError, ReleaseError: it cannot be read, or the server ignores the offset.
    """
    if not address.startswith(("http://", "https://")):
        with open(address, "rb") as file:
            file.seek(offset)
            while piece := file.read(PIECE):
                yield piece
        return
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    try:
        request = urllib.request.Request(address, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
            skip = offset if answer.status == 200 else 0
            while piece := answer.read(PIECE):
                yield piece[skip:]
                skip = max(0, skip - len(piece))
    except (http.client.HTTPException, ValueError) as e:  # a chunk is cut off, a port is no number
        raise OSError(f"{type(e).__name__}: {e}") from e


class Fetcher:
    """Fetches objects from several origins. An object that broke off goes on where it ended, at the
    next origin; a wrong one is fetched again from there.

    Args:
        origins: folders or addresses of the repository.
        parts: folder for what has arrived.
        open_: opens an address at an offset; for tests.
    """

    def __init__(self, origins: Sequence[str], parts: str, open_: Open = open_address) -> None:
        self.origins = [o.rstrip("/") for o in origins]
        self.parts, self._open = parts, open_
        self.received = 0

    def fetch(self, stored: Stored, path: str) -> bytes:
        """An object, which stays in `parts` for the next call.

        Args:
            stored: the required content.
            path: in the repository.

        Raises:
            ReleaseError: no origin has it.
            StorageError: the folder is full.
        """
        file = os.path.join(self.parts, stored.sha256)
        problem: Exception | None = None
        for origin in [o for o in self.origins for _ in range(ATTEMPTS)]:
            try:
                self._append(file, stored, f"{origin}/{path}")
                with open(file, "rb") as done:
                    data = done.read()
                check(data, stored, f"{origin}/{path}")
                return data
            except ReleaseError as e:
                problem = e
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file)
            except (OSError, urllib.error.URLError) as e:
                problem = e
        raise ReleaseError(
            f"{path} could not be fetched from {len(self.origins)} origins: {problem}",
            self.origins[0],
            "What has arrived is kept: try again later.",
        )

    def _append(self, file: str, stored: Stored, address: str) -> None:
        os.makedirs(self.parts, exist_ok=True)
        have = os.path.getsize(file) if os.path.exists(file) else 0
        if have >= stored.bytes:
            return
        with open(file, "ab") as out:
            for piece in self._open(address, have):
                have += len(piece)
                if have > stored.bytes:
                    raise ReleaseError(f"it has more than {stored.bytes} bytes", address)
                self.received += len(piece)
                try:
                    out.write(piece)
                except OSError as e:
                    raise StorageError(f"it cannot be written ({e})", file) from e
        if have < stored.bytes:
            raise OSError(f"it ended after {have} of {stored.bytes} bytes")
