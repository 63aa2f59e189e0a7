"""Random access to files, which models are read through: weights are ranges of a Source until the
engine needs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError, ModelError, NoSuchFile, UnsupportedOp
from ..declare.dtypes import BytesLike
from .halves import exponents


class MissingFile(ModelError):
    """A file of a model's external data is missing.

    Attributes:
        file: its path relative to the model.
    """

    file = ""


class MissingEmbedding(UnsupportedOp):
    """A decoder takes embeddings, and the graph that makes them is not among its files.

    Attributes:
        files: the names that it may have, with the decoder's folder, likely ones first.
    """

    files: Sequence[str] = ()


def missing_file(file: str, what: str, where: str, remedy: str) -> MissingFile:
    """A MissingFile error for `file`, with the texts of EdgewiseError."""
    error = MissingFile(what, where, remedy)
    error.file = file
    return error


class Source:
    """Random access to the bytes of a file, and to the files of its external data.

    Attributes:
        name: of the file, for errors.
        size: in bytes.
        location: of external data, the path that the model's file names; "" of that file itself.
    """

    name: str
    size: int
    location: str = ""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; ModelError if they lie outside of it."""
        raise NotImplementedError

    def exponents(self, offset: int, size: int) -> tuple[int, int] | None:
        """Of float32 numbers at `offset`: as halves.exponents."""
        return exponents(self.read(offset, size))

    def read_all(self, most: int = 1 << 28) -> bytes:
        """All bytes of a text file; ModelError if there are more than `most`."""
        if self.size > most:
            raise self._too_long(self.size, most)
        return self.read(0, self.size)

    def _too_long(self, size: object, most: int) -> ModelError:
        return ModelError(
            f"it has {size} bytes, at most {most} are read",
            self.name,
            "It is not a configuration or tokenizer; fetch it again.",
        )

    def sibling(self, name: str) -> Source:
        """External data, by its path relative to this file; MissingFile if there is none."""
        raise missing_file(
            name,
            f"external data file '{name}' is missing",
            self.name,
            "Pass that file along with the model.",
        )

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ModelError(
                f"bytes {offset}..{offset + size} lie outside the file ({self.size} bytes)",
                self.name,
                "The file is truncated or damaged; fetch it again.",
            )


class BytesSource(Source):
    """A model in memory.

    Args:
        data: bytes of the file.
        name: of the file, for errors.
        siblings: bytes or Sources of external data, by file name.
    """

    def __init__(
        self,
        data: BytesLike,
        name: str = "model.onnx",
        siblings: Mapping[str, object] | None = None,
    ) -> None:
        self.data = memoryview(data).cast("B")
        self.name, self.size = name, len(self.data)
        self.siblings = siblings or {}

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read; copies the bytes."""
        self._check(offset, size)
        return bytes(self.data[offset : offset + size])

    def sibling(self, name: str) -> Source:
        """As Source.sibling, from the siblings that were passed."""
        if name not in self.siblings:
            return super().sibling(name)
        return as_source(self.siblings[name], name)


class JsBufferSource(Source):
    """A model in JavaScript, in Pyodide.

    Args:
        data: an ArrayBuffer or a view of one.
        name: of the file, for errors.
        siblings: bytes or Sources of external data, by file name.
    """

    def __init__(
        self, data: Any, name: str = "model.onnx", siblings: Mapping[str, object] | None = None
    ) -> None:
        self.buffer, self.start = getattr(data, "buffer", data), getattr(data, "byteOffset", 0)
        self.name, self.size, self.siblings = name, data.byteLength, siblings or {}

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read; copies the bytes to Python's memory."""
        return self.read_js(offset, size).to_bytes()

    def read_js(self, offset: int, size: int) -> Any:
        """Bytes of the file as ArrayBuffer, which the engine copies without Python."""
        self._check(offset, size)
        return self.buffer.slice(self.start + offset, self.start + offset + size)

    def sibling(self, name: str) -> Source:
        """As Source.sibling, from the siblings that were passed."""
        if name not in self.siblings:
            return super().sibling(name)
        return as_source(self.siblings[name], name)


class FileSource(Source):
    """A file on disk, read by position."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.name = os.fspath(path), os.fspath(path)
        try:
            self._file = open(self.path, "rb", buffering=0)
        except (OSError, ValueError) as e:
            kind = NoSuchFile if isinstance(e, FileNotFoundError) else ModelError
            raise kind(
                f"cannot open it ({getattr(e, 'strerror', None) or e})",
                self.name,
                "Check the path.",
            ) from None
        self.size = os.fstat(self._file.fileno()).st_size
        self.mapping: Any = None  # the mapping of an engine

    def fileno(self) -> int:
        """File descriptor."""
        return self._file.fileno()

    def read(self, offset: int, size: int) -> bytes:
        """As Source.read; not thread-safe."""
        self._check(offset, size)
        self._file.seek(offset)
        data = self._file.read(size)
        while len(data) < size:  # an unbuffered read may return fewer bytes
            more = self._file.read(size - len(data))
            if not more:
                raise ModelError(
                    "the file became shorter while it was read",
                    self.name,
                    "Do not change model files in use.",
                )
            data += more
        return data

    def read_all(self, most: int = 1 << 28) -> bytes:
        """As Source.read_all. Reads to the end of the file, which may differ from its size: some
        file systems (JupyterLite's drive) serialize JSON each time it is read.
        """
        if self.size > most:
            raise self._too_long(self.size, most)
        pieces: list[bytes] = []
        length = 0
        self._file.seek(0)
        while piece := self._file.read(min(1 << 24, most + 1 - length)):
            pieces.append(piece)
            length += len(piece)
            if length > most:
                raise self._too_long(f"more than {most}", most)
        return b"".join(pieces)

    def sibling(self, name: str) -> Source:
        """As Source.sibling; ModelError also if the file is outside of the model's folder, since a
        model must not read other files.
        """
        folder = os.path.dirname(os.path.abspath(self.path))
        path = os.path.normpath(os.path.join(folder, name.replace("\0", "?")))
        home = os.path.realpath(folder)
        # Links in the folder itself may lead out of it (as in a download cache), links in
        # subfolders may not.
        if (
            os.path.isabs(name)
            or not os.path.realpath(path).startswith(home.rstrip(os.sep) + os.sep)
            and os.path.dirname(path) != folder
        ):
            raise ModelError(
                f"external data '{name}' lies outside the model's folder",
                self.name,
                "External data must lie in the folder of the model.",
            )
        if not os.path.isfile(path):
            raise missing_file(
                name,
                f"external data file '{name}' is missing",
                self.name,
                f"Put it beside the model, as {path}.",
            )
        return FileSource(path)

    def close(self) -> None:
        """Closes the file; the mapping of an engine stays."""
        self._file.close()


class LazyFileSource(FileSource):
    """As FileSource, but opened when bytes or size are first needed: not all files of a folder are
    read, and some file systems fetch a file when it is opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.name, self.mapping = os.fspath(path), os.fspath(path), None

    def __getattr__(self, name: str) -> Any:
        if name not in ("_file", "size"):
            raise AttributeError(name)
        FileSource.__init__(self, self.path)
        return getattr(self, name)

    def close(self) -> None:
        """As FileSource.close."""
        if "_file" in self.__dict__:
            super().close()


def as_source(x: Any, name: str = "model.onnx") -> Source:
    """The Source of a path, of bytes, of a JavaScript buffer in Pyodide, or x if it is a Source.

    Args:
        x: the model.
        name: of bytes, for errors.

    Raises:
        InputError: x is none of these.
        ModelError: the file cannot be opened.
    """
    if isinstance(x, Source):
        return x
    if isinstance(x, (str, os.PathLike)):
        return FileSource(x)
    if hasattr(x, "to_memoryview") and hasattr(x, "byteLength"):
        return JsBufferSource(x, name)
    try:
        return BytesSource(x, name)
    except TypeError:
        raise InputError(
            f"a {type(x).__name__} is not a model",
            "model",
            "Pass a path, the file's bytes, or an edgewise.onnx.Source.",
        ) from None
