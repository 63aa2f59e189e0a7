"""The manifest of a release: of which chunks its content consists, where they are, and from which
chunks of earlier versions deltas lead to them. web/src/extras/release/manifest.ts reads the same.

    {"format": "edgewise.release.1", "name": "letters", "version": 3, "kind": "package",
     "fraction": 0.1, "bytes": N, "sha256": "...",
     "files": [{"name": "letters.edge", "bytes": N}],
     "chunks": [{"bytes": n, "sha256": "...", "file": {"bytes": n, "sha256": "..."},
                 "deltas": [{"from": "...", "codec": "float16", "bytes": n, "sha256": "..."}]}],
     "earlier": [{"version": 2, "sha256": "...", "manifest": {"bytes": n, "sha256": "..."}}],
     "fallback": 2}

The content is its files one after the other, and the chunks one after the other. A chunk is stored
as `file`: as it is, if both digests are equal, else deflated. Objects are named by their SHA-256,
`chunks/ab/cdef...`, and manifests `targets/SHA256.NAME.json`. `from` is the digest of a chunk of an
earlier version, of the same length. Devices outside of `fraction` get the version `fallback`, which
is one of `earlier`, or nothing (0).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import EdgewiseError
from ...json_text import parse_json
from .codec import CHUNK, CODECS
from .errors import ReleaseError

FORMAT = "edgewise.release.1"
KINDS = ("package", "adapter", "model")
MAX_CHUNKS = 1 << 16
MAX_FILES = 16
MAX_EARLIER = 16
MAX_DELTAS = 16
MAX_BYTES = 1 << 24  # of a manifest
MAX_VERSION = (1 << 53) - 1
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,99}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
Text = bytes  # in classes that have a field of that name
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass
class Stored:
    """An object of the store: its bytes and their SHA-256."""

    bytes: int
    sha256: str

    @property
    def path(self) -> str:
        """Where it is in the repository."""
        return f"chunks/{self.sha256[:2]}/{self.sha256[2:]}"


@dataclass
class Delta(Stored):
    """A delta to a chunk. base: SHA-256 of the chunk that it changes."""

    base: str
    codec: str


@dataclass
class Chunk:
    """A part of the content. file: how it is stored as a whole."""

    bytes: int
    sha256: str
    file: Stored
    deltas: list[Delta] = field(default_factory=list)


@dataclass
class Earlier:
    """An earlier version. sha256: of its content."""

    version: int
    sha256: str
    manifest: Stored


@dataclass
class Manifest:
    """A release. files: (name, bytes); other fields as in the JSON."""

    name: str
    version: int
    kind: str
    bytes: int
    sha256: str
    files: list[tuple[str, int]]
    chunks: list[Chunk]
    earlier: list[Earlier] = field(default_factory=list)
    fallback: int = 0
    fraction: float = 1.0

    def offsets(self) -> dict[str, tuple[int, Chunk]]:
        """{SHA-256 of a chunk: its first position in the content, the chunk}."""
        found: dict[str, tuple[int, Chunk]] = {}
        at = 0
        for chunk in self.chunks:
            found.setdefault(chunk.sha256, (at, chunk))
            at += chunk.bytes
        return found

    def text(self) -> Text:
        """The JSON."""
        chunks = [
            {
                "bytes": c.bytes,
                "sha256": c.sha256,
                "file": asdict(c.file),
                **({"deltas": [_delta(d) for d in c.deltas]} if c.deltas else {}),
            }
            for c in self.chunks
        ]
        fields = {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "kind": self.kind,
            "fraction": self.fraction,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "files": [{"name": n, "bytes": b} for n, b in self.files],
            "chunks": chunks,
            "earlier": [asdict(e) for e in self.earlier],
            "fallback": self.fallback,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def _delta(delta: Delta) -> dict[str, Any]:
    fields = asdict(delta)
    return {"from": fields.pop("base"), **fields}


class _Reader:
    """Checks of JSON values, with the path of what is wrong."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, path: str, what: str) -> ReleaseError:
        return ReleaseError(
            f"{path} {what}", self.where, "The release is damaged or of a newer version."
        )

    def record(self, value: object, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(path, "is not an object")
        return value

    def entries(self, value: object, path: str, most: int) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise self.fail(path, f"is not a list of at most {most}")
        return value

    def integer(self, value: object, path: str, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            raise self.fail(path, f"is not an integer from {least} to {most}")
        return value

    def match(self, value: object, path: str, pattern: re.Pattern[str]) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.fail(path, "is not a name" if pattern is not DIGEST else "is not a SHA-256")
        return value

    def stored(self, value: object, path: str, most: int) -> Stored:
        fields = self.record(value, path)
        return Stored(
            self.integer(fields.get("bytes"), f"{path}.bytes", 1, most),
            self.match(fields.get("sha256"), f"{path}.sha256", DIGEST),
        )


def stored_limit(nbytes: int) -> int:
    """Most bytes of what is stored for a chunk: deflated noise is a little longer than noise."""
    return 2 * nbytes + 1024


def parse(data: bytes, where: str) -> Manifest:
    """Checks and reads a manifest.

    Raises:
        ReleaseError: it is damaged, or hostile: with the path of what is wrong.
    """
    r = _Reader(where)
    try:
        root = r.record(parse_json(data, where, ReleaseError, most_bytes=MAX_BYTES), "it")
    except ReleaseError:
        raise
    except EdgewiseError as e:
        raise ReleaseError(e.what, where) from None
    if root.get("format") != FORMAT:
        raise r.fail("format", f"is not {FORMAT}")
    if root.get("kind") not in KINDS:
        raise r.fail("kind", f"is not one of {', '.join(KINDS)}")
    fraction = root.get("fraction")
    if (
        isinstance(fraction, bool)
        or not isinstance(fraction, (int, float))
        or not 0 <= fraction <= 1
    ):
        raise r.fail("fraction", "is not a number from 0 to 1")
    manifest = Manifest(
        name=r.match(root.get("name"), "name", _NAME),
        version=r.integer(root.get("version"), "version", 1, MAX_VERSION),
        kind=str(root["kind"]),
        bytes=r.integer(root.get("bytes"), "bytes", 1, MAX_CHUNKS * CHUNK),
        sha256=r.match(root.get("sha256"), "sha256", DIGEST),
        files=_files(r, root.get("files")),
        chunks=_chunks(r, root.get("chunks")),
        earlier=_earlier(r, root.get("earlier")),
        fraction=float(fraction),
    )
    for what, parts in (
        ("files", [n for _, n in manifest.files]),
        ("chunks", [c.bytes for c in manifest.chunks]),
    ):
        if sum(parts) != manifest.bytes:
            raise r.fail(what, f"have {sum(parts)} bytes, the content {manifest.bytes}")
    if len({name for name, _ in manifest.files}) < len(manifest.files):
        raise r.fail("files", "have a name twice")
    versions = [e.version for e in manifest.earlier]
    if any(v >= manifest.version for v in versions) or len(set(versions)) < len(versions):
        raise r.fail("earlier", "has versions that are not earlier, or one twice")
    manifest.fallback = r.integer(root.get("fallback"), "fallback", 0, MAX_VERSION)
    if manifest.fallback and manifest.fallback not in versions:
        raise r.fail("fallback", "is not one of the earlier versions")
    return manifest


def check_name(name: str) -> str:
    """A name of a release.

    Raises:
        ReleaseError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise ReleaseError(
            f"'{name[:100]}' cannot be the name of a release",
            "",
            "Use lower case letters, digits, '-', '_' and '.'.",
        )
    return name


def _files(r: _Reader, value: object) -> list[tuple[str, int]]:
    files = []
    for i, entry in enumerate(r.entries(value, "files", MAX_FILES)):
        fields = r.record(entry, f"files[{i}]")
        name = r.match(fields.get("name"), f"files[{i}].name", FILE)
        most = MAX_CHUNKS * CHUNK
        files.append((name, r.integer(fields.get("bytes"), f"files[{i}].bytes", 1, most)))
    return files


def _chunks(r: _Reader, value: object) -> list[Chunk]:
    chunks = []
    for i, entry in enumerate(r.entries(value, "chunks", MAX_CHUNKS)):
        path = f"chunks[{i}]"
        fields = r.record(entry, path)
        nbytes = r.integer(fields.get("bytes"), f"{path}.bytes", 1, CHUNK)
        most = stored_limit(nbytes)
        chunk = Chunk(
            nbytes,
            r.match(fields.get("sha256"), f"{path}.sha256", DIGEST),
            r.stored(fields.get("file"), f"{path}.file", most),
        )
        deltas = r.entries(fields.get("deltas", []), f"{path}.deltas", MAX_DELTAS)
        for j, delta in enumerate(deltas):
            at = f"{path}.deltas[{j}]"
            found = r.stored(delta, at, most)
            base = r.match(delta.get("from"), f"{at}.from", DIGEST)
            codec = delta.get("codec")
            if codec not in CODECS:
                raise r.fail(f"{at}.codec", f"is not one of {', '.join(CODECS)}")
            chunk.deltas.append(Delta(found.bytes, found.sha256, base, codec))
        if chunk.file.sha256 == chunk.sha256 and chunk.file.bytes != nbytes:
            raise r.fail(f"{path}.file", "has another length than the chunk that it is")
        chunks.append(chunk)
    return chunks


def _earlier(r: _Reader, value: object) -> list[Earlier]:
    found = []
    for i, entry in enumerate(r.entries(value, "earlier", MAX_EARLIER)):
        path = f"earlier[{i}]"
        fields = r.record(entry, path)
        found.append(
            Earlier(
                r.integer(fields.get("version"), f"{path}.version", 1, MAX_VERSION),
                r.match(fields.get("sha256"), f"{path}.sha256", DIGEST),
                r.stored(fields.get("manifest"), f"{path}.manifest", MAX_BYTES),
            )
        )
    return found


def selected(device: str, manifest: Manifest) -> bool:
    """Whether a device takes part in the rollout of a release: the same devices as long as the
    fraction grows, others for another release.

    Args:
        device: a stable random text that never leaves the device.
        manifest: of the release.
    """
    import hashlib

    text = f"{device}/{manifest.name}/{manifest.version}".encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
    return number < math.floor(manifest.fraction * 2**32)
