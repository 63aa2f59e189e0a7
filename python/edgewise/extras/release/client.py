"""Installs releases on this machine: what web/src/extras/release does in a page."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import urllib.error
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from tuf.api.exceptions import DownloadError, DownloadHTTPError, RepositoryError
from tuf.ngclient import Updater
from tuf.ngclient.fetcher import FetcherInterface

from ...atomic_file import SUFFIX, atomic_file
from ...compiler.onnx.sink import source_pieces
from ...compiler.onnx.source import FileSource
from ...locks import locked
from .codec import decode
from .errors import ReleaseError
from .manifest import DIGEST, MAX_BYTES, Chunk, Manifest, Stored, check_name, parse, selected
from .store import Fetcher, Open, check, open_address, sha256, unpack, write_file


class _Fetch(FetcherInterface):
    def __init__(self, open_: Open) -> None:
        self._open = open_

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            yield from self._open(url, 0)
        except FileNotFoundError:
            raise DownloadHTTPError(f"{url} does not exist", 404) from None
        except urllib.error.HTTPError as e:
            raise DownloadHTTPError(f"{url}: {e}", e.code) from None


@dataclass
class Installed:
    """What is installed. data: name of the file with the content."""

    name: str
    version: int
    bytes: int
    sha256: str
    manifest: str

    @property
    def data(self) -> str:
        return f"{self.sha256}.data"


class Client:
    """A release in a folder of this machine.

    Args:
        origins: folders or addresses of the repository, the preferred one first.
        name: of the release.
        folder: of the client, with trusted metadata, the installed content and arrived chunks.
        root: bytes of a root.json that is trusted, for the first time.
        open_: opens an address at an offset; for tests.
    """

    def __init__(
        self,
        origins: Sequence[str],
        name: str,
        folder: str,
        root: bytes | None,
        open_: Open = open_address,
    ) -> None:
        self.name, self.folder = check_name(name), folder
        self.origins = [o.rstrip("/") for o in origins]
        self._root, self._open = root, open_
        self._objects = Fetcher(self.origins, os.path.join(folder, "parts"), open_)

    @property
    def received(self) -> int:
        """Bytes of objects that have arrived."""
        return self._objects.received

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def installed(self) -> Installed | None:
        """What is installed, None if nothing is.

        Raises:
            ReleaseError: the folder is that of another release.
        """
        try:
            with open(self._path("current.json"), encoding="utf-8") as file:
                found = Installed(**json.load(file))
            if not all(DIGEST.fullmatch(text) for text in (found.sha256, found.manifest)):
                return None
        except (FileNotFoundError, ValueError, TypeError):
            return None
        if found.name != self.name:
            raise ReleaseError(
                f"it is the folder of the release '{found.name}'",
                self.folder,
                f"Choose another one for '{self.name}'.",
            )
        data = self._path(found.data)
        whole = os.path.exists(data) and os.path.getsize(data) == found.bytes
        return found if whole and type(found.version) is int else None

    def latest(self) -> Manifest:
        """The manifest that the repository has signed, from the first origin that has a valid one.

        Raises:
            ReleaseError: the signatures, versions or dates are not as TUF demands.
        """
        trusted = self._path("trusted")
        os.makedirs(trusted, exist_ok=True)
        known = os.path.exists(os.path.join(trusted, "root.json"))
        if not known and self._root is None:
            raise ReleaseError(
                "there is no trusted root yet", self.folder, "Give the repository's 1.root.json."
            )
        problem: ReleaseError | None = None
        for origin in self.origins:
            try:
                return self._parsed(self._signed(origin, trusted, known))
            except ReleaseError as e:
                problem = problem or e
        assert problem is not None
        raise problem

    def _signed(self, origin: str, trusted: str, known: bool) -> bytes:
        """The bytes of the manifest."""
        where = f"{self.name} at {origin}"
        with tempfile.TemporaryDirectory() as targets:
            try:
                updater = Updater(
                    trusted,
                    f"{origin}/metadata/",
                    targets,
                    f"{origin}/targets/",
                    _Fetch(self._open),
                    bootstrap=None if known else self._root,
                )
                updater.refresh()
                target = updater.get_targetinfo(f"{self.name}.json")
                if target is None:
                    raise ReleaseError("there is no release of this name", where)
                if target.length > MAX_BYTES:
                    raise ReleaseError(f"its manifest has {target.length} bytes", where)
                with open(updater.download_target(target), "rb") as file:
                    return file.read()
            except (RepositoryError, DownloadError, ValueError, OSError) as e:
                raise ReleaseError(f"{type(e).__name__}: {e}", where) from e

    def _parsed(self, data: bytes) -> Manifest:
        manifest = parse(data, f"the manifest of {self.name}")
        if manifest.name != self.name:
            raise ReleaseError(f"it is the manifest of '{manifest.name}'", self.name)
        write_file(self._path(f"manifests/{sha256(data)}.json"), data)
        return manifest

    def _device(self) -> str:
        path = self._path("device")
        with contextlib.suppress(FileNotFoundError), open(path, encoding="latin-1") as file:
            if re.fullmatch("[0-9a-f]{32}", text := file.read()):
                return text
        made = secrets.token_hex(16)
        write_file(path, made.encode())
        return made

    def wanted(self) -> Manifest | None:
        """The version for this device, None if it has it, or none is for it yet."""
        manifest = self.latest()
        if not selected(self._device(), manifest):
            found = [e for e in manifest.earlier if e.version == manifest.fallback]
            if not found:
                return None
            manifest = self._manifest(found[0].manifest)
        have = self.installed()
        return None if have and have.version >= manifest.version else manifest

    def _manifest(self, stored: Stored) -> Manifest:
        path = self._path(f"manifests/{stored.sha256}.json")
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
            check(data, stored, path)
        else:
            data = self._objects.fetch(stored, f"targets/{stored.sha256}.{self.name}.json")
        return self._parsed(data)

    def update(self) -> Installed | None:
        """Installs the version for this device beside the installed one, and switches to it. If it
        is interrupted, the next call goes on.

        Returns:
            what is installed.

        Raises:
            ReleaseError: a signature, a digest or a delta is wrong; what was installed stays.
            StorageError: another process is updating, or the folder is full.
        """
        os.makedirs(self.folder, exist_ok=True)
        with locked(self._path("lock")):
            return self._update()

    def _update(self) -> Installed | None:
        before = self.installed()
        manifest = self.wanted()
        if manifest is None:
            return before
        self._assemble(manifest)
        digest = sha256(manifest.text())
        write_file(self._path(f"manifests/{digest}.json"), manifest.text())
        current = Installed(self.name, manifest.version, manifest.bytes, manifest.sha256, digest)
        write_file(self._path("current.json"), json.dumps(vars(current)).encode())
        shutil.rmtree(self._objects.parts, ignore_errors=True)
        self._clean([current, *([before] if before else [])])
        return current

    def _clean(self, versions: Sequence[Installed]) -> None:
        """Removes what other versions have left."""
        keep = {v.data for v in versions} | {f"{v.manifest}.json" for v in versions}
        for folder, end in (("", ".data"), ("manifests", ".json")):
            self._remove(folder, end, keep)

    def _remove(self, folder: str, end: str, keep: Container[str] = ()) -> None:
        """Removes the files of a folder whose names have this end, but those in `keep`."""
        for name in os.listdir(self._path(folder)):
            if name.endswith(end) and name not in keep:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._path(folder), name))

    def _assemble(self, manifest: Manifest) -> None:
        target = self._path(f"{manifest.sha256}.data")
        have = self.installed()
        base: dict[str, tuple[int, Chunk]] = {}
        source = None
        if have is not None:
            stored = Stored(0, have.manifest)
            path = self._path(f"manifests/{stored.sha256}.json")
            with contextlib.suppress(ReleaseError, FileNotFoundError), open(path, "rb") as file:
                base = parse(file.read(), path).offsets()
                source = FileSource(self._path(have.data))
        self._remove("", SUFFIX)  # of updates that were killed
        digest = hashlib.sha256()
        with atomic_file(target) as out:
            for chunk in manifest.chunks:
                data = self._chunk(chunk, base, source)
                digest.update(data)
                out.write(data)
            if digest.hexdigest() != manifest.sha256:
                raise ReleaseError("its content does not match its SHA-256", self.name)

    def _chunk(
        self, chunk: Chunk, base: dict[str, tuple[int, Chunk]], source: FileSource | None
    ) -> bytes:
        """The chunk from the installed version, from a delta to it, or as a whole."""

        def old(digest: str) -> bytes | None:
            if source is None or digest not in base:
                return None
            at, known = base[digest]
            data = source.read(at, known.bytes)
            return data if sha256(data) == digest else None

        same = old(chunk.sha256)
        if same is not None:
            return same
        for delta in sorted(chunk.deltas, key=lambda d: d.bytes):
            before = old(delta.base)
            if before is not None and len(before) == chunk.bytes:
                data = self._objects.fetch(delta, delta.path)
                # one that does not lead to the chunk must not keep this machine from updates
                with contextlib.suppress(ReleaseError):
                    out = decode(delta.codec, before, data, delta.path)
                    check(out, chunk, delta.path)
                    return out
                break
        return unpack(chunk, self._objects.fetch(chunk.file, chunk.file.path), chunk.file.path)

    def export(self, path: str) -> list[str]:
        """Copies the installed files to a folder, or the only one to a path; returns their paths.

        Raises:
            ReleaseError: nothing is installed.
        """
        have = self.installed()
        if have is None:
            raise ReleaseError("nothing is installed", self.folder, "Update first.")
        manifest_path = self._path(f"manifests/{have.manifest}.json")
        with open(manifest_path, "rb") as file:
            manifest = parse(file.read(), manifest_path)
        source, at, written = FileSource(self._path(have.data)), 0, []
        digest = hashlib.sha256()
        with contextlib.ExitStack() as files:  # which appear once all of them are known to be right
            for name, size in manifest.files:
                out = path if len(manifest.files) == 1 else os.path.join(path, name)
                os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
                copy = files.enter_context(atomic_file(out))
                for data in source_pieces(source, at, size):
                    digest.update(data)
                    copy.write(data)
                at += size
                written.append(out)
            if digest.hexdigest() != have.sha256:
                raise ReleaseError(
                    "what is installed was damaged",
                    source.name,
                    "Remove this file and update again.",
                )
        return written
