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

from .errors import PackageError
from .json_text import parse_json_object
from .manifest import check_format, check_manifest, check_slot_table, plans_of, read_json
from .manifest_limits import LIMITS
from .onnx.source import Source
from .sums import source_sums

MAGIC = b"EDGEWISE"
SUM = b'{"manifest_sha256":"'


def _signed(text):
    """A manifest's bytes with their own checksum, taken with zeros in its place, at its
    beginning.
    """
    rest = text[len(SUM) + 64 :]
    return SUM + hashlib.sha256(SUM + b"0" * 64 + rest).hexdigest().encode() + rest


class Part(Source):
    """A stretch of another source."""

    def __init__(self, source, offset, size, name=""):
        self.source, self.offset, self.size, self.name = source, offset, size, name or source.name

    def read(self, offset, size):
        """As Source.read, from the beginning of the stretch."""
        self._check(offset, size)
        return self.source.read(self.offset + offset, size)


class Package:
    """A compiled model: `manifest` (dict), `blobs` {file name: bytes} and `sources` {file name:
    Source} for what stays where it is.
    """

    def __init__(self, manifest, blobs, sources):
        self.manifest, self.blobs, self.sources = manifest, blobs, sources
        self.graph = None  # of a package compiled by this process
        # plan file: node of each step, for errors; of packages compiled by this process
        self.labels = {}

    def file(self, name):
        """Bytes of a part, or None."""
        if name in self.blobs:
            return self.blobs[name]
        if name in self.sources:
            data = self.sources[name].read(0, self.sources[name].size)
            want = self.manifest.get("sha256", {}).get(name)
            if want is not None and hashlib.sha256(data).hexdigest() != want:
                raise PackageError(
                    "it is not what its checksum says",
                    self.sources[name].name,
                    "The package is damaged: fetch or build it again.",
                )
            return data
        return None

    def source(self, name):
        """The Source of a part or of a file that stays where it is; KeyError where there is
        none.
        """
        return self.sources[name]

    def json(self, name, default=None):
        """A part as a dict; `default` where there is none, PackageError where it is not a JSON
        object.
        """
        data = self.file(name)
        if data is None:
            return default
        return parse_json_object(
            data, name, PackageError, "Fetch that file again, or build the package again."
        )

    def write(self, target):
        """Writes the package to a binary file object, weights copied from where they lie."""
        manifest = dict(self.manifest)
        weights, at = [], 0
        for w in manifest["weights"]:
            sums = w.get("sums") or source_sums(self.sources[w["file"]], w["offset"], w["bytes"])
            weights.append({**w, "file": "weights", "offset": at, "sums": sums})
            at += -(-w["bytes"] // 64) * 64
        files, offset = {}, 0
        parts = dict(self.blobs) or {
            name: self.file(name) for name in self.manifest["files"] if name != "weights"
        }  # of a package that was read
        for name, data in parts.items():
            files[name] = [offset, len(data)]
            offset += -(-len(data) // 64) * 64
        files["weights"] = [offset, at]
        manifest["weights"], manifest["files"] = weights, files
        manifest["sha256"] = {
            name: hashlib.sha256(data).hexdigest() for name, data in parts.items()
        }  # readers check them: a flipped bit must not become a wrong number
        manifest.pop("manifest_sha256", None)
        text = _signed(
            json.dumps({"manifest_sha256": "0" * 64, **manifest}, separators=(",", ":")).encode()
        )
        target.write(MAGIC + struct.pack("<Q", len(text)) + text)
        target.write(bytes(-(16 + len(text)) % 64))
        for data in parts.values():
            target.write(data)
            target.write(bytes(-len(data) % 64))
        for old in self.manifest["weights"]:
            source, left, pos = self.sources[old["file"]], old["bytes"], old["offset"]
            while left:
                part = source.read(pos, min(left, 1 << 22))
                target.write(part)
                pos, left = pos + len(part), left - len(part)
            target.write(bytes(-old["bytes"] % 64))

    @staticmethod
    def read(source):
        """Opens a package and checks all of it but the weights, which are checked when they are
        loaded (`sums.py`).

        Raises PackageError with what is wrong and where.
        """

        def broken(what, remedy="The file is truncated or damaged; fetch it or build it again."):
            return PackageError(what, source.name, remedy)

        if source.size < 16 or source.read(0, 8) != MAGIC:
            raise broken("it is no .edge package", "Build one with `edgewise build`.")
        length = struct.unpack("<Q", source.read(8, 8))[0]
        if length > LIMITS["MAX_MANIFEST"] or 16 + length > source.size:
            raise broken(f"its manifest would have {length} bytes, the file has {source.size}")
        text = source.read(16, length)
        try:
            manifest = read_json(text)
        except ValueError as e:
            raise broken(f"its manifest is no valid JSON ({str(e)[:100]})") from None
        check_format(manifest, source.name)
        if not text.startswith(SUM) or _signed(text) != text:
            raise broken("its manifest is not what its checksum says")
        start = -(-(16 + length) // 64) * 64
        check_manifest(manifest, source.name, max(0, source.size - start))
        sources = {
            name: Part(source, start + offset, size, f"{source.name}:{name}")
            for name, (offset, size) in manifest["files"].items()
        }
        package = Package(manifest, {}, sources)
        for name in manifest["sha256"]:
            package.file(name)  # its checksum
        for file, slots in plans_of(manifest):
            check_slot_table(package.file(file), slots, source.name, file)
        return package
