"""The files of a task's model: graphs by the names of optimum and transformers.js, and the small
files beside them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...compiler.compile.model_file import MAX_TEXT, PREFERRED
from ...compiler.onnx import FileSource
from ...compiler.package import Package
from ...compiler.task_package.graphs import by_word
from ...errors import InputError, ModelError, NoSuchFile
from ...json_text import parse_json_object
from ...logic.manifest.limits import SUFFIX_OF
from ..hub import is_model_id, task_folder

DTYPES = SUFFIX_OF
"""Names of the types of weights in transformers.js, and the suffixes of their files."""
SMALL = re.compile(r".*\.(json|jinja|txt|model|npz|npy)|voices/.*\.bin", re.IGNORECASE)

Stem = str | tuple[str, ...]
"""Name of a graph without suffix, such as "model"; a tuple: the first that exists."""
Dtype = str | Mapping[str, str] | None
Own = Mapping[str, Sequence[str]]
Finder = Callable[[Sequence[str], Sequence[str], Own], dict[str, str] | None]
"""(names of files, suffixes of a dtype, those of some graphs) -> {stem: file}, or None"""


class ModelFiles:
    """The files of a model for a task.

    Args:
        model: a folder, an .onnx file, an .edge package, or the id of a model of the hub.
        stems: the graphs that the task needs.
        optional: graphs that are used where they exist.
        dtype: a name of `DTYPES` or "auto", or {stem: one of these}; None and "auto": fp32 where
            it exists, else the first of `PREFERRED`.
        revision: branch, tag or commit of an id.
        subfolder: of the graphs; they are also looked for in the model's folder.
        model_file_name: replaces the stem of the task's only graph.
        find: finds the graphs of further forms of models by their names, before `stems`.

    Attributes:
        where: the model, for messages.
        graphs: {stem: path of the .onnx file}; empty for a package.
        package: the Package, or None.

    Raises:
        InputError: there is no such file or folder, or a graph is missing.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        stems: Sequence[Stem] = ("model",),
        optional: Sequence[str] = (),
        dtype: Dtype = None,
        revision: str | None = None,
        subfolder: str = "onnx",
        model_file_name: str | None = None,
        find: Finder | None = None,
        further: Sequence[str] = (),
    ) -> None:
        path = self.where = os.fsdecode(model)
        self.graphs: dict[str, str] = {}
        self.package: Package | None = None
        self.root: str = path
        self.names: list[str] = []
        self.subfolder = subfolder
        self.named = subfolder != "onnx" or model_file_name is not None
        self.find = None if self.named else find
        if model_file_name is not None:
            first = stems[0] if isinstance(stems[0], str) else stems[0][0]
            if len(stems) != 1 or (optional and first != "model"):
                raise InputError(
                    "the task has several graphs",
                    "model_file_name",
                    "Give the folder that has them.",
                )
            stems, optional = (model_file_name,), ()
        names = [s for stem in stems for s in ((stem,) if isinstance(stem, str) else stem)]
        self.further = further
        dtypes = check_dtype(dtype, [*names, *optional, *further])

        def choose(present: list[str]) -> list[str]:
            found = self._choose(present, stems, optional, dtypes)
            return [*found.values(), *(n for n in present if SMALL.fullmatch(n))]

        if is_model_id(path):
            self.root = task_folder(path, revision, choose)
        elif revision is not None:
            raise InputError(
                "only models of the hub have revisions", "revision", "Leave it out for a path."
            )
        elif path.endswith(".edge") and os.path.isfile(path):
            self.package = Package.read(FileSource(path))
            self.names = [n for n in self.package.manifest["files"] if n != "weights"]
            return
        elif path.endswith((".onnx", ".ort")) and os.path.isfile(path):
            self._one_file(path, stems)
            return
        elif "\0" in path or not os.path.isdir(path):
            raise NoSuchFile(
                "there is no such file or folder",
                path,
                "Give a model folder, an .onnx file, an .edge package or the id of a model.",
            )
        self.names = _listed(self.root)
        found = self._choose(self.names, stems, optional, dtypes)
        self.graphs = {s: os.path.join(self.root, *n.split("/")) for s, n in found.items()}

    def _one_file(self, path: str, stems: Sequence[Stem]) -> None:
        """Takes an .onnx file as the task's only graph, with the small files of its folder and,
        if that is `subfolder`, of the folder above.
        """
        if len(stems) != 1:
            wanted = ", ".join(s if isinstance(s, str) else s[0] for s in stems)
            raise InputError(
                f"the task needs several graphs ({wanted})", path, "Give the folder that has them."
            )
        self.root = os.path.dirname(os.path.abspath(path))
        if os.path.basename(self.root) == self.subfolder and not os.path.exists(
            os.path.join(self.root, "config.json")
        ):
            self.root = os.path.dirname(self.root)
        self.names = _listed(self.root)
        stem = stems[0]
        self.graphs = {stem if isinstance(stem, str) else stem[0]: path}

    def _choose(
        self,
        names: Sequence[str],
        stems: Sequence[Stem],
        optional: Sequence[str],
        dtypes: Mapping[str, str],
    ) -> dict[str, str]:
        """{stem: file} of the graphs. Raises InputError."""
        graphs = sorted(n for n in names if n.endswith(".onnx"))
        found: dict[str, str] = {}
        if self.find is not None:
            own = {n: DTYPES[d] for n, d in dtypes.items() if n in self.further}
            named = {d for n, d in dtypes.items() if n not in own}
            suffixes = [s for d in named for s in DTYPES[d]] if named else PREFERRED
            for suffix in suffixes:
                further = self.find(graphs, (suffix,), own)
                if further is not None:
                    return further
        for stem in stems:
            choices = (stem,) if isinstance(stem, str) else stem
            for one in choices:
                file = self._file(graphs, one, dtypes.get(one))
                if file is not None:
                    found[one] = file
                    break
            else:
                asked = dtypes.get(choices[0])
                if len(stems) == len(graphs) == 1 and asked is None and not self.named:
                    found[choices[0]] = graphs[0]  # the only graph there is
                    continue
                raise InputError(
                    f"there is no {' or '.join(f'{c}.onnx' for c in choices)}"
                    + (f" of dtype {asked!r}" if asked else ""),
                    self.where,
                    f"It has: {', '.join(graphs[:12]) or 'no .onnx file'}.",
                )
        for one in optional:
            file = self._file(graphs, one, dtypes.get(one))
            if file is not None:
                found[one] = file
        return found

    def _file(self, graphs: Sequence[str], stem: str, dtype: str | None) -> str | None:
        suffixes = PREFERRED if dtype is None else DTYPES[dtype]
        for suffix in suffixes:
            for folder in (self.subfolder, ""):
                name = posixpath.join(folder, f"{stem}{suffix}.onnx")
                if name in graphs:
                    return name
        return by_word(graphs, stem)

    def read(self, name: str) -> bytes | None:
        """Bytes of a small file, by its name relative to the model's folder; None: there is none.

        Raises:
            ModelError: it is too large or cannot be read.
        """
        if self.package is not None:
            return self.package.file(name)
        path = os.path.join(self.root, *name.split("/"))
        try:
            if os.path.getsize(path) > MAX_TEXT:
                raise ModelError(
                    f"it has {os.path.getsize(path)} bytes, at most {MAX_TEXT} are read",
                    path,
                    "That is not a configuration; fetch it again.",
                )
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ModelError(
                f"cannot be read ({error.strerror})", path, "Check the file's permissions."
            ) from None

    def json(self, name: str) -> dict[str, Any] | None:
        """A small file as a JSON object; None: there is none. Raises ModelError."""
        data = self.read(name)
        where = posixpath.join(self.where, name)
        return None if data is None else parse_json_object(data, where, ModelError)


def stems_of(model: Any, revision: str | None = None) -> set[str]:
    """Names of the graphs of a folder or of a model of the hub, with and without suffixes of
    dtypes, or of a package's programs; none of other models.
    """
    if not isinstance(model, (str, os.PathLike)):
        return set()
    path = os.fsdecode(model)
    names: list[str] = []
    if is_model_id(path):

        def look(present: list[str]) -> list[str]:
            names.extend(present)
            return [name for name in present if name == "config.json"]

        task_folder(path, revision, look)
    elif path.endswith(".edge") and os.path.isfile(path):
        return set(Package.read(FileSource(path)).manifest.get("programs", {}))
    elif os.path.isdir(path):
        for base in (path, os.path.join(path, "onnx")):
            names += os.listdir(base) if os.path.isdir(base) else []
    graphs = [posixpath.basename(n) for n in names if n.endswith(".onnx")]
    stems = {re.sub(r"(_[a-z0-9]+)?\.onnx$", "", name) for name in graphs}
    return stems | {name.removesuffix(".onnx") for name in graphs}


def check_dtype(dtype: Dtype, stems: Iterable[str]) -> dict[str, str]:
    """{stem: dtype} of the graphs for which the caller names one.

    Raises:
        InputError: there is no such dtype or graph.
    """
    known = list(stems)
    given = dict(dtype) if isinstance(dtype, Mapping) else dict.fromkeys(known, dtype)
    for stem, name in given.items():
        if stem not in known:
            raise InputError(
                f"the task has no graph {stem!r}", "dtype", f"It has: {', '.join(known)}."
            )
        if name not in (None, "auto") and (not isinstance(name, str) or name not in DTYPES):
            raise InputError(
                f"{name!r} is not a dtype", "dtype", f"Give one of: auto, {', '.join(DTYPES)}."
            )
    return {stem: name for stem, name in given.items() if name is not None and name != "auto"}


def _listed(root: str) -> list[str]:
    """Names of the files of a folder and of those in it, with slashes, at most two levels deep."""
    names = []
    for base, folders, files in os.walk(root):
        inside = os.path.relpath(base, root).replace(os.sep, "/")
        names += [posixpath.normpath(posixpath.join(inside, f)) for f in files]
        if inside.count("/") >= 1:
            folders.clear()
        folders[:] = sorted(f for f in folders if not f.startswith("."))
    return sorted(names)
