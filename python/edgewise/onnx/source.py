"""Where bytes come from.

A model is read through a `Source` so that weights are only ever (offset, length) in it.

A source has `name`, `size` (bytes), `read(offset, size) -> bytes`, and `sibling(name) -> Source`,
which finds external data beside it.
"""

from __future__ import annotations

import os

from ..errors import InputError, ModelError


class Source:
    """Random access to the bytes of a file; subclasses say where it lies.

    `name`: what errors call it; `size`: in bytes.
    """

    name: str
    size: int

    def read(self, offset, size):
        """bytes of this stretch. ModelError where it lies outside the file."""
        raise NotImplementedError

    def read_all(self, most=1 << 28):
        """All bytes of a file of text. ModelError where there are more than `most`."""
        if self.size > most:
            raise self._too_long(self.size, most)
        return self.read(0, self.size)

    def _too_long(self, size, most):
        return ModelError(
            f"it has {size} bytes, at most {most} are read",
            self.name,
            "That is no configuration or tokenizer; fetch it again.",
        )

    def sibling(self, name):
        """The Source of external data, by its path relative to this file.

        ModelError where there is none.
        """
        raise ModelError(
            f"external data file '{name}' was not given",
            self.name,
            "Pass that file along with the model.",
        )

    def _check(self, offset, size):
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ModelError(
                f"bytes {offset}..{offset + size} lie outside the file ({self.size} bytes)",
                self.name,
                "The file is truncated or damaged; fetch it again.",
            )


class BytesSource(Source):
    """A model in memory, and optionally its external data: {file name: bytes or Source}."""

    def __init__(self, data, name="model.onnx", siblings=None):
        self.data, self.name, self.siblings = memoryview(data).cast("B"), name, siblings or {}
        self.size = len(self.data)

    def read(self, offset, size):
        """As Source.read: a copy."""
        self._check(offset, size)
        return bytes(self.data[offset : offset + size])

    def sibling(self, name):
        """As Source.sibling, from the siblings that were given."""
        if name not in self.siblings:
            return super().sibling(name)
        return as_source(self.siblings[name], name)


class JsBufferSource(Source):
    """A model in a JavaScript ArrayBuffer, or view of one, that Pyodide shows as a JsBuffer;
    siblings as in BytesSource.
    """

    def __init__(self, data, name="model.onnx", siblings=None):
        self.buffer, self.start = getattr(data, "buffer", data), getattr(data, "byteOffset", 0)
        self.name, self.size, self.siblings = name, data.byteLength, siblings or {}

    def read(self, offset, size):
        """As Source.read: a copy in Python's memory."""
        return self.read_js(offset, size).to_bytes()

    def read_js(self, offset, size):
        """An ArrayBuffer: what engine/browser.py copies into engine memory without passing through
        Python.
        """
        self._check(offset, size)
        return self.buffer.slice(self.start + offset, self.start + offset + size)

    sibling = BytesSource.sibling


class FileSource(Source):
    """A file on disk. Reads by position; nothing is held in memory."""

    def __init__(self, path):
        self.path, self.name = os.fspath(path), os.fspath(path)
        try:
            self._file = open(self.path, "rb", buffering=0)
        except (OSError, ValueError) as e:
            raise ModelError(
                f"cannot open it ({getattr(e, 'strerror', None) or e})",
                self.name,
                "Check the path.",
            ) from None
        self.size = os.fstat(self._file.fileno()).st_size
        self.mapping = None  # an engine's mapping of it

    def fileno(self):
        """Descriptor of the open file."""
        return self._file.fileno()

    def read(self, offset, size):
        """As Source.read; not to be called from several threads at once."""
        self._check(offset, size)
        self._file.seek(offset)
        data = self._file.read(size)
        while len(data) < size:  # a raw read may stop early
            more = self._file.read(size - len(data))
            if not more:
                raise ModelError(
                    "the file became shorter while it was read",
                    self.name,
                    "Do not change model files in use.",
                )
            data += more
        return data

    def read_all(self, most=1 << 28):
        """As Source.read_all; to the end of the file, which need not be where its size says: some
        file systems (JupyterLite's drive) write JSON anew whenever it is read.
        """
        if self.size > most:
            raise self._too_long(self.size, most)
        pieces, length = [], 0
        self._file.seek(0)
        while piece := self._file.read(min(1 << 24, most + 1 - length)):
            pieces.append(piece)
            length += len(piece)
            if length > most:
                raise self._too_long(f"more than {most}", most)
        return b"".join(pieces)

    def sibling(self, name):
        """As Source.sibling.

        ModelError as well where the path leads out of the model's folder: a model file must not
        read others.
        """
        folder = os.path.dirname(os.path.abspath(self.path))
        path = os.path.normpath(os.path.join(folder, name.replace("\0", "?")))
        home = os.path.realpath(
            folder
        )  # a link right in the folder may lead out of it (a download cache), one below may not
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
            raise ModelError(
                f"external data file '{name}' is missing",
                self.name,
                f"Put it beside the model, as {path}.",
            )
        return FileSource(path)

    def close(self):
        """Closes the file; an engine's mapping of it stays."""
        self._file.close()


class LazyFileSource(FileSource):
    """As FileSource, but opened when it is first asked for bytes or size: a folder may hold files
    that nobody reads, and on some file systems opening a file fetches it.
    """

    def __init__(self, path):
        self.path, self.name, self.mapping = os.fspath(path), os.fspath(path), None

    def __getattr__(self, name):
        if name not in ("_file", "size"):
            raise AttributeError(name)
        FileSource.__init__(self, self.path)
        return getattr(self, name)

    def close(self):
        """As FileSource.close."""
        if "_file" in self.__dict__:
            super().close()


def as_source(x, name="model.onnx"):
    """A Source of a path, bytes, a JavaScript buffer (in Pyodide), or itself."""
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
            f"a {type(x).__name__} is no model",
            "model",
            "Pass a path, the file's bytes, or an edgewise.onnx.Source.",
        ) from None
