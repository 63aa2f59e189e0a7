"""The `.edge` package: a compiled model in one file.

logic/manifest/package.py has the layout. `files` in the manifest gives [offset, size] of each part
from the start of the data. Everything has a sum: the manifest and the parts that are read whole a
SHA-256, and each weight one for every 4 MB (sums.py), which are checked as weights are loaded.
web/src/worker/package/package.ts reads the same; logic/manifest/schema.py says what a manifest
holds.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from ..atomic_file import atomic_file
from ..errors import PackageError
from ..json_text import parse_json_object
from ..logic.manifest.checker import Checker
from ..logic.manifest.package import (
    HEADER,
    MAGIC,
    Slot,
    aligned,
    check_part,
    check_slot_table,
    manifest_bytes,
    open_manifest,
    places,
    plans_of,
    signed,
    unsigned,
)
from ..logic.manifest.schema import Manifest, Weight
from ..logic.native import sha256
from .onnx.half_source import HalfSource
from .onnx.source import Source
from .schema import plan_format
from .sums import source_sums

if TYPE_CHECKING:
    from .ir import Graph


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
            if want is not None:
                check_part(data, want, self.sources[name].name)
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
            at += aligned(w["bytes"])
        parts = dict(self.blobs) or {
            name: self.file(name) or b"" for name in self.manifest["files"] if name != "weights"
        }  # of a package that was read
        sizes = {name: len(data) for name, data in parts.items()}
        manifest["weights"], manifest["files"] = weights, places({**sizes, "weights": at})
        manifest["sha256"] = {
            name: sha256(data) for name, data in parts.items()
        }  # readers check them: a flipped bit must not become a wrong number
        text = signed(json.dumps(unsigned(manifest), separators=(",", ":")).encode())
        target.write(MAGIC + struct.pack("<Q", len(text)) + text)
        target.write(bytes(-(HEADER + len(text)) % 64))
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
        head = source.read(0, min(HEADER, source.size))
        length = manifest_bytes(source.name, head, source.size)
        manifest, start = open_manifest(source.name, source.read(HEADER, length), source.size)
        sources = {
            name: SourceRange(source, start + offset, size, f"{source.name}:{name}")
            for name, (offset, size) in manifest["files"].items()
        }
        package = Package(manifest, {}, sources)
        for name in manifest["sha256"]:
            package.file(name)  # its checksum
        c = Checker(source.name)
        for plan in plans_of(manifest):
            data = package.file(plan.file) or b""
            is_plan = len(data) >= plan_format.HEADER.size and data.startswith(plan_format.MAGIC)
            check_slot_table(c, plan, is_plan, _slots_of(data) if is_plan else None)
        return package


def _slots_of(plan: bytes) -> list[Slot] | None:
    """A plan's own table of slots; None where it reaches beyond the file."""
    header, entry = plan_format.HEADER, plan_format.SLOT
    (count,) = struct.unpack_from("<I", plan, header.at["n_slots"])
    (at,) = struct.unpack_from("<Q", plan, header.at["slots_at"])
    if at + entry.size * count > len(plan):
        return None
    table = (entry.unpack_from(plan, at + entry.size * i) for i in range(count))
    return [Slot(nbytes, bool(flags & plan_format.WRITABLE)) for nbytes, flags, _ in table]
