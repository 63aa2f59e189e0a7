"""Makes the manifest and the objects of a new version."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...compiler.onnx.source import FileSource
from ...compiler.package import Package
from .codec import CODECS, WIDTHS, approximate, encode
from .content import Content, Section, stored_content
from .manifest import MAX_DELTAS, Chunk, Delta, Earlier, Manifest, Stored
from .store import ChunkSource, Store, sha256

ROUNDINGS = ("none", "q4", "bfloat16")
EXACT = tuple(c for c in CODECS if c != "float32-q4")


@dataclass
class Base:
    """An earlier version, from which deltas are made."""

    manifest: Manifest
    stored: Stored
    source: ChunkSource
    sections: dict[str, Section]

    @staticmethod
    def open(store: Store, manifest: Manifest, stored: Stored) -> Base:
        """Reads it from the store. stored: its manifest."""
        source = ChunkSource(store, manifest)
        content = stored_content(manifest.kind, manifest.files, source)
        return Base(manifest, stored, source, {s.name: s for s in content.sections()})

    def chunk(self, section: Section, number: int) -> bytes | None:
        """The chunk of the section of the same name and length."""
        own = self.sections.get(section.name)
        if own is None or own.bytes != section.bytes:
            return None
        return self.source.read(*own.chunks()[number])


Prepared = dict[tuple[str, str], bytes]  # (chunk, next chunk): a delta in 4 bits


def build(
    store: Store, content: Content, name: str, version: int, bases: Sequence[Base], rounding: str
) -> Manifest:
    """Stores a version and makes its manifest.

    Args:
        store: of the repository.
        content: the new version.
        name: of the release.
        version: number of the new version.
        bases: earlier versions, the latest first.
        rounding: of float32 weights: "none"; "q4": the latest version plus a change in 4 bits;
            "bfloat16": numbers of bfloat16, stored as float32.

    Returns:
        the manifest, without fraction and fallback.
    """
    prepared: Prepared = {}
    with tempfile.TemporaryDirectory() as folder:
        if rounding != "none":
            content = _rounded(content, folder, bases[:1], rounding, prepared)
        chunks, digest = [], hashlib.sha256()
        for section in content.sections():
            codec: str | None = None
            for number, (start, size) in enumerate(section.chunks()):
                data = content.read(start, size)
                digest.update(data)
                chunk = Chunk(size, sha256(data), store.put_chunk(data))
                for base in bases:
                    old = base.chunk(section, number)
                    if old is not None and old != data:
                        place = (section.columns, start - section.start)
                        codec = _add_delta(store, chunk, old, data, place, codec, prepared)
                chunks.append(chunk)
    return Manifest(
        name,
        version,
        content.kind,
        sum(c.bytes for c in chunks),
        digest.hexdigest(),
        [(n, s.size) for n, s in content.files],
        chunks,
        [Earlier(b.manifest.version, b.manifest.sha256, b.stored) for b in bases],
    )


def _add_delta(
    store: Store,
    chunk: Chunk,
    old: bytes,
    new: bytes,
    place: tuple[int, int],
    codec: str | None,
    prepared: Prepared,
) -> str | None:
    """Adds the smallest delta, if it saves a tenth.

    Args:
        store: of the repository.
        chunk: that it leads to.
        old: from where it leads.
        new: bytes of the chunk.
        place: (numbers in a row of the section, bytes of it in front of the chunk).
        codec: the best one for the section's first chunk, if known.
        prepared: deltas in 4 bits.

    Returns:
        the best codec.
    """
    base = sha256(old)
    found = prepared.get((base, chunk.sha256))
    if found is not None:
        best, delta = "float32-q4", found
    else:
        among = [c for c in ((codec,) if codec else EXACT) if len(new) % WIDTHS[c] == 0]
        if not among:
            return codec
        columns, at = place
        tried = {
            c: encode(c, old, new, (columns, at // WIDTHS[c] % columns) if columns else (0, 0))
            for c in among
        }
        best = min(tried, key=lambda c: len(tried[c]))
        delta, codec = tried[best], best
    if len(delta) < 0.9 * chunk.file.bytes and len(chunk.deltas) < MAX_DELTAS:
        stored = store.put(delta)
        chunk.deltas.append(Delta(stored.bytes, stored.sha256, base, best))
    return codec


def _rounded(
    content: Content, folder: str, bases: Sequence[Base], rounding: str, prepared: Prepared
) -> Content:
    """The content with rounded float32 weights, in files of the folder."""
    paths = []
    for name, source in content.files:
        paths.append(os.path.join(folder, name))
        os.makedirs(os.path.dirname(paths[-1]), exist_ok=True)
        with open(paths[-1], "wb") as file:
            for at in range(0, source.size, 1 << 22):
                file.write(source.read(at, min(1 << 22, source.size - at)))
    rounders: dict[str, Callable[[Section, int, bytes], bytes]] = {
        "q4": lambda section, number, data: _nearest(bases, section, number, data, prepared),
        "bfloat16": lambda section, number, data: _bfloat16(data),
    }
    starts = np.cumsum([0] + [s.size for _, s in content.files])
    for section in content.sections():
        if section.kind != "float32":
            continue
        which = int(np.searchsorted(starts, section.start, "right")) - 1
        with open(paths[which], "r+b") as file:
            for number, (start, size) in enumerate(section.chunks()):
                data = content.read(start, size)
                even = size - size % 4
                file.seek(start - int(starts[which]))
                file.write(rounders[rounding](section, number, data[:even]) + data[even:])
    return Content(
        content.kind, [(n, _resummed(p)) for (n, _), p in zip(content.files, paths, strict=True)]
    )


def _nearest(
    bases: Sequence[Base], section: Section, number: int, data: bytes, prepared: Prepared
) -> bytes:
    """The base plus a change in 4 bits; the data itself where there is no base."""
    old = bases[0].chunk(section, number) if bases else None
    if old is None or len(old) != len(data) or old == data:
        return data
    found = approximate(old, data)
    if found is None:
        return data
    delta, new = found
    prepared[sha256(old), sha256(new)] = delta
    return new


def _bfloat16(data: bytes) -> bytes:
    """float32 rounded to the nearest bfloat16, ties to even; infinities and NaN stay."""
    bits = np.frombuffer(data, "<u4")
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) & 0xFFFF0000
    return np.where((bits & 0x7F800000) == 0x7F800000, bits, rounded).astype("<u4").tobytes()


def _resummed(path: str) -> FileSource:
    """The file; a package with the checksums of its changed weights."""
    if not path.endswith(".edge"):
        return FileSource(path)
    package = Package.read(FileSource(path))
    for weight in package.manifest["weights"]:
        weight.pop("sums", None)
    out = path + ".summed"
    package.save(out)
    return FileSource(out)
