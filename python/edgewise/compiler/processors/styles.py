"""Voices of Kokoro: a style for each number of tokens."""

from __future__ import annotations

import array
import ast
import io
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import InputError, ModelError
from ...logic.speech.voices import WIDTH, voice_name
from ..arrays import as_input
from ..declare.dtypes import FLOAT

__all__ = ["WIDTH", "Styles"]

MAX_BYTES = 1 << 28


class Styles:
    """The voices of a model: voices/NAME.bin or .npy, or an .npz with all of them.

    Args:
        names: the model's files.
        read: function(file name) that returns its bytes, or None.
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], bytes | None]) -> None:
        self.read = read
        self.files: dict[str, str] = {}
        self.archives = []
        self._rows: dict[str, array.array[float]] = {}
        for name in names:
            stem, kind = os.path.splitext(name)
            if kind == ".npz":
                self.archives.append(name)
            elif kind == ".npy" or (kind == ".bin" and stem.startswith("voices/")):
                self.files[os.path.basename(stem)] = name
        self._members: dict[str, str] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the voices."""
        if self._members is None:
            self._members = {}
            for name in self.archives:
                with _opened(self.read(name) or b"", name) as archive:
                    for member in archive.namelist():
                        stem, kind = os.path.splitext(member)
                        if kind == ".npy":
                            self._members[stem] = name
        return sorted({*self.files, *self._members})

    def row(self, voice: Any, count: int) -> list[float]:
        """The style of a voice for a number of tokens.

        Args:
            voice: its name, the path of a file, or an array [rows, 1, 256] or [rows, 256]; None:
                "af_heart", or the only one.
            count: number of tokens without those at the ends.

        Returns:
            256 numbers

        Raises:
            InputError: there is no such voice. ModelError: its file is damaged.
        """
        if voice is not None and not isinstance(voice, (str, os.PathLike)):
            rows = _of_array(voice, "voice")
        else:
            name = self._name(voice)
            if name not in self._rows:
                self._rows[name] = self._load(name)
            rows = self._rows[name]
        at = min(count, len(rows) // WIDTH - 1) * WIDTH
        return rows[at : at + WIDTH].tolist()

    def count(self, name: str) -> int:
        """The number of styles of a voice. Raises as `row`."""
        self.row(name, 0)
        return len(self._rows[name]) // WIDTH

    def bytes(self, name: str) -> bytes:
        """All styles of a voice, float32 [count, 256]. Raises as `row`."""
        self.row(name, 0)
        return self._rows[name].tobytes()

    def _name(self, voice: str | os.PathLike[str] | None) -> str:
        name = None if voice is None else os.fspath(voice)
        if name is not None and name not in self.names and os.path.isfile(name):
            return name
        return voice_name(self.names, name)

    def _load(self, name: str) -> array.array[float]:
        if name in self.files:
            return _of_file(self.read(self.files[name]) or b"", self.files[name])
        assert self._members is not None
        if name in self._members:
            where = self._members[name]
            with _opened(self.read(where) or b"", where) as archive:
                if archive.getinfo(f"{name}.npy").file_size > MAX_BYTES:
                    raise ModelError("it is too large", f"{where}: {name}", "Give another file.")
                try:
                    data = archive.read(f"{name}.npy")
                except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError):
                    raise ModelError(
                        "it is damaged", f"{where}: {name}", "Copy it again."
                    ) from None
                return _of_npy(data, f"{where}: {name}")
        try:
            with open(name, "rb") as file:
                return _of_file(file.read(MAX_BYTES), name)
        except OSError as e:
            raise InputError(f"it cannot be read ({e.strerror})", name, "Check it.") from None


def _opened(data: bytes, where: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        raise ModelError("it is no .npz file", where, "Copy it again from the model.") from None


def _of_file(data: bytes, where: str) -> array.array[float]:
    if data[:6] == b"\x93NUMPY":
        return _of_npy(data, where)
    return _checked(data, where)


def _of_npy(data: bytes, where: str) -> array.array[float]:
    """The numbers of a .npy file of float32."""
    try:
        wide = data[6] > 1
        size = int.from_bytes(data[8 : 12 if wide else 10], "little")
        start = (12 if wide else 10) + size
        header = ast.literal_eval(data[start - size : start].decode("latin-1").strip())
        kind, fortran = header["descr"], header["fortran_order"]
    except (IndexError, KeyError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        kind, fortran, start = None, False, 0
    if data[:6] != b"\x93NUMPY" or kind != "<f4" or fortran:
        raise ModelError("it is no .npy file of float32", where, "Copy it again from the model.")
    return _checked(data[start:], where)


def _checked(data: bytes, where: str) -> array.array[float]:
    if not data or len(data) % (4 * WIDTH):
        raise ModelError(
            f"its {len(data)} bytes are not styles of {WIDTH} numbers", where, "Copy it again."
        )
    values = array.array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _of_array(values: Any, where: str) -> array.array[float]:
    dtype, _, data = as_input(values, where, FLOAT)
    if dtype != FLOAT:
        raise InputError("its numbers are not float32", where, "Convert them.")
    return _checked(memoryview(data).cast("B").tobytes(), where)
