"""The `.edge` package: a compiled model in one file.

Layout: 8 bytes "EDGEWISE", u64 little-endian length of a JSON manifest, the manifest (UTF-8), zero padding to a multiple of 64, then data.
`files` in the manifest gives [offset, size] of each part from the start of the data. web/src reads the same.
"""
from __future__ import annotations

import hashlib
import json
import struct

from .errors import PackageError
from .onnx.source import Source

MAGIC = b"EDGEWISE"
FORMAT = 1
REGISTERS = {"past": 0, "last": 1}  # compile.PAST, LAST
CACHE_DTYPES = ("float32", "float16")  # that keys and values can be kept as
SUM = b'{"manifest_sha256":"'
KINDS = ("weight", "computed", "cache", "state", "input", "output")  # of slots
MAX_MANIFEST = 16 << 20


def _signed(text):
    """A manifest's bytes with their own checksum, taken with zeros in its place, at its beginning."""
    rest = text[len(SUM) + 64:]
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
    """A compiled model: `manifest` (dict), `blobs` {file name: bytes} and `sources` {file name: Source} for what stays where it is."""

    def __init__(self, manifest, blobs, sources):
        self.manifest, self.blobs, self.sources = manifest, blobs, sources
        self.graph = None  # of a package compiled by this process
        self.labels = {}   # plan file: node of each step, for errors; of packages compiled by this process

    def file(self, name):
        """Bytes of a part, or None."""
        if name in self.blobs:
            return self.blobs[name]
        if name in self.sources:
            data = self.sources[name].read(0, self.sources[name].size)
            want = self.manifest.get("sha256", {}).get(name)
            if want is not None and hashlib.sha256(data).hexdigest() != want:
                raise PackageError("it is not what its checksum says", self.sources[name].name, "The package is damaged: fetch or build it again.")
            return data
        return None

    def source(self, name):
        """The Source of a part or of a file that stays where it is; KeyError where there is none."""
        return self.sources[name]

    def json(self, name, default=None):
        """A part as a dict; `default` where there is none, PackageError where it is not a JSON object."""
        data = self.file(name)
        if data is None:
            return default
        try:
            value = json.loads(bytes(data).decode())
        except (ValueError, RecursionError) as e:
            raise PackageError(f"it is no valid JSON ({e})", name, "Fetch that file again, or build the package again.") from None
        if not isinstance(value, dict):
            raise PackageError("it is no JSON object", name, "Fetch that file again, or build the package again.")
        return value

    def write(self, target):
        """Writes the package to a binary file object, weights copied from where they lie."""
        manifest = dict(self.manifest)
        weights, at = [], 0
        for w in manifest["weights"]:
            weights.append({**w, "file": "weights", "offset": at})
            at += -(-w["bytes"] // 64) * 64
        files, offset = {}, 0
        parts = dict(self.blobs) or {name: self.file(name) for name in self.manifest["files"] if name != "weights"}  # of a package that was read
        for name, data in parts.items():
            files[name] = [offset, len(data)]
            offset += -(-len(data) // 64) * 64
        files["weights"] = [offset, at]
        manifest["weights"], manifest["files"] = weights, files
        manifest["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}  # readers check them: a flipped bit must not become a wrong number
        manifest.pop("manifest_sha256", None)
        text = _signed(json.dumps({"manifest_sha256": "0" * 64, **manifest}, separators=(",", ":")).encode())
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
        """Opens a package; raises PackageError with what is wrong and where."""
        def broken(what, remedy="The file is truncated or damaged; fetch it or build it again."):
            return PackageError(what, source.name, remedy)
        if source.size < 16 or source.read(0, 8) != MAGIC:
            raise broken("it is no .edge package", "Build one with `edgewise build`.")
        length = struct.unpack("<Q", source.read(8, 8))[0]
        if length > MAX_MANIFEST or 16 + length > source.size:
            raise broken(f"its manifest would have {length} bytes, the file has {source.size}")
        text = source.read(16, length)
        try:
            manifest = json.loads(text.decode())
        except (ValueError, RecursionError) as e:
            raise broken(f"its manifest is no valid JSON ({e})") from None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise broken(f"its format is {manifest.get('format') if isinstance(manifest, dict) else None!r}, this version reads {FORMAT}", "Build it again with this version.")
        if not text.startswith(SUM) or _signed(text) != text:
            raise broken("its manifest is not what its checksum says")
        start = -(-(16 + length) // 64) * 64
        sources = {}
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise broken("its manifest has no file table")
        for name, place in files.items():
            if not (isinstance(place, list) and len(place) == 2 and all(type(x) is int and x >= 0 for x in place)) or start + place[0] + place[1] > source.size:
                raise broken(f"'{name}' would lie at {place}, outside the file")
            sources[name] = Part(source, start + place[0], place[1], f"{source.name}:{name}")
        sums = manifest.get("sha256", {})
        if not isinstance(sums, dict) or not all(isinstance(x, str) for x in sums.values()):
            raise broken("its checksums are no table")
        _check(manifest, sources, broken)
        return Package(manifest, {}, sources)


def _check(manifest, sources, broken):
    """Everything the decoder relies on, before anything is allocated."""
    def want(ok, what):
        if not ok:
            raise broken(what)

    def count(x, least=0):
        return type(x) is int and least <= x < 1 << 40

    def named(x, table):
        return isinstance(x, str) and x in table

    def unique(described, what):
        names = [x["name"] for x in described]
        want(len(set(names)) == len(names), f"two {what} have one name")
        return {x["name"]: x["bytes"] for x in described}
    weights = manifest.get("weights")
    want(isinstance(weights, list), "its manifest lists no weights")
    for w in weights:
        want(isinstance(w, dict) and isinstance(w.get("name"), str) and named(w.get("file"), sources) and count(w.get("offset")) and count(w.get("bytes"))
             and w["offset"] + w["bytes"] <= sources[w["file"]].size, f"weight {w.get('name') if isinstance(w, dict) else w!r} lies outside its file")
    weights = unique(weights, "weights")
    if manifest.get("task") == "inference":
        _check_inference(manifest.get("inference"), sources, weights, want, count, named)
        return
    d = manifest.get("decoder")
    want(isinstance(d, dict) and count(d.get("capacity"), 1) and count(d.get("vocab_size"), 1) and isinstance(d.get("plans"), list) and d["plans"] and isinstance(d.get("caches"), list), "its manifest describes no decoder")
    want(d.get("cache_dtype", CACHE_DTYPES[0]) in CACHE_DTYPES, f"it keeps keys and values as {d.get('cache_dtype')!r}")
    for c in d["caches"]:
        want(isinstance(c, dict) and isinstance(c.get("name"), str) and count(c.get("bytes")), "a cache is described wrongly")
    caches = unique(d["caches"], "caches")
    for p in d["plans"]:
        want(isinstance(p, dict) and count(p.get("tokens"), 1) and p["tokens"] <= d["capacity"] and named(p.get("file"), sources) and isinstance(p.get("registers"), dict) and isinstance(p.get("slots"), list),
             "a plan is described wrongly")
        want(p["registers"] == REGISTERS and not any(r is False or r is True for r in p["registers"].values()), f"a plan has the registers {p['registers']}")
        for s in p["slots"]:
            want(isinstance(s, dict) and isinstance(s.get("name"), str) and s.get("kind") in KINDS and count(s.get("bytes")), "a slot is described wrongly")
            want(s["kind"] != "weight" or weights.get(s["name"], -1) >= s["bytes"], f"weight '{s['name']}' is missing or too short")
            want(s["kind"] != "cache" or caches.get(s["name"], -1) >= s["bytes"], f"cache '{s['name']}' is missing or too short")
            want(s["kind"] != "input" or s["name"] == "input_ids" and s["bytes"] == 8 * p["tokens"], f"an input '{s['name']}' that the decoder does not feed")
            want(s["kind"] != "output" or s["name"] == "logits" and s["bytes"] == 4 * d["vocab_size"], f"an output '{s['name']}' that the decoder does not read")
        kinds = [s["kind"] for s in p["slots"]]
        want(kinds.count("input") == 1 and kinds.count("output") == 1, "a plan does not have one input and one output")
    tokens = [p["tokens"] for p in d["plans"]]
    want(len(set(tokens)) == len(tokens), "two plans are for as many tokens")
    want(caches or max(tokens) == d["capacity"], "no plan is for as many tokens as a sequence may have")
    want(bool(d.get("recompute")) == (not caches), "it says otherwise whether it has caches")


def _check_inference(d, sources, weights, want, count, named):
    """The plans of a package of any model; what feeds them is checked when they run."""
    want(isinstance(d, dict) and all(isinstance(d.get(k), list) for k in ("inputs", "outputs", "plans")) and d["plans"], "its manifest describes no plans")
    for v in d["inputs"] + d["outputs"]:
        want(isinstance(v, dict) and isinstance(v.get("name"), str) and isinstance(v.get("dtype"), str), "an input or output is described wrongly")
    for p in d["plans"]:
        want(isinstance(p, dict) and named(p.get("file"), sources) and isinstance(p.get("inputs"), dict) and isinstance(p.get("outputs"), dict) and isinstance(p.get("slots"), list), "a plan is described wrongly")
        for s in p["slots"]:
            want(isinstance(s, dict) and isinstance(s.get("name"), str) and s.get("kind") in KINDS and count(s.get("bytes")), "a slot is described wrongly")
            want(s["kind"] != "weight" or weights.get(s["name"], -1) >= s["bytes"], f"weight '{s['name']}' is missing or too short")
            want(s["kind"] in ("weight", "computed", "input", "output"), f"a slot is a {s['kind']}, which such a plan has not")
