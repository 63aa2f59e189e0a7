"""What is released: the files of a version one after the other, and where chunks begin in them, so
that a tensor's chunks are compared with those of the same tensor in an earlier version.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...compiler.declare.dtypes import NAME
from ...compiler.onnx.reader import read_model
from ...compiler.onnx.source import FileSource, Source, missing_file
from ...compiler.package import Package, SourceRange
from ...compiler.training.safetensors import load_safetensors
from ...errors import EdgewiseError, InputError
from ...logic.manifest.package import MAGIC
from .codec import CHUNK
from .errors import ReleaseError
from .manifest import FILE, MAX_FILES

LARGE = 1 << 14  # bytes of a tensor of an .onnx file that has chunks of its own
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass
class Section:
    """A part of a file. name: the same in all versions; kind: type of its numbers, empty if there
    is none; columns: numbers in a row, 0 if they are no matrix.
    """

    name: str
    start: int
    bytes: int
    kind: str = ""
    columns: int = 0

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
            inside = Inside(self, name, source) if name.endswith(".onnx") else source
            for s in _sections(name, inside):
                last = found[-1] if len(found) > before else None
                if last and s.kind and s.kind == last.kind and last.bytes + s.bytes <= CHUNK:
                    last.bytes += s.bytes
                    last.columns = last.columns if last.columns == s.columns else 0
                elif s.bytes:
                    s.name, s.start = f"{name}/{s.name}", at + s.start
                    found.append(s)
            at += source.size
        return found


class Inside(Source):
    """A file of a version, of which external data is in files of the same version alone."""

    def __init__(self, content: Content, name: str, source: Source) -> None:
        self.name, self.size = source.name, source.size
        self._content, self._file, self._source = content, name, source

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read."""
        return self._source.read(offset, size)

    def sibling(self, name: str) -> Source:
        """As Source.sibling."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self._file), name))
        found = dict(self._content.files).get(path)
        if found is None:
            what = f"its external data file '{name}' is not in the release"
            raise missing_file(name, what, self.name, "Give the folder that has both.")
        return Inside(self._content, path, found)


def _sections(name: str, source: Source) -> list[Section]:
    if name.endswith(".edge"):
        marks = _package_marks(source)
    elif name.endswith(".onnx"):
        marks = _onnx_marks(source)
    elif name.endswith(".safetensors"):
        tensors, _ = load_safetensors(source)
        marks = [
            Section(n, t.offset, 0, NAME[t.dtype], _columns(t.shape))
            for n, t in tensors.items()
            if t.nbytes
        ]
    else:
        marks = []
    first = {0: Section("", 0, 0), **{m.start: m for m in marks}}
    marks = [first[start] for start in sorted(first)]
    for mark, end in zip(marks, [m.start for m in marks[1:]] + [source.size], strict=True):
        mark.bytes = end - mark.start
    return marks


def _onnx_marks(source: Source) -> list[Section]:
    """The beginnings of large tensors in a model, and of what is between them."""
    marks: list[Section] = []
    try:
        tensors = read_model(source).constants
    except EdgewiseError:
        return marks  # of an earlier version; new ones were checked
    for name, t in tensors.items():
        if t.source is source and t.nbytes >= LARGE:
            marks += [
                Section(name, t.offset, 0, NAME[t.dtype], _columns(t.shape)),
                Section(f"behind {name}", t.offset + t.nbytes, 0),
            ]
    return marks


def _columns(shape: Sequence[int]) -> int:
    return int(shape[-1]) if len(shape) > 1 else 0


def _package_marks(source: Source) -> list[Section]:
    """The parts and weights of a package, without their sizes."""
    package = Package.read(source)
    starts = {}
    for name, part in package.sources.items():
        assert isinstance(part, SourceRange)
        starts[name] = part.offset
    marks = [Section(name, at, 0) for name, at in starts.items() if name != "weights"]
    types, columns = weight_types(package.manifest), _weight_columns(package.manifest)
    for w in package.manifest["weights"]:
        if w["bytes"]:
            at = starts[w["file"]] + w["offset"]
            name, kind = w["name"], types.get(w["name"], "unknown")
            marks.append(Section(f"weights/{name}", at, 0, kind, columns.get(name, 0)))
    return marks


def weight_types(manifest: Mapping[str, object]) -> dict[str, str]:
    """{weight: type} by the plans and trained states that read it; "mixed" if they differ."""
    types: dict[str, set[str]] = {}
    for name, slot in _readers(manifest):
        if isinstance(slot.get("dtype"), str):
            types.setdefault(name, set()).add(str(slot["dtype"]))
    return {n: next(iter(found)) if len(found) == 1 else "mixed" for n, found in types.items()}


def _weight_columns(manifest: Mapping[str, object]) -> dict[str, int]:
    """{weight: numbers in a row}"""
    shapes = {name: slot.get("shape") for name, slot in _readers(manifest)}
    return {name: _columns(shape) for name, shape in shapes.items() if isinstance(shape, list)}


def _readers(value: object) -> Iterator[tuple[str, dict[str, object]]]:
    """(weight, what reads it) for all slots of plans and states in a manifest."""
    if isinstance(value, dict):
        name, initial = value.get("name"), value.get("initial")
        if value.get("kind") == "weight" and isinstance(name, str):
            yield name, value
        if isinstance(initial, list) and initial[:1] == ["constant"]:
            yield str(initial[1]), value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _readers(part)


def open_content(path: str) -> Content:
    """What the command was given: a package, an .onnx file, the folder of a model in ONNX, an
    adapter's folder, or the folder of federated rounds, of which it is the adapter or, if all
    weights were trained, the weights.

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
        elif (found := _model_files(path)) is not None:
            return found
        files = [(name, os.path.join(folder, name)) for name in ADAPTER_FILES]
        missing = next((name for name, file in files if not os.path.exists(file)), None)
        if missing is not None:
            raise InputError(
                f"there is no {missing}", folder, "Give the folder of an adapter, or of a model."
            )
        return Content("adapter", [(name, FileSource(file)) for name, file in files])
    source = FileSource(path)
    if path.endswith(".onnx"):
        return _checked(Content("model", [("model.onnx", source)]))
    if source.size < 8 or source.read(0, 8) != MAGIC:
        raise InputError(
            "it is no package, no model, no adapter's folder and no run of `edgewise federate`",
            path,
            "Build a package with `edgewise build`.",
        )
    return Content("package", [("model.edge", source)])


def _model_files(folder: str) -> Content | None:
    """The files of a model's folder, as exporters lay it out: texts beside, and .onnx files with
    their data here or one folder below. None if there is no .onnx file.
    """
    paths = []
    for below in ("", *sorted(os.listdir(folder))):
        if os.path.isdir(inner := os.path.join(folder, below)) and below[:1] != ".":
            names = sorted(os.listdir(inner))
            paths += [os.path.join(below, n) for n in names if n[:1] != "."]
    names = [p for p in paths if os.path.isfile(os.path.join(folder, p))]
    if not any(name.endswith(".onnx") for name in names):
        return None
    files = [(n.replace(os.sep, "/"), FileSource(os.path.join(folder, n))) for n in names]
    files = [(name, source) for name, source in files if source.size]
    if len(files) > MAX_FILES:
        raise InputError(
            f"it has {len(files)} files, at most {MAX_FILES} are released",
            folder,
            "Leave out the variants of the model that pages do not load.",
        )
    for name, _ in files:
        if not FILE.fullmatch(name):
            raise InputError(
                f"'{name[:100]}' cannot be the name of a released file",
                folder,
                "Rename it to letters, digits, '.', '_' and '-', or remove it.",
            )
    return _checked(Content("model", list(files)))


def _checked(content: Content) -> Content:
    """The content, of which all models can be read, with weights that are in it."""
    for name, source in content.files:
        if name.endswith(".onnx"):
            read_model(Inside(content, name, source))
    return content


def stored_content(kind: str, files: Sequence[tuple[str, int]], whole: Source) -> Content:
    """A version that is in one source."""
    at, found = 0, []
    for name, size in files:
        found.append((name, SourceRange(whole, at, size, name)))
        at += size
    if at != whole.size:
        raise ReleaseError("its files do not have its length", whole.name)
    return Content(kind, list(found))
