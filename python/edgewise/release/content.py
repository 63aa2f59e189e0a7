"""What is released: the files of a version one after the other, and where chunks begin in them, so
that a tensor's chunks are compared with those of the same tensor in an earlier version.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..declare.dtypes import NAME
from ..errors import InputError
from ..onnx.source import FileSource, Source
from ..package import MAGIC, Package, SourceRange
from ..training.safetensors import load_safetensors
from .codec import CHUNK
from .errors import ReleaseError

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass
class Section:
    """A part of a file. name: the same in all versions; kind: type of its numbers, empty if there
    is none.
    """

    name: str
    start: int
    bytes: int
    kind: str = ""

    def chunks(self) -> list[tuple[int, int]]:
        """(start, bytes) of its chunks."""
        end = self.start + self.bytes
        return [(at, min(CHUNK, end - at)) for at in range(self.start, end, CHUNK)]


@dataclass
class Content:
    """A version. kind: as in the manifest; files: (name, its bytes)."""

    kind: str
    files: list[tuple[str, Source]]

    def read(self, start: int, size: int) -> bytes:
        """Bytes of the content, which may lie in several files."""
        out = b""
        for _, source in self.files:
            if start < source.size and size:
                part = source.read(start, min(size, source.size - start))
                out, start, size = out + part, start + len(part), size - len(part)
            start = max(0, start - source.size)
        return out

    def sections(self) -> list[Section]:
        """All sections in ascending order, without gaps. Small neighbours of one kind are one
        section, since each chunk that changes is a request.

        Raises:
            EdgewiseError: a file is damaged.
        """
        found: list[Section] = []
        at = 0
        for name, source in self.files:
            before = len(found)
            for s in _sections(name, source):
                last = found[-1] if len(found) > before else None
                if last and s.kind and s.kind == last.kind and last.bytes + s.bytes <= CHUNK:
                    last.bytes += s.bytes
                elif s.bytes:
                    found.append(Section(f"{name}/{s.name}", at + s.start, s.bytes, s.kind))
            at += source.size
        return found


def _sections(name: str, source: Source) -> list[Section]:
    if name.endswith(".edge"):
        marks = _package_marks(source)
    elif name.endswith(".safetensors"):
        tensors, _ = load_safetensors(source)
        marks = [(t.offset, n, NAME[t.dtype]) for n, t in tensors.items() if t.nbytes]
    else:
        marks = []
    marks = sorted({0: (0, "", ""), **{m[0]: m for m in marks}}.values())
    ends = [m[0] for m in marks[1:]] + [source.size]
    return [
        Section(label, start, end - start, kind)
        for (start, label, kind), end in zip(marks, ends, strict=True)
    ]


def _package_marks(source: Source) -> list[tuple[int, str, str]]:
    """(start, name, type) of the parts and weights of a package."""
    package = Package.read(source)
    starts = {}
    for name, part in package.sources.items():
        assert isinstance(part, SourceRange)
        starts[name] = part.offset
    marks = [(at, name, "") for name, at in starts.items() if name != "weights"]
    types = weight_types(package.manifest)
    for w in package.manifest["weights"]:
        if w["bytes"]:
            at = starts[w["file"]] + w["offset"]
            marks.append((at, f"weights/{w['name']}", types.get(w["name"], "unknown")))
    return marks


def weight_types(manifest: dict[str, object]) -> dict[str, str]:
    """{weight: type} by the plans and trained states that read it; "mixed" if they differ."""
    types: dict[str, set[str]] = {}

    def visit(value: object) -> None:
        if isinstance(value, dict):
            name, dtype, initial = value.get("name"), value.get("dtype"), value.get("initial")
            if isinstance(dtype, str):
                if value.get("kind") == "weight" and isinstance(name, str):
                    types.setdefault(name, set()).add(dtype)
                if isinstance(initial, list) and initial[:1] == ["constant"]:
                    types.setdefault(str(initial[1]), set()).add(dtype)
            for part in value.values():
                visit(part)
        elif isinstance(value, list):
            for part in value:
                visit(part)

    visit(manifest)
    return {n: next(iter(found)) if len(found) == 1 else "mixed" for n, found in types.items()}


def open_content(path: str) -> Content:
    """What the command was given: a package, an adapter's folder, or the folder of federated
    rounds, of which it is the adapter or, if all weights were trained, the weights.

    Raises:
        InputError: it is none of these.
    """
    if os.path.isdir(path):
        folder = path
        if os.path.exists(os.path.join(path, "run.json")):
            folder = os.path.join(path, "adapter")
            whole = os.path.join(path, "weights.safetensors")
            if not os.path.exists(whole):
                raise InputError("no round has ended", path, "Release it after the first round.")
            if not os.path.isdir(folder):
                return Content("adapter", [("model.safetensors", FileSource(whole))])
        files = [(name, os.path.join(folder, name)) for name in ADAPTER_FILES]
        missing = next((name for name, file in files if not os.path.exists(file)), None)
        if missing is not None:
            raise InputError(f"there is no {missing}", folder, "Give an adapter's folder.")
        return Content("adapter", [(name, FileSource(file)) for name, file in files])
    source = FileSource(path)
    if source.size < 8 or source.read(0, 8) != MAGIC:
        raise InputError(
            "it is no package, no adapter's folder and no run of `edgewise federate`",
            path,
            "Build a package with `edgewise build`.",
        )
    return Content("package", [("model.edge", source)])


def stored_content(kind: str, files: Sequence[tuple[str, int]], whole: Source) -> Content:
    """A version that is in one source."""
    at, found = 0, []
    for name, size in files:
        found.append((name, SourceRange(whole, at, size, name)))
        at += size
    if at != whole.size:
        raise ReleaseError("its files do not have its length", whole.name)
    return Content(kind, list(found))
