"""Reads a checkpoint. Tensors stay in the file."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

from .....compiler.declare.dtypes import NAME, bytes_for
from .....compiler.ir import Tensor
from .....compiler.onnx.protobuf import CachedReader
from .....compiler.onnx.source import Source, as_source
from .....errors import ModelError
from .checkpoint import IDENTIFIER, VERSION, Checkpoint, OptimizerGroup

MAX_RANK, MAX_TEXT, MAX_ELEMENTS = 64, 1 << 20, 1 << 40


class _FlatBuffer:
    """Checked access to a FlatBuffer in a Source."""

    def __init__(self, source: Source):
        self.source, self.window = source, CachedReader(source)
        # Tables may share strings, so a small file could claim any amount of text.
        self.text_left = 16 * source.size + (1 << 16)

    def broken(self, what: str) -> ModelError:
        return ModelError(
            what,
            self.source.name,
            "The file is damaged or not a checkpoint; fetch or save it again.",
        )

    def number(self, code: str, at: int) -> Any:
        """The number at a position. code: of struct."""
        width = struct.calcsize("<" + code)
        if at < 0 or at + width > self.source.size:
            raise self.broken(f"it points to byte {at}, which it does not have")
        return struct.unpack("<" + code, self.window.at(at, width))[0]

    def follow(self, at: int) -> int:
        """The position that the offset at `at` points to."""
        return at + self.number("I", at)

    def vector(self, at: int, width: int) -> tuple[int, int]:
        """(position of the first element, count) of the vector that the offset at `at` points
        to. width: bytes of an element.
        """
        start = self.follow(at)
        count = self.number("I", start)
        if start + 4 + count * width > self.source.size:
            raise self.broken(f"the list at byte {start} claims {count} elements")
        return start + 4, count


class _Table:
    """A table of the FlatBuffer; fields are read by their ids."""

    def __init__(self, buffer: _FlatBuffer, at: int):
        self.buffer, self.at = buffer, at
        self.vtable = at - buffer.number("i", at)
        size, self.size = buffer.number("H", self.vtable), buffer.number("H", self.vtable + 2)
        if (
            size < 4
            or self.size < 4
            or self.vtable + size > buffer.source.size
            or at + self.size > buffer.source.size
        ):
            raise buffer.broken(f"the table at byte {at} lies outside of the file")
        self.fields = (size - 4) // 2

    def position(self, i: int, width: int) -> int | None:
        """Position of field i, or None if it has its default."""
        offset = self.buffer.number("H", self.vtable + 4 + 2 * i) if i < self.fields else 0
        if offset and (offset < 4 or offset + width > self.size):
            raise self.buffer.broken(f"the table at byte {self.at} has field {i} outside of itself")
        return self.at + offset if offset else None

    def number(self, i: int, code: str, default: object = 0) -> Any:
        """The number in field i. code: of struct."""
        at = self.position(i, struct.calcsize("<" + code))
        return default if at is None else self.buffer.number(code, at)

    def table(self, i: int) -> _Table | None:
        """The table in field i, or None."""
        at = self.position(i, 4)
        return None if at is None else _Table(self.buffer, self.buffer.follow(at))

    def tables(self, i: int) -> Iterator[_Table]:
        """The tables of the vector in field i."""
        at = self.position(i, 4)
        if at is not None:
            start, count = self.buffer.vector(at, 4)
            for k in range(count):
                yield _Table(self.buffer, self.buffer.follow(start + 4 * k))

    def text(self, i: int, what: str) -> str:
        """The string in field i. what: for messages."""
        at = self.position(i, 4)
        if at is None:
            raise self.buffer.broken(f"{what} is missing")
        start, count = self.buffer.vector(at, 1)
        self.buffer.text_left -= count
        if count > MAX_TEXT or self.buffer.text_left < 0:
            raise self.buffer.broken(f"{what} is {count} bytes long")
        try:
            return (self.buffer.window.at(start, count) if count else b"").decode()
        except UnicodeDecodeError:
            raise self.buffer.broken(f"{what} is not UTF-8") from None


def read_checkpoint(source: Source | str | os.PathLike[str] | bytes) -> Checkpoint:
    """Reads a checkpoint.

    Args:
        source: path, bytes or Source of the file. If its parameters are in NAME.data, that file
            must be beside it.

    Raises:
        ModelError: it is damaged, truncated, of another version, or not a checkpoint.
    """
    file = as_source(source, "checkpoint")
    buffer = _FlatBuffer(file)
    if file.size < 8 or file.read(4, 4) != IDENTIFIER:
        raise buffer.broken("it is not a checkpoint of ONNX Runtime's training")
    root = _Table(buffer, buffer.follow(0))
    if root.number(0, "i") != VERSION:
        raise ModelError(
            f"its version is {root.number(0, 'i')}",
            file.name,
            "Edgewise reads version 2, which ONNX Runtime 1.17 to 1.19 wrote; load it there and"
            " save it again.",
        )
    out = Checkpoint()
    module, bag = root.table(1), root.table(3)
    if module is not None:
        _read_module(module, out)
    for group in root.tables(2):
        name = group.text(0, "a parameter group's name")
        if name in out.groups:
            raise buffer.broken(f"two parameter groups are called '{name}'")
        out.groups[name] = _read_group(group)
    if bag is not None:
        out.properties = _read_properties(bag)
    return out


def _read_module(module: _Table, out: Checkpoint) -> None:
    """Adds the parameters."""
    buffer = module.buffer
    out.nominal = module.number(2, "?", False)
    data = None
    if module.number(3, "?", False):
        data = buffer.source.sibling(os.path.basename(buffer.source.name) + ".data")
    for i, parameters in ((0, out.requires_grad), (1, out.frozen)):
        for table in module.tables(i):
            t = _tensor(table, data, out.nominal)
            if t.name in out.requires_grad or t.name in out.frozen:
                raise buffer.broken(f"two parameters are called '{t.name}'")
            parameters[t.name] = t


def _read_group(table: _Table) -> OptimizerGroup:
    group = OptimizerGroup(table.number(1, "q"), table.number(2, "f"))
    for state in table.tables(3):
        parameter = state.text(0, "a parameter's name")
        if parameter in group.momentums:
            raise table.buffer.broken(f"'{parameter}' has optimizer states twice")
        group.momentums[parameter] = states = {}
        for entry in state.tables(1):
            t = _tensor(entry, None, False)
            if t.name in states:
                raise table.buffer.broken(f"'{parameter}' has two states called '{t.name}'")
            states[t.name] = t
    return group


def _read_properties(bag: _Table) -> dict[str, int | float | str]:
    readers: tuple[Callable[[_Table], int | float | str], ...] = (
        lambda p: p.number(1, "q"),
        lambda p: p.number(1, "f"),
        lambda p: p.text(1, "a property"),
    )
    out: dict[str, int | float | str] = {}
    for i, read in enumerate(readers):
        for p in bag.tables(i):
            name = p.text(0, "a property's name")
            if name in out:
                raise bag.buffer.broken(f"two properties are called '{name}'")
            out[name] = read(p)
    return out


def _tensor(t: _Table, data: Source | None, nominal: bool) -> Tensor:
    """A tensor.

    Args:
        t: its table.
        data: the second file, or None.
        nominal: whether it has a name and a type only.
    """
    b, name = t.buffer, t.text(0, "a tensor's name")
    dtype = t.number(3, "i")
    if dtype not in NAME or NAME[dtype] == "string":
        raise b.broken(
            f"tensor '{name}' has the element type {dtype}, which checkpoints do not hold"
        )
    if nominal:  # the file gives names and types only
        return Tensor(name, dtype, (), None, 0, 0, b"")
    dims = t.position(2, 4)
    start, rank = b.vector(dims, 8) if dims is not None else (0, 0)
    if rank > MAX_RANK:
        raise b.broken(f"tensor '{name}' claims {rank} dimensions")
    shape = tuple(b.number("q", start + 8 * i) for i in range(rank))
    count = 1
    for d in shape:
        if d < 0 or (count := count * d) > MAX_ELEMENTS:
            raise b.broken(f"tensor '{name}' has the shape {list(shape)}")
    raw, offset, nbytes = t.position(4, 4), t.number(6, "q", -1), bytes_for(dtype, count)
    if raw is not None:
        start, size = b.vector(raw, 1)
        if size != nbytes:
            raise b.broken(
                f"tensor '{name}' has {size} bytes, its shape {list(shape)} of {NAME[dtype]} needs"
                f" {nbytes}"
            )
        return Tensor(name, dtype, shape, b.source, start, nbytes)
    if offset < 0 or data is None:
        raise b.broken(f"tensor '{name}' has no data")
    if offset + nbytes > data.size:
        raise ModelError(
            f"tensor '{name}' lies at bytes {offset}..{offset + nbytes}, the file has {data.size}",
            data.name,
            "It is truncated or belongs to another checkpoint.",
        )
    return Tensor(name, dtype, shape, data, offset, nbytes)
