"""The `.edge` package: a compiled model in one file.

Layout: 8 bytes "EDGEWISE", u64 little-endian length of a JSON manifest, the manifest (UTF-8), zero
padding to a multiple of 64, then data. `files` in the manifest gives [offset, size] of each part
from the start of the data. Everything has a sum: the manifest and the parts that are read whole a
SHA-256, and each weight one for every 4 MB (sums.py), which are checked as weights are loaded.
web/src/worker/package/package.ts reads the same; manifest.py says what a manifest holds.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from ..atomic_file import atomic_file
from ..errors import PackageError
from ..json_text import parse_json_object
from ..logic.manifest.limits import MAX_MANIFEST
from ..logic.manifest.schema import Weight
from .manifest import Manifest, check_format, check_manifest, check_slot_table, plans_of, read_json
from .onnx.half_source import HalfSource
from .onnx.source import Source
from .sums import source_sums

if TYPE_CHECKING:
    from .ir import Graph

MAGIC = b"EDGEWISE"
SUM = b'{"manifest_sha256":"'


def _signed(text: bytes) -> bytes:
    """A manifest with its checksum at the beginning, computed with zeros in its place."""
    rest = text[len(SUM) + 64 :]
    return SUM + hashlib.sha256(SUM + b"0" * 64 + rest).hexdigest().encode() + rest


class SourceRange(Source):
    """A stretch of another source."""

    def __init__(self, source: Source, offset: int, size: int, name: str = "") -> None:
        self.source, self.offset, self.size, self.name = source, offset, size, name or source.name

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read, from the beginning of the stretch."""
        self._check(offset, size)
        return self.source.read(self.offset + offset, size)


class Package:
    """A compiled model.

    Attributes:
        manifest: what the package contains.
        blobs: {file name: bytes} of parts in memory.
        sources: {file name: Source} of parts that are read where they are.
        graph: the model; None where this process did not compile it.
        labels: {plan file: node of each step}, for errors, where this process compiled it.
    """

    def __init__(
        self, manifest: Manifest, blobs: dict[str, bytes], sources: Mapping[str, Source]
    ) -> None:
        self.manifest, self.blobs = manifest, blobs
        self.sources: dict[str, Source] = dict(sources)
        self.graph: Graph | None = None
        self.labels: dict[str, list[str]] = {}
        self._halves: dict[str, HalfSource] = {}

    def file(self, name: str) -> bytes | None:
        """Bytes of a part; None where there is none.

        Raises:
            PackageError: they differ from their checksum.
        """
        if name in self.blobs:
            return self.blobs[name]
        if name in self.sources:
            data = self.sources[name].read(0, self.sources[name].size)
            want = self.manifest.get("sha256", {}).get(name)
            if want is not None and hashlib.sha256(data).hexdigest() != want:
                raise PackageError(
                    "it does not match its checksum",
                    self.sources[name].name,
                    "The package is damaged: fetch or build it again.",
                )
            return data
        return None

    def source(self, name: str) -> Source:
        """The Source of a part or of one of the model's files; KeyError where there is none."""
        return self.sources[name]

    def weight(self, entry: Weight) -> tuple[Source, int]:
        """(Source, offset) of the bytes of a weight that the manifest describes."""
        source, offset = self.sources[entry["file"]], entry["offset"]
        if "power" not in entry:
            return source, offset
        key = f"{entry['file']}//{offset}"  # no file has this name
        if key not in self._halves:
            self._halves[key] = HalfSource(source, offset, entry["bytes"], entry["power"])
        return self._halves[key], 0

    def json(self, name: str, default: Any = None) -> Any:
        """A part as a dict; `default` where there is none.

        Raises:
            PackageError: it is not a JSON object.
        """
        data = self.file(name)
        if data is None:
            return default
        return parse_json_object(
            data, name, PackageError, "Fetch that file again, or build the package again."
        )

    def save(self, path: str) -> None:
        """Writes the package to a file, replacing an existing one only once it is complete."""
        with atomic_file(path) as file:
            self.write(file)

    def write(self, target: BinaryIO) -> None:
        """Writes the package to a binary file object; weights are copied from their files."""
        manifest = self.manifest.copy()
        weights: list[Weight] = []
        at = 0
        for w in manifest["weights"]:
            sums = w.get("sums") or source_sums(*self.weight(w), w["bytes"])
            place: Weight = {**w, "file": "weights", "offset": at, "sums": sums}
            place.pop("power", None)
            weights.append(place)
            at += -(-w["bytes"] // 64) * 64
        files: dict[str, tuple[int, int]] = {}
        offset = 0
        parts = dict(self.blobs) or {
            name: self.file(name) or b"" for name in self.manifest["files"] if name != "weights"
        }  # of a package that was read
        for name, data in parts.items():
            files[name] = (offset, len(data))
            offset += -(-len(data) // 64) * 64
        files["weights"] = (offset, at)
        manifest["weights"], manifest["files"] = weights, files
        manifest["sha256"] = {
            name: hashlib.sha256(data).hexdigest() for name, data in parts.items()
        }  # readers check them: a flipped bit must not become a wrong number
        fields = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
        unsigned = {"manifest_sha256": "0" * 64, **fields}
        text = _signed(json.dumps(unsigned, separators=(",", ":")).encode())
        target.write(MAGIC + struct.pack("<Q", len(text)) + text)
        target.write(bytes(-(16 + len(text)) % 64))
        for data in parts.values():
            target.write(data)
            target.write(bytes(-len(data) % 64))
        for old in self.manifest["weights"]:
            (source, pos), left = self.weight(old), old["bytes"]
            while left:
                part = source.read(pos, min(left, 1 << 22))
                target.write(part)
                pos, left = pos + len(part), left - len(part)
            target.write(bytes(-old["bytes"] % 64))

    @staticmethod
    def read(source: Source) -> Package:
        """Opens a package and checks all of it but the weights, which are checked when they are
        loaded (`sums.py`).

        Raises PackageError with what is wrong and where.
        """

        def broken(
            what: str, remedy: str = "The file is truncated or damaged; fetch it or build it again."
        ) -> PackageError:
            return PackageError(what, source.name, remedy)

        if source.size < 8 or source.read(0, 8) != MAGIC:
            raise broken("it is not an Edgewise package", "Build one with `edgewise build`.")
        if source.size < 16:
            raise broken("the file ends too early")
        length = struct.unpack("<Q", source.read(8, 8))[0]
        if length > MAX_MANIFEST or 16 + length > source.size:
            raise broken(f"its manifest has an invalid length of {length} bytes")
        text = source.read(16, length)
        try:
            json_value = read_json(text)
        except ValueError as e:
            raise broken(f"the manifest {e}") from None
        check_format(json_value, source.name)
        if not text.startswith(SUM) or _signed(text) != text:
            raise broken("its manifest does not match its checksum")
        start = -(-(16 + length) // 64) * 64
        manifest = check_manifest(json_value, source.name, max(0, source.size - start))
        sources = {
            name: SourceRange(source, start + offset, size, f"{source.name}:{name}")
            for name, (offset, size) in manifest["files"].items()
        }
        package = Package(manifest, {}, sources)
        for name in manifest["sha256"]:
            package.file(name)  # its checksum
        for file, slots in plans_of(manifest):
            check_slot_table(package.file(file) or b"", slots, source.name, file)
        return package
